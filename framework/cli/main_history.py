"""The commands that run a job's code over its history again: backfill and audit."""

from typing import TYPE_CHECKING, Annotated

import typer

from grete.cli.options import AsJson, Directory, JobName, KafkaConfig, LogOption, Set, SettingsPath
from grete.cli.settings_file import address_of, settings_of
from grete.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from grete.spark.backfill.history_checks import Accepted

Cluster = Annotated[
    str, typer.Option("--spark", help="The address of Spark: local[*] for this machine, or spark://…, yarn, k8s://….")
]
Work = Annotated[
    str | None,
    typer.Option(
        help="A folder that all executors see, for the records between stages. Default: below the job's directory."
    ),
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="[TOPIC=]PATH|kafka",
        help="Where the history of a topic is: Parquet or JSON files, or 'kafka' for all that the log still holds.",
    ),
]

MaxLate = Annotated[
    int,
    typer.Option(
        min=0,
        help="How many records of files may come after records of a higher time, in jobs that go by event time.",
    ),
]
MaxRefused = Annotated[
    int,
    typer.Option(
        min=0, help="How many records may become dead letters, or be dropped, where the history comes from files."
    ),
]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--accept",
        metavar="overlap|holes|fewer",
        help="Accept this in the history: files and the log overlap; offsets are in no file; the history has fewer "
        "records than that of the backfill before.",
    ),
]


def _accepted(late: int, refused: int, kinds: list[str] | None) -> "Accepted":
    from grete.spark.backfill.history_checks import Accept, Accepted

    if wrong := sorted(set(kinds or []) - set(Accept)):
        raise ConfigError(f"--accept {wrong[0]}: write one of {', '.join(Accept)}")
    return Accepted(late, refused, frozenset(map(Accept, kinds or [])))


def backfill(
    job: JobName,
    *,
    source: From = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="OFFSETS|now",
            help="The offsets from which the job continues live: [TOPIC:]PARTITION=OFFSET,…, or 'now' for the end of "
            "the log. Default: those of its last commit, or the end of the history.",
        ),
    ] = None,
    outputs: Annotated[
        bool, typer.Option("--outputs", help="Also write the outputs of the history to topics, files and tables.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete a backfill that died after it had committed all tasks.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Roll back a backfill that died: nothing of it counts.")
    ] = False,
    max_late: MaxLate = 0,
    max_refused: MaxRefused = 0,
    accept: AcceptOption = None,
    cluster: Cluster = "local[*]",
    work: Work = None,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Build a job's state from its history, by its own code, on Spark. Then the job continues live."""
    if resume and abort:
        raise ConfigError("--resume and --abort: choose one")
    from grete.spark import require_extra

    require_extra()
    from grete.cli.commands.backfill import fill
    from grete.cli.job_target import target

    found = target(job, directory, address_of(log, kafka_config, settings), settings_of(set, settings))
    outcome = "resume" if resume else "abort" if abort else None
    accepted = _accepted(max_late, max_refused, accept)
    fill(found, source or [], until, accepted, outputs=outputs, cluster=cluster, work=work, outcome=outcome)


MakeCalls = Annotated[
    bool,
    typer.Option(
        "--make-calls",
        help="Make the calls of async tasks again whose results are not recorded; else such a job is refused.",
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="Go on beside the running job until Ctrl-C: make each of its steps from checkpoint to checkpoint again. "
        "Needs no Spark.",
    ),
]
Share = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="With --follow: the share of the keys that is made again, the same keys each time, in stages that no "
        "other stage reads.",
    ),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT", help="With --follow: serve /metrics for Prometheus here. Default host: 127.0.0.1."
    ),
]


def audit(
    job: JobName,
    *,
    source: From = None,
    make_calls: MakeCalls = False,
    max_late: MaxLate = 0,
    max_refused: MaxRefused = 0,
    accept: AcceptOption = None,
    cluster: Cluster = "local[*]",
    work: Work = None,
    follow: Follow = False,
    share: Share = 1.0,
    http: MetricsAddress = None,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Compute a job's state again from its inputs, on Spark, and compare it key by key; exit 1 if it differs."""
    address = address_of(log, kafka_config, settings)
    if follow:
        from grete.cli.commands.audit_follow import follow as follow_job

        of_files = bool(source or max_late or max_refused or accept)
        if of_files or make_calls or cluster != "local[*]" or work is not None:
            raise ConfigError(
                "--follow goes on from the newest checkpoint, without Spark: leave --from, --max-late, --max-refused, "
                "--accept, --make-calls, --spark and --work out"
            )
        found = settings_of(set, settings)
        if not follow_job(job, directory, address, found, share=share, http=http, as_json=json):
            raise typer.Exit(ExitCode.FAILED)
        return
    if share != 1 or http is not None or json:
        raise ConfigError("--share, --http and --json are for an audit that goes on: add --follow")
    from grete.spark import require_extra

    require_extra()
    from grete.cli.commands.audit import compare

    if not compare(
        job,
        directory,
        address,
        source or [],
        settings_of(set, settings),
        cluster=cluster,
        work=work,
        makes_calls=make_calls,
        accepted=_accepted(max_late, max_refused, accept),
    ):
        raise typer.Exit(ExitCode.FAILED)
