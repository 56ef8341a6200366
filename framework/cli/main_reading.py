"""The commands that read what a job has written: commits, changelogs, topics."""

from pathlib import Path
from typing import Annotated

import typer

from grete.cli.options import AsJson, Directory, JobName, KafkaConfig, LogOption, Set, SettingsPath
from grete.cli.settings_file import address_of, settings_of

changelog_app = typer.Typer(no_args_is_help=True, help="Read and check the changelogs of a job.")
topic_app = typer.Typer(no_args_is_help=True, help="Read the external topics of a job.")


def checkpoints(
    job: JobName,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Show the last commit of each task: generation, checkpoint, age, positions in the inputs, and lag."""
    from grete.cli.commands.checkpoints import checkpoints as print_checkpoints

    print_checkpoints(job, directory, address_of(log, kafka_config, settings), as_json=json)


def members(
    job: JobName,
    *,
    json: AsJson = False,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
    settings_set: Set = None,
) -> None:
    """Show the machines that run a job on Kafka: their partitions, standbys, and last heartbeats."""
    from grete.cli.commands.members import members as print_members
    from grete.job.loader import load_job

    print_members(
        load_job(job), address_of(log, kafka_config, settings), settings_of(settings_set, settings), as_json=json
    )


def export(
    job: JobName,
    to: Annotated[Path, typer.Option("--to", help="The directory of the files; run again, it gets what has changed.")],
    *,
    store: Annotated[str | None, typer.Option(help="Only this store: its name, or STAGE/STORE.")] = None,
    at: Annotated[int | None, typer.Option(help="A checkpoint that is retained; default: the newest.")] = None,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Write the committed state into Parquet files: all of it, and later what has changed since.

    A manifest names the checkpoint and the files that count. Needs the extra spark, and no Spark.
    """
    from grete.cli.commands.export import export as export_job

    export_job(job, to, store, at, directory, address_of(log, kafka_config, settings))


@changelog_app.command("tail")
def changelog_tail(
    job: JobName,
    stage: Annotated[str, typer.Argument(help="The stage of the task.")],
    partition: Annotated[int, typer.Argument(help="The partition of the task.")],
    count: Annotated[int, typer.Option("-n", help="Print this many messages.")] = 20,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Print the last messages of a task's changelog."""
    from grete.cli.commands.changelog import changelog_tail as print_changelog_tail

    print_changelog_tail(job, stage, partition, count, directory, address_of(log, kafka_config, settings), as_json=json)


@changelog_app.command("verify")
def changelog_verify(
    job: JobName,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Read every changelog as a restore does, and check order, digests and commits; exit 4 if one is damaged."""
    from grete.cli.commands.changelog import changelog_verify as verify_changelogs

    verify_changelogs(job, directory, address_of(log, kafka_config, settings), as_json=json)


@topic_app.command("read")
def topic_read(
    job: JobName,
    topic: Annotated[str, typer.Argument(help="A topic that the job reads or writes outside.")],
    count: Annotated[
        int, typer.Option("-n", min=0, help="Print only this many last records of each partition; 0: all.")
    ] = 0,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Print the records of an external topic, decoded: partition, offset, key, value."""
    from grete.cli.commands.topic import topic_read as print_topic

    print_topic(job, topic, count, directory, address_of(log, kafka_config, settings), as_json=json)
