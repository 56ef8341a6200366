"""A system of your own as a sink: what Output takes, and what makes the object that writes to it (S2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from grete.api.serdes.serde import Serde
from grete.api.sinks.sink import Sink

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class External(Generic[V]):
    """A destination of a task's outputs that Grete does not know: ``connect`` returns a Sink of it, not open yet.

    ``name`` is what the state calls it, where outputs wait for their checkpoint as ``value`` encodes them: keep it. The
    sink gets these bytes, with the name. It is made once for each task and process.
    ``grete.testing.contracts.SinkContract`` tests what it must keep.
    """

    name: str
    value: Serde[V]
    connect: Callable[[], Sink]
