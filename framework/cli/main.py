"""Every command with its arguments. Its code is imported when it runs: a worker needs no user interface."""

from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from grete.cli.main_dlq import dlq_app
from grete.cli.main_history import audit, backfill
from grete.cli.main_incident import incident_app
from grete.cli.main_reading import changelog_app, checkpoints, export, members, topic_app
from grete.cli.main_state import apply, fork, migrate, plan, replay, rescale, snapshot, state_app
from grete.cli.options import (
    AsJson,
    Directory,
    HideValues,
    HttpAddress,
    JobName,
    KafkaConfig,
    LogOption,
    Processes,
    Set,
    SettingsPath,
    StartTimes,
)
from grete.cli.settings_file import address_of, settings_of
from grete.errors import ConfigError, ExitCode

app = typer.Typer(
    name="grete",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exactly-once stream processing in Python, on Kafka or on a log in one local file.",
)
app.add_typer(state_app, name="state")
app.add_typer(changelog_app, name="changelog")
app.add_typer(topic_app, name="topic")
app.add_typer(dlq_app, name="dlq")
app.add_typer(incident_app, name="incident")


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
    input_dir: Annotated[
        Path | None,
        typer.Option(
            help="Feed the text files of this folder: a record for each, with its name as key and its text as value."
        ),
    ] = None,
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC=FILE|-",
            help="Feed the lines of a file, or of standard input (-): a record for each. "
            "Each run feeds the whole file again.",
        ),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Take the text before the first tab of a line of --input as the key.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Run until Ctrl-C, and feed each change in the folder.")
    ] = False,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="At the end of the input fire the timers and windows that wait for a later record."
        ),
    ] = False,
    processes: Processes = None,
    starts: StartTimes = None,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Run all workers of a job on this machine until they have processed its input; restart those that die."""
    from grete.cli.commands.run import run as run_job
    from grete.cli.job_target import target

    if drain and follow:
        raise ConfigError(
            "--drain acts at the end of the input, and with --follow there is none: leave one of them out"
        )
    found = target(job, directory, address_of(log, kafka_config, settings), settings_of(set, settings))
    run_found = partial(run_job, found, folder=input_dir, lines=input or [], keys=keys, starts=starts or [])
    _end(waiting=run_found(follow=follow, drain=drain, processes=processes))


@app.command()
def up(
    job: JobName,
    *,
    processes: Processes = None,
    starts: StartTimes = None,
    http: HttpAddress = None,
    hide_values: HideValues = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Keep the workers of a job running on this machine until Ctrl-C; restart those that die."""
    from grete.cli.commands.up import up as run_workers
    from grete.cli.job_target import target

    found = target(job, directory, address_of(log, kafka_config, settings), settings_of(set, settings))
    _end(waiting=run_workers(found, http, hide_values=hide_values, processes=processes, starts=starts or []))


def _end(*, waiting: bool) -> None:
    """End the command; at once if the log does not answer."""
    if waiting:
        from grete.cli.patient_output import settle
        from grete.worker.lifetime import end_at_once

        settle()
        end_at_once(ExitCode.DONE)


@app.command()
def worker(
    job: JobName,
    *,
    partition: Annotated[int, typer.Option(help="The partition whose tasks the worker runs.")],
    directory: Directory = None,
    state_directory: Annotated[
        Path | None, typer.Option(help="Keep the local stores in this directory instead of the job's.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Run the task of this stage only.")] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Run no task: keep the partition's state ready on this machine.")
    ] = False,
    http: HttpAddress = None,
    hide_values: HideValues = False,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
    status_fd: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Run one worker. Exit codes: 0 done, 1 failed, 2 usage, 3 fenced, 4 halted."""
    from grete.cli.commands.worker import work

    code = work(
        job,
        partition,
        directory=directory,
        state=state_directory,
        stage=stage,
        http=http,
        hide_values=hide_values,
        address=address_of(log, kafka_config, settings),
        sets=set,
        settings_file=settings,
        status_fd=status_fd,
        standby=standby,
    )
    raise typer.Exit(code)


@app.command()
def config(
    *,
    json: AsJson = False,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Print each setting with its value and its source: default, file, environment or command line."""
    from grete.cli.commands.config import config as print_config

    print_config(log, kafka_config, settings, set, as_json=json)


@app.command()
def doctor(
    job: JobName,
    *,
    processes: Annotated[int | None, typer.Option(help="The same number as for grete run or grete up.", min=1)] = None,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Check whether this machine can run the job: log, rights, topics, clocks, disk, limits; exit 1 if not.

    It writes nothing.
    """
    from grete.cli.commands.doctor import doctor as look

    address, values = address_of(log, kafka_config, settings), settings_of(set, settings)
    if not look(job, directory, address, values, processes=processes, as_json=json):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="The name of the project, and of its new folder.")],
    template: Annotated[str, typer.Option(help="The example to begin with; a wrong one lists all.")] = "word-count",
) -> None:
    """Write a project with one job, and tests that pass."""
    from grete.cli.commands.new import new as new_project

    new_project(name, template)


@app.command("check-determinism")
def check_determinism(
    job: JobName,
    *,
    since: Annotated[
        int,
        typer.Option(
            help="Replay from this checkpoint of the sources on, or from the first one after it that is retained."
        ),
    ] = 0,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Replay the history of a deterministic job in memory twice, and compare its outputs; exit 1 if one differs."""
    from grete.cli.commands.check_determinism import check_determinism as check_job

    raise typer.Exit(
        check_job(job, since, directory, address_of(log, kafka_config, settings), settings_of(set, settings))
    )


for command in (backfill, audit, checkpoints, members, export, plan, apply, migrate, rescale, fork, replay, snapshot):
    app.command()(command)
