"""Grete: exactly-once stream processing. This is the whole public API; `framework` may change."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.api.avro_serde import avro
from framework.api.calls import BatchCall, Call, CallError
from framework.api.context import Context
from framework.api.deduplicate import ById, BySequence
from framework.api.external import External
from framework.api.files import Files
from framework.api.http import Http
from framework.api.interval_join import IntervalJoin
from framework.api.job import Job
from framework.api.joins import Pair
from framework.api.key_windows import SessionWindow, SlidingWindow
from framework.api.protobuf_serde import protobuf
from framework.api.reader import Once
from framework.api.record import Record
from framework.api.repartition import repartition
from framework.api.schema_registry import SchemaRegistry
from framework.api.serdes import Serde, bytes_serde, int64, json, utf8
from framework.api.store import Store
from framework.api.table import Table
from framework.api.table_join import TableJoin
from framework.api.task import Task
from framework.api.timers import Timer, Timers
from framework.api.topic import DeadLetter, Input, Output, Topic
from framework.api.trace_ids import TraceIds
from framework.api.versioned import VersionedStore
from framework.api.windows import Every, HoppingWindow, TumblingWindow, Window

if TYPE_CHECKING:
    from framework.client import Client, ExternalSource, SourceRecord, Writer

__all__ = [
    "BatchCall",
    "ById",
    "BySequence",
    "Call",
    "CallError",
    "Client",
    "Context",
    "DeadLetter",
    "Every",
    "External",
    "ExternalSource",
    "Files",
    "HoppingWindow",
    "Http",
    "Input",
    "IntervalJoin",
    "Job",
    "Once",
    "Output",
    "Pair",
    "Record",
    "SchemaRegistry",
    "Serde",
    "SessionWindow",
    "SlidingWindow",
    "SourceRecord",
    "Store",
    "Table",
    "TableJoin",
    "Task",
    "Timer",
    "Timers",
    "Topic",
    "TraceIds",
    "TumblingWindow",
    "VersionedStore",
    "Window",
    "Writer",
    "avro",
    "bytes_serde",
    "client",
    "int64",
    "json",
    "protobuf",
    "repartition",
    "utf8",
]

_OUTSIDE = ("Client", "ExternalSource", "SourceRecord", "Writer")  # of jobs: they need the log and the stores


def client(
    job: Job, *, log: str = "embedded", kafka_config: Path | None = None, directory: Path | None = None
) -> "Client":
    """Return a Client of a job, for a program that writes its inputs, reads its outputs and its state.

    ``log``, ``kafka_config``, ``directory``: as for `grete run`. Raises ConfigError: a log of another kind.
    """
    from framework.client import Client

    return Client(job, log=log, kafka_config=kafka_config, directory=directory)


def __getattr__(name: str) -> Any:
    """Import what programs outside of jobs use when it is asked for: a task needs none of it."""
    if name not in _OUTSIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import framework.client

    return getattr(framework.client, name)
