"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="The job: a module (tasks.word_count) or a file that defines job = Job(…).")
]
Directory = Annotated[
    Path | None,
    typer.Option(
        help="The job's directory: its state and its embedded log. Default: .grete/NAME-OF-JOB; on "
        "Kafka .grete/NAME-OF-JOB-HASH, with a hash of the address."
    ),
]
SettingsPath = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        envvar="GRETE_SETTINGS",
        help="A TOML file with settings and the log. Default: grete.toml in the current folder, if it is there.",
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option(
        envvar="GRETE_LOG",
        help="The log: 'embedded', a SQLite file in the job's directory, or kafka://host:port[,host:port]. "
        "Default: that of the settings file, or embedded.",
    ),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(
        envvar="GRETE_KAFKA_CONFIG",
        help="A file with librdkafka's options, a line NAME=VALUE for each: users, passwords, TLS.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as checkpoint_interval_ms=100; may be repeated."),
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
HideValues = Annotated[
    bool, typer.Option(help="The page that --http serves shows no values of records and state; keys it does.")
]
Checkpoint = Annotated[
    int | None,
    typer.Option(
        "--checkpoint",
        metavar="ID",
        help="Take the state as of this checkpoint, if the changelogs still retain it. Default: the newest.",
    ),
]
