"""Grete: exactly-once stream processing. What is named here is the whole public API; the modules below may change."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "grete":  # else there would be two of each class
    raise ImportError(f"import grete, not {__name__}: that is the folder in which its source is")

if TYPE_CHECKING:
    from pathlib import Path

    from grete.api.jobs.job import Job
    from grete.api.record import Record
    from grete.api.registry.schema_registry import SchemaRegistry
    from grete.api.serdes.avro_serde import avro
    from grete.api.serdes.key import Key
    from grete.api.serdes.protobuf_serde import protobuf
    from grete.api.serdes.serde import Serde, bytes_serde, int64, json, utf8
    from grete.api.sinks.external import External
    from grete.api.sinks.files import Files
    from grete.api.sinks.http import Http
    from grete.api.sinks.table import Table
    from grete.api.stateful.calendar_window import CalendarWindow
    from grete.api.stateful.common_windows import HoppingWindow, TumblingWindow
    from grete.api.stateful.count_window import CountWindow
    from grete.api.stateful.interval_join import IntervalJoin
    from grete.api.stateful.joins import Pair
    from grete.api.stateful.key_windows import SessionWindow, SlidingWindow
    from grete.api.stateful.table_join import TableJoin
    from grete.api.stateful.versioned import VersionedStore
    from grete.api.stateful.windows import Every, Window
    from grete.api.store import Store
    from grete.api.tasks.calls import BatchCall, Call, CallError
    from grete.api.tasks.context import Context
    from grete.api.tasks.handlers import on
    from grete.api.tasks.repartition import repartition
    from grete.api.tasks.task import Task
    from grete.api.tasks.timers import Timer, Timers
    from grete.api.tasks.trace_ids import TraceIds
    from grete.api.topics.deduplicate import ById, BySequence
    from grete.api.topics.reader import Once
    from grete.api.topics.topic import DeadLetter, Input, Output, Topic, TopicPattern
    from grete.clients import AsyncClient, Client, ExternalSource, SourceRecord, Writer

__all__ = [
    "AsyncClient",
    "BatchCall",
    "ById",
    "BySequence",
    "CalendarWindow",
    "Call",
    "CallError",
    "Client",
    "Context",
    "CountWindow",
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
    "Key",
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
    "TopicPattern",
    "TraceIds",
    "TumblingWindow",
    "VersionedStore",
    "Window",
    "Writer",
    "async_client",
    "avro",
    "bytes_serde",
    "client",
    "int64",
    "json",
    "on",
    "protobuf",
    "repartition",
    "utf8",
]

# Each name is imported when it is asked for: a module below, which imports this one first, stays light.
_NAMES = {
    "grete.api.serdes.avro_serde": ("avro",),
    "grete.api.tasks.calls": ("BatchCall", "Call", "CallError"),
    "grete.api.tasks.context": ("Context",),
    "grete.api.topics.deduplicate": ("ById", "BySequence"),
    "grete.api.sinks.external": ("External",),
    "grete.api.sinks.files": ("Files",),
    "grete.api.sinks.http": ("Http",),
    "grete.api.stateful.calendar_window": ("CalendarWindow",),
    "grete.api.stateful.common_windows": ("HoppingWindow", "TumblingWindow"),
    "grete.api.stateful.count_window": ("CountWindow",),
    "grete.api.stateful.interval_join": ("IntervalJoin",),
    "grete.api.jobs.job": ("Job",),
    "grete.api.stateful.joins": ("Pair",),
    "grete.api.stateful.key_windows": ("SessionWindow", "SlidingWindow"),
    "grete.api.serdes.key": ("Key",),
    "grete.api.serdes.protobuf_serde": ("protobuf",),
    "grete.api.topics.reader": ("Once",),
    "grete.api.record": ("Record",),
    "grete.api.tasks.handlers": ("on",),
    "grete.api.tasks.repartition": ("repartition",),
    "grete.api.registry.schema_registry": ("SchemaRegistry",),
    "grete.api.serdes.serde": ("Serde", "bytes_serde", "int64", "json", "utf8"),
    "grete.api.store": ("Store",),
    "grete.api.sinks.table": ("Table",),
    "grete.api.stateful.table_join": ("TableJoin",),
    "grete.api.tasks.task": ("Task",),
    "grete.api.tasks.timers": ("Timer", "Timers"),
    "grete.api.topics.topic": ("DeadLetter", "Input", "Output", "Topic", "TopicPattern"),
    "grete.api.tasks.trace_ids": ("TraceIds",),
    "grete.api.stateful.versioned": ("VersionedStore",),
    "grete.api.stateful.windows": ("Every", "Window"),
    "grete.clients": ("AsyncClient", "Client", "ExternalSource", "SourceRecord", "Writer"),
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


def async_client(
    job: "Job", *, log: str = "embedded", kafka_config: "Path | None" = None, directory: "Path | None" = None
) -> "AsyncClient":
    """Return the same for a program of asyncio, such as a web app: its calls are awaited. Raises ConfigError."""
    from grete.clients import AsyncClient

    return AsyncClient(job, log=log, kafka_config=kafka_config, directory=directory)


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
