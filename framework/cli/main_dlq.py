"""The commands about a job's dead letters."""

from typing import Annotated

import typer

from grete.cli.options import AsJson, Directory, JobName, KafkaConfig, LogOption, SettingsPath
from grete.cli.settings_file import address_of

dlq_app = typer.Typer(no_args_is_help=True, help="List, show and send again the dead letters of a job.")
OnlyLetters = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD=TEXT",
        help="Only letters that match this; may be repeated. Fields: dlq, partition, offset (of the letter), "
        "stage, topic, source (such as orders[0]), key, window, join, timer (its time), which are to equal the text; "
        "error is to contain it.",
    ),
]


@dlq_app.command("list")
def dlq_list(
    job: JobName,
    *,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Count the dead letters by topic, stage and error, and those that were sent again."""
    from grete.cli.commands.dlq import dlq_list as print_counts

    print_counts(job, directory, address_of(log, kafka_config, settings), as_json=json)


@dlq_app.command("show")
def dlq_show(
    job: JobName,
    *,
    where: OnlyLetters = None,
    count: Annotated[int, typer.Option("-n", min=1, help="Print only this many last letters.")] = 10,
    json: AsJson = False,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Print dead letters: error, traceback, and the record as it came."""
    from grete.cli.commands.dlq import dlq_show as print_letters

    print_letters(job, where or [], count, directory, address_of(log, kafka_config, settings), as_json=json)


@dlq_app.command("redrive")
def dlq_redrive(
    job: JobName,
    *,
    where: OnlyLetters = None,
    directory: Directory = None,
    log: LogOption = None,
    kafka_config: KafkaConfig = None,
    settings: SettingsPath = None,
) -> None:
    """Send the records of dead letters to the topic that they came from, each once; the job may run meanwhile."""
    from grete.cli.commands.dlq import dlq_redrive as send_again

    send_again(job, where or [], directory, address_of(log, kafka_config, settings))
