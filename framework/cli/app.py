"""Every command with its arguments. What it does is imported when it runs: a worker needs no user interface."""

import os
import secrets
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from framework.cli.app_state import fork, replay, rescale, state_app
from framework.cli.arguments import Directory, JobName, KafkaConfig, Log, Set
from framework.errors import ConfigError
from framework.logs.open import LogAddress

app = typer.Typer(
    name="grete",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Exactly-once stream processing.",
)
changelog_app = typer.Typer(no_args_is_help=True, help="Read and check the changelogs of a job.")
topic_app = typer.Typer(no_args_is_help=True, help="Read the external topics of a job.")
app.add_typer(state_app, name="state")
app.add_typer(changelog_app, name="changelog")
app.add_typer(topic_app, name="topic")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"grete {version('grete')}")
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", help="Print the version.", callback=_print_version)) -> None:
    """Run before every command."""


@app.command()
def run(
    job: JobName,
    *,
    input: Annotated[  # noqa: A002  # the option's name
        Path | None, typer.Option(help="A folder: its text files become the job's documents, name → text.")
    ] = None,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC=FILE|-",
            help="Each line of a file, or of standard input, is a record. Every run feeds them anew.",
        ),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="In --lines, what stands before the first tab is the key.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C: what changes in the folder is fed.")
    ] = False,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
    set: Set = None,  # noqa: A002  # the option's name
) -> None:
    """Run a whole job here until its input is used up: a worker process for each partition, restarted if it dies."""
    from framework.cli import running
    from framework.cli.target import target

    found = target(job, directory, LogAddress(log, kafka_config), set)
    running.run(found, folder=input, lines=lines or [], keys=keys, follow=follow)


@app.command()
def up(
    job: JobName,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
    set: Set = None,  # noqa: A002
) -> None:
    """Keep the workers of a job running on this machine until Ctrl-C; restart the dead."""
    from framework.cli import running
    from framework.cli.target import target

    running.up(target(job, directory, LogAddress(log, kafka_config), set))


@app.command()
def worker(
    job: JobName,
    *,
    partition: Annotated[int, typer.Option(help="The partition whose tasks it hosts.")],
    directory: Directory = None,
    state_directory: Annotated[
        Path | None, typer.Option(help="Where the state is kept, if not below DIRECTORY.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Host the task of this stage only.")] = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
    set: Set = None,  # noqa: A002
    status_fd: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Run one worker process, as a supervisor does. Exit codes: 0 done, 1 crashed, 3 fenced, 4 halted."""
    from framework.cli import working

    code = working.work(
        job,
        partition,
        directory=directory,
        state=state_directory,
        stage=stage,
        address=LogAddress(log, kafka_config),
        sets=set,
        status_fd=status_fd,
    )
    raise typer.Exit(code)


@app.command()
def demo(
    *,
    dir: Annotated[Path | None, typer.Option(envvar="DIR", help="The folder. Default: Python's own library.")] = None,  # noqa: A002
    guarantee: Annotated[str, typer.Option(envvar="GUARANTEE", help="exactly-once or at-least-once.")] = "exactly-once",
    follow: Annotated[
        bool, typer.Option("--follow", envvar="FOLLOW", help="Go on: edit a file, watch a search.")
    ] = False,
    query: Annotated[str, typer.Option(envvar="QUERY", help="The search to watch.")] = '"import os"',
    kills: Annotated[int, typer.Option(help="Kills that void something, and one in a restore on top.")] = 5,
    log: Annotated[
        str,
        typer.Option(envvar=["LOG", "GRETE_LOG"], help="'embedded'; kafka: a broker of its own; or kafka://host:port."),
    ] = "embedded",
    kafka_config: KafkaConfig = None,
    spark: Annotated[str, typer.Option(envvar="SPARK", hidden=True)] = "",
    directory: Directory = None,
    set: Set = None,  # noqa: A002
) -> None:
    """Index a folder while workers are killed, then compare the index with one made in a single plain pass."""
    try:
        from framework.cli import demo as command
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tasks"):
            raise ConfigError(
                "the demonstration runs an example of the repository: clone it, then make demo"
            ) from error
        raise
    command.demo(
        dir,
        guarantee,
        directory,
        address=LogAddress(log, kafka_config),
        spark=spark,
        follow=follow,
        query=query,
        kills=kills,
        sets=set,
    )


@app.command()
def new(name: Annotated[str, typer.Argument(help="Of the project: a folder of this name is made.")]) -> None:
    """Write a project with one task and a test that passes."""
    from framework.cli import new as command

    command.new(name)


@app.command()
def simulate(
    *,
    seed: Annotated[int | None, typer.Option(help="Run this one: its faults, its trace, its digest.", min=0)] = None,
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="Default: 1000, from a fresh one on.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Fresh seeds until the time is over.", min=0)] = None,
    mutant: Annotated[str | None, typer.Option(metavar="NAME", help="Bring a known mistake back.")] = None,
    all_mutants: Annotated[bool, typer.Option("--all-mutants", help="Hunt every known mistake.")] = False,
    processes: Annotated[int, typer.Option(help="Default: one a core.", min=1)] = os.cpu_count() or 1,
    faults: Annotated[str | None, typer.Option(metavar="N,N…", help="With --seed: these faults only.")] = None,
    records: Annotated[int | None, typer.Option(help="With --seed: so many of each input only.", min=0)] = None,
    tasks: Annotated[int | None, typer.Option(help="With --seed: so many of a stage at most.", min=1)] = None,
    world: Annotated[str, typer.Option(help="With --seed: aligned, deterministic or mixed.")] = "aligned",
    steps: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --seed: write each event and action of the run here.")
    ] = None,
) -> None:
    """Run the protocol in simulated worlds of crashes, pauses and zombies; exit 1 if an invariant breaks."""
    from framework.cli import simulate as command

    if all_mutants:
        raise typer.Exit(command.all_mutants(processes))
    if seed is not None:
        cut = command.cut_for(faults, records, tasks)
        raise typer.Exit(command.replay(seed, mutant, cut, command.world_of(world), steps))
    fresh = secrets.randbelow(1 << 40)
    raise typer.Exit(command.batch(command.asked_for(seeds, minutes, mutant, processes, fresh)))


Cluster = Annotated[str, typer.Option("--spark", help="Where Spark runs: this machine, or spark://…, yarn, k8s://….")]
Work = Annotated[
    str | None, typer.Option(help="Where stages keep what they give the next one; all executors must see it.")
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from", metavar="[TOPIC=]PATH|kafka", help="Parquet or JSON files, or what the log holds; for each topic."
    ),
]


def _with_spark() -> ModuleType:
    try:
        from framework.cli import backfill as command
    except ImportError as error:
        raise ConfigError(f"{error.name} is missing: pip install 'grete[spark]'") from error
    return command


@app.command()
def backfill(
    job: JobName,
    *,
    source: From = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSETS|now",
            help="[TOPIC:]PARTITION=OFFSET,…: where the job goes on. Default: where it stands, or the history ends.",
        ),
    ] = None,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Also send what the past sends to topics, files and tables.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Let a backfill that died after its commits count.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Make a backfill that died void for good.")] = False,
    cluster: Cluster = "local[*]",
    work: Work = None,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
    set: Set = None,  # noqa: A002
) -> None:
    """Build a job's state from its history on Spark, by its own task classes; the job goes on from there."""
    if resume and abort:
        raise ConfigError("--resume and --abort: choose one")
    from framework.cli.target import target

    command = _with_spark()
    found = target(job, directory, LogAddress(log, kafka_config), set)
    verdict = "resume" if resume else "abort" if abort else None
    command.fill(found, source or [], until, outputs=outputs, cluster=cluster, work=work, verdict=verdict)


@app.command()
def audit(
    job: JobName,
    *,
    source: From = None,
    cluster: Cluster = "local[*]",
    work: Work = None,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
    set: Set = None,  # noqa: A002
) -> None:
    """Recompute a job's state on Spark from its recorded inputs, and compare it key by key; exit 1 if it differs."""
    command = _with_spark()
    address = LogAddress(log, kafka_config)
    if not command.compare(job, directory, address, source or [], set, cluster=cluster, work=work):
        raise typer.Exit(1)


@app.command()
def checkpoints(
    job: JobName, directory: Directory = None, log: Log = "embedded", kafka_config: KafkaConfig = None
) -> None:
    """Show each task's last commit: generation, version, age, positions and lag."""
    from framework.cli import looking

    looking.checkpoints(job, directory, LogAddress(log, kafka_config))


@app.command()
def verify(
    job: JobName,
    *,
    since: Annotated[int, typer.Option(help="Begin with the sources' commits of this version, or the next.")] = 0,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
    set: Set = None,  # noqa: A002
) -> None:
    """Run the past of a deterministic job again, in memory, and compare; exit 1 at the first record that differs."""
    from framework.cli import verifying

    raise typer.Exit(verifying.verify(job, since, directory, LogAddress(log, kafka_config), set))


@changelog_app.command("tail")
def changelog_tail(
    job: JobName,
    stage: str,
    partition: int,
    count: Annotated[int, typer.Option("-n", help="Messages from the end.")] = 20,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
) -> None:
    """Print the last messages of a task's changelog."""
    from framework.cli import looking

    looking.changelog_tail(job, stage, partition, count, directory, LogAddress(log, kafka_config))


@changelog_app.command("verify")
def changelog_verify(
    job: JobName, directory: Directory = None, log: Log = "embedded", kafka_config: KafkaConfig = None
) -> None:
    """Read every changelog as a restore would: order, digests, valid commits, void messages."""
    from framework.cli import looking

    looking.changelog_verify(job, directory, LogAddress(log, kafka_config))


@topic_app.command("read")
def topic_read(
    job: JobName,
    topic: str,
    count: Annotated[int, typer.Option("-n", min=0, help="Records from the end of each partition; 0: all.")] = 0,
    directory: Directory = None,
    log: Log = "embedded",
    kafka_config: KafkaConfig = None,
) -> None:
    """Print the records of an external topic, decoded: partition, offset, key, value."""
    from framework.cli import looking

    looking.topic_read(job, topic, count, directory, LogAddress(log, kafka_config))


for command in (rescale, fork, replay):
    app.command()(command)
