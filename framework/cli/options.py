"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from grete.errors import ConfigError
from grete.feeds.line_forms import LineForm
from grete.state.read.checkpoints.nearest import AsOf, as_of

LOCAL = "local[*]"  # Spark on this machine


def path_named(text: str) -> Path:
    """Return the path that an option names. Raises BadParameter for an empty one, which would be this folder."""
    if not text:
        raise typer.BadParameter("it is empty, as a variable of the shell without a value is: name a path")
    return Path(text)


def checkpoint_named(text: str) -> AsOf:
    """Return the checkpoint, or the time, that an option names. Raises BadParameter."""
    try:
        return as_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="The job: a module (tasks.word_count) or a file that defines job = Job(…).")
]
Directory = Annotated[
    Path | None,
    typer.Option(
        parser=path_named,
        metavar="PATH",
        help="The job's directory: its state and its embedded log. Default: .grete/NAME-OF-JOB; on "
        "Kafka .grete/NAME-OF-JOB-HASH, with a hash of the address.",
    ),
]
SettingsPath = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        parser=path_named,
        metavar="FILE",
        envvar="GRETE_SETTINGS",
        help="A TOML file with settings and the log. Default: grete.toml in the current folder, if it is there.",
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        envvar="GRETE_LOG",
        help="The log: 'embedded', a SQLite file in the job's directory, kafka://host:port[,host:port], or "
        "MODULE:CLASS:PLACE, a log of your own. "
        "Default: that of the settings file, or embedded.",
    ),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        parser=path_named,
        metavar="PATH",
        envvar="GRETE_KAFKA_CONFIG",
        help="A file with librdkafka's options, a line NAME=VALUE for each: users, passwords, TLS.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as checkpoint_interval_ms=100; may be repeated."),
]
KeysFirst = Annotated[bool, typer.Option("--keys", help="Take the text before the first tab of a line as the key.")]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json-lines",
        help='Take each line as a record in JSON, as `grete topic read --json` prints them: "key", "value" (null: a '
        'deletion), "timestamp_ms", "headers".',
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")]
Processes = Annotated[
    int | None,
    typer.Option(help="Run all partitions in this many worker processes. Default: a process for each partition."),
]
HttpAddress = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Serve the page of the job, /metrics for Prometheus, /livez, /readyz and /status.json here. "
        "Default host: 127.0.0.1.",
    ),
]
StartTimes = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="TOPIC@TIME",
        help="Let a new job begin to read a topic with the first record of this time or later, such as "
        "payments@2026-11-01T00:00Z; for each topic once. A job that has begun ignores it.",
    ),
]
HideValues = Annotated[bool, typer.Option("--hide-values", hidden=True)]  # of before: it has an answer
Checkpoint = Annotated[
    Any,  # AsOf | None: Typer has no unions
    typer.Option(
        "--checkpoint",
        "--at",  # of export, where it was called so
        parser=checkpoint_named,
        metavar="ID|TIME",
        help="Take the state as of this checkpoint, or of the newest one up to this time, such as 2026-11-01T00:00Z, "
        "if the changelogs still retain it. Default: the newest.",
    ),
]
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
Cluster = Annotated[
    str, typer.Option("--spark", help="The address of Spark: local[*] for this machine, or spark://…, yarn, k8s://….")
]
Work = Annotated[
    str | None,
    typer.Option(
        help="A folder that all executors see, for the records between stages. Default: below the job's directory."
    ),
]
HistoryPaths = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="[TOPIC=]SOURCE",
        help="Where the history of a topic is: a path of Parquet or JSON files, FORMAT:PATH for another format of "
        "Spark, table:NAME, 'sql:QUERY', or 'kafka' for all that the log still holds.",
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="[TOPIC:]COLUMN=NAME,…",
        help="What the columns key, value, timestamp, partition, offset, headers and topic are called in the history; "
        "value=* makes a JSON object of all others.",
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
        metavar="overlap|holes|times|keys|fewer",
        help="Accept this in the history: files and the log overlap; offsets are in no file; timestamps look wrong; "
        "keys of the log are in the files by other bytes, or in another partition; "
        "the history has fewer records than that of the backfill before.",
    ),
]


def _file_of_folder(text: str) -> Path:
    """Return the path of a file that is to be written. Raises BadParameter: there is no such folder."""
    path = path_named(text)
    if not path.parent.is_dir():
        raise typer.BadParameter(f"{path.parent} is no folder: make it first")
    return path


MetricsFile = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        parser=_file_of_folder,
        metavar="FILE",
        help="At the end, write what was taken as metrics of Prometheus to this file, NAME.prom in the folder of a "
        "node exporter's textfile collector.",
    ),
]


class LineOptions(NamedTuple):
    """The form of lines."""

    keys: KeysFirst = False
    json_lines: JsonLines = False

    @property
    def form(self) -> LineForm:
        """The form that they ask for. Raises ConfigError: both."""
        if self.keys and self.json_lines:
            raise ConfigError("--keys and --json-lines: a record of JSON lines has its key in it: leave --keys out")
        return LineForm.JSON if self.json_lines else LineForm.KEYS if self.keys else LineForm.VALUES


class AtCheckpoint(NamedTuple):
    """The checkpoint whose state is shown, and the form."""

    asked: Checkpoint = None
    json: AsJson = False


class StateAt(NamedTuple):
    """The checkpoint, or the time, whose state is taken."""

    asked: Checkpoint = None


class JobOptions(NamedTuple):
    """The place of a job: its directory, its log, its settings."""

    directory: Directory = None
    log: LogOption = None
    kafka_config: KafkaConfig = None
    settings: SettingsPath = None
    set: Set = None


class HistoryOptions(NamedTuple):
    """The history of a job, and what is meant to be so in it."""

    source: HistoryPaths = None
    columns: MapOption = None
    max_refused: MaxRefused = 0
    accept: AcceptOption = None
    cluster: Cluster = LOCAL
    work: Work = None
    as_json: AsJson = False
    metrics: MetricsFile = None


class PageOptions(NamedTuple):
    """The page that a command serves; ``http`` None: none."""

    http: HttpAddress = None
    hide_values: HideValues = False

    def check(self) -> None:
        """Raise ConfigError for an option that has become a setting."""
        if self.hide_values:
            raise ConfigError(
                "--hide-values is a setting now, for the page, logs and screens alike: --set show_records=keys; or "
                "none, which hides keys, too"
            )


class MovingOptions(NamedTuple):
    """The ways to move state to other tasks."""

    assume_keyed: AssumeKeyed = False
    cluster: MovedBySpark = None
    work: WorkOfSpark = None
