"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

JobName = Annotated[str, typer.Argument(metavar="JOB", help="A module (tasks.word_count) or file with job = Job(…).")]
Directory = Annotated[
    Path | None, typer.Option(help="Where the job keeps its log and state. Default: .grete/NAME-OF-JOB.")
]
Log = Annotated[
    str,
    typer.Option(
        envvar="GRETE_LOG", help="'embedded': a SQLite file in the job's directory; or kafka://host:port[,host:port]."
    ),
]
KafkaConfig = Annotated[
    Path | None,
    typer.Option(envvar="GRETE_KAFKA_CONFIG", help="A file of librdkafka's options, NAME=VALUE lines: users, TLS, …"),
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")]
Checkpoint = Annotated[
    int | None,
    typer.Option("--checkpoint", metavar="ID", help="As of a checkpoint that is retained: see grete checkpoints."),
]
Partition = Annotated[int | None, typer.Option(help="Only this partition.")]
