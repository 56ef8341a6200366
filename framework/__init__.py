"""Grete: exactly-once stream processing. What is named here is the whole public API; the modules below may change."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "grete":  # else there would be two of each class
    raise ImportError(f"import grete, not {__name__}: that is the folder in which its source is")

if TYPE_CHECKING:
    from pathlib import Path

    from grete.api.avro_serde import avro
    from grete.api.calls import BatchCall, Call, CallError
    from grete.api.context import Context
    from grete.api.deduplicate import ById, BySequence
    from grete.api.external import External
    from grete.api.files import Files
    from grete.api.http import Http
    from grete.api.interval_join import IntervalJoin
    from grete.api.job import Job
    from grete.api.joins import Pair
    from grete.api.key_windows import SessionWindow, SlidingWindow
    from grete.api.protobuf_serde import protobuf
    from grete.api.reader import Once
    from grete.api.record import Record
    from grete.api.repartition import repartition
    from grete.api.schema_registry import SchemaRegistry
    from grete.api.serdes import Serde, bytes_serde, int64, json, utf8
    from grete.api.store import Store
    from grete.api.table import Table
    from grete.api.table_join import TableJoin
    from grete.api.task import Task
    from grete.api.timers import Timer, Timers
    from grete.api.topic import DeadLetter, Input, Output, Topic
    from grete.api.trace_ids import TraceIds
    from grete.api.versioned import VersionedStore
    from grete.api.windows import Every, HoppingWindow, TumblingWindow, Window
    from grete.clients import Client, ExternalSource, SourceRecord, Writer

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

# Each name is imported when it is asked for: a module below, which imports this one first, stays light.
_NAMES = {
    "grete.api.avro_serde": ("avro",),
    "grete.api.calls": ("BatchCall", "Call", "CallError"),
    "grete.api.context": ("Context",),
    "grete.api.deduplicate": ("ById", "BySequence"),
    "grete.api.external": ("External",),
    "grete.api.files": ("Files",),
    "grete.api.http": ("Http",),
    "grete.api.interval_join": ("IntervalJoin",),
    "grete.api.job": ("Job",),
    "grete.api.joins": ("Pair",),
    "grete.api.key_windows": ("SessionWindow", "SlidingWindow"),
    "grete.api.protobuf_serde": ("protobuf",),
    "grete.api.reader": ("Once",),
    "grete.api.record": ("Record",),
    "grete.api.repartition": ("repartition",),
    "grete.api.schema_registry": ("SchemaRegistry",),
    "grete.api.serdes": ("Serde", "bytes_serde", "int64", "json", "utf8"),
    "grete.api.store": ("Store",),
    "grete.api.table": ("Table",),
    "grete.api.table_join": ("TableJoin",),
    "grete.api.task": ("Task",),
    "grete.api.timers": ("Timer", "Timers"),
    "grete.api.topic": ("DeadLetter", "Input", "Output", "Topic"),
    "grete.api.trace_ids": ("TraceIds",),
    "grete.api.versioned": ("VersionedStore",),
    "grete.api.windows": ("Every", "HoppingWindow", "TumblingWindow", "Window"),
    "grete.clients": ("Client", "ExternalSource", "SourceRecord", "Writer"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}


def client(
    job: "Job", *, log: str = "embedded", kafka_config: "Path | None" = None, directory: "Path | None" = None
) -> "Client":
    """Return a Client of a job, for a program that writes its inputs, reads its outputs and its state.

    ``log``, ``kafka_config``, ``directory``: as for `grete run`. Raises ConfigError: a log of another kind.
    """
    from grete.clients import Client

    return Client(job, log=log, kafka_config=kafka_config, directory=directory)


if not TYPE_CHECKING:  # else each name would be there, as Any

    def __getattr__(name: str) -> Any:
        """Import a public name."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found = getattr(import_module(_MODULE_OF[name]), name)
        return found

    def __dir__() -> list[str]:
        """Return the public names, for completion."""
        return sorted({*globals(), *__all__})
