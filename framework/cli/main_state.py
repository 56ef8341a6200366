"""The commands that read or move a job's state."""

from pathlib import Path
from typing import Annotated

import typer

from grete.cli.options import AsJson, Checkpoint, Directory, JobName, KafkaConfig, LogOption, Set, SettingsPath
from grete.cli.settings_file import address_of, settings_of

AssumeKeyed = Annotated[
    bool,
    typer.Option(
        "--assume-keyed",
        help="Skip the check that store keys are the record keys. If they are not, the state is split.",
    ),
]

MovedBySpark = Annotated[
    str | None,
    typer.Option(
        "--spark",
        help="Let Spark move the state: local[*] for this machine, or spark://…, yarn, k8s://…. Default: this process.",
    ),
]
WorkOfSpark = Annotated[
    str | None,
    typer.Option(
        "--work", help="With --spark: a folder that all executors see, for files. Default: below the job's directory."
    ),
]

state_app = typer.Typer(no_args_is_help=True, help="Read the committed state of a job, also while it runs.")


@state_app.command("get")
def state_get(
    job: JobName,
    store: Annotated[str, typer.Argument(help="STORE, or STAGE/STORE where several stages have one of the name.")],
    key: Annotated[
        str, typer.Argument(help="The key as state scan prints it: text, a number, JSON or hex digits; \\0 is NUL.")
    ],
    *,
    checkpoint_id: Checkpoint = None,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Print the value of one key; exit 1 if there is none."""
    from grete.cli.commands.state import state_get as print_entry

    raise typer.Exit(
        print_entry(job, store, key, checkpoint_id, directory, address_of(log, kafka_config, settings), as_json=json)
    )


@state_app.command("scan")
def state_scan(
    job: JobName,
    store: Annotated[str, typer.Argument(help="STORE, or STAGE/STORE where several stages have one of the name.")],
    prefix: Annotated[str | None, typer.Option(help="Print only keys that begin with this.")] = None,
    *,
    limit: Annotated[int, typer.Option(help="Print at most this many entries.")] = 1000,
    checkpoint_id: Checkpoint = None,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Print the entries of a store, one per line: key and value."""
    from grete.cli.commands.state import state_scan as print_entries

    print_entries(
        job, store, prefix, limit, checkpoint_id, directory, address_of(log, kafka_config, settings), as_json=json
    )


@state_app.command("sizes")
def state_sizes(
    job: JobName,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Print entries and bytes of each store and task, and the time of the oldest entry where entries expire."""
    from grete.cli.commands.state_sizes import state_sizes as print_sizes

    print_sizes(job, directory, address_of(log, kafka_config, settings), as_json=json)


def plan(
    job: JobName,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Compare a job's code with its state: each change, and what happens to state and to records in flight.

    It writes nothing. Exit codes: 0 the code starts as it is, 1 changes wait for grete apply, 2 a change is refused.
    """
    from grete.cli.commands.plan import plan as plan_job

    address = address_of(log, kafka_config, settings)
    raise typer.Exit(plan_job(job, directory, address, settings_of(set, settings), as_json=json))


def apply(
    job: JobName,
    *,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Make the changes of a stopped job that grete plan shows as applied, as a whole or not at all.

    What is dropped is given up for good, and the code of before cannot start any more.
    """
    from grete.cli.commands.apply import apply as apply_changes

    apply_changes(job, directory, address_of(log, kafka_config, settings), settings_of(set, settings))


def rescale(
    job: JobName,
    *,
    partitions: Annotated[int, typer.Option(help="The new number of partitions, higher than the present one.")],
    stage: Annotated[
        str | None, typer.Option(help="Only this stage gets them: it has a number of its own then.")
    ] = None,
    assume_keyed: AssumeKeyed = False,
    cluster: MovedBySpark = None,
    work: WorkOfSpark = None,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Give a stopped job more partitions. Its state moves to the partitions of its keys, as a whole or not at all.

    Stages with a number of partitions of their own keep it.
    """
    from grete.cli.commands.rescale import rescale as rescale_job

    rescale_job(
        job,
        partitions,
        directory,
        address_of(log, kafka_config, settings),
        settings_of(None, settings),
        assume_keyed=assume_keyed,
        stage=stage,
        cluster=cluster,
        work=work,
    )


def migrate(
    job: JobName,
    *,
    assume_keyed: AssumeKeyed = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Rewrite keys and values of a stopped job by the newest version of the serdes, as a whole or not at all.

    Two keys that would be one are refused, and named.
    """
    from grete.cli.commands.migrate import migrate as migrate_job

    address = address_of(log, kafka_config, settings)
    migrate_job(job, directory, address, settings_of(None, settings), assume_keyed=assume_keyed)


def fork(
    job: JobName,
    second: Annotated[
        str,
        typer.Argument(
            metavar="SECOND",
            help="The new job, a module or a file: another name, the same stages in order, new ones only at the end.",
        ),
    ],
    *,
    checkpoint_id: Checkpoint = None,
    directory: Directory = None,
    second_directory: Annotated[
        Path | None, typer.Option(help="The directory of the new job. Default: as for --directory.")
    ] = None,
    assume_keyed: AssumeKeyed = False,
    cluster: MovedBySpark = None,
    work: WorkOfSpark = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Give a new job the state of an existing one at a checkpoint.

    It starts from there. It may have another number of partitions.
    """
    from grete.cli.commands.fork import fork as fork_job

    fork_job(
        job,
        second,
        checkpoint_id,
        directory,
        second_directory,
        address_of(log, kafka_config, settings),
        settings_of(None, settings),
        assume_keyed=assume_keyed,
        cluster=cluster,
        work=work,
    )


def replay(
    job: JobName,
    checkpoint_id: Checkpoint = None,
    into: Annotated[
        Path | None, typer.Option(help="Write the state into this directory instead of the job's own.")
    ] = None,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Rebuild the local stores of a job from its changelogs."""
    from grete.cli.commands.replay import replay as rebuild_stores

    address = address_of(log, kafka_config, settings)
    rebuild_stores(job, checkpoint_id, into, directory, address, settings_of(None, settings))


def snapshot(
    job: JobName,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The folder of the snapshots: a path, or a url of fsspec such as s3://BUCKET/PATH. "
            "Default: the setting snapshot_url.",
        ),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, help="Keep this many snapshots of each task, and delete older ones.")] = 3,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only the tasks of this partition; may be repeated. Default: all.")
    ] = None,
    json: AsJson = False,
    directory: Directory = None,
    state_directory: Annotated[
        Path | None, typer.Option(help="The workers' --state-directory, if they have one.")
    ] = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    set: Set = None,
) -> None:
    """Write the state of each task, as files, into a shared folder or an object store, while the job runs.

    A worker on a new machine with the setting snapshot_url takes these, and only the rest from its changelog.
    """
    from grete.cli.commands.snapshot import snapshot as take_snapshots

    take_snapshots(
        job,
        to,
        keep,
        partition or (),
        (directory, state_directory),
        address_of(log, kafka_config, settings),
        settings_of(set, settings),
        as_json=json,
    )
