"""Shared parts of the schema registry tests: a few schemas, and a job that copies its input."""

from dataclasses import dataclass
from typing import Any

from grete import DeadLetter, Input, Job, Output, Record, Task, Topic, bytes_serde, utf8
from grete.api.tasks.mode import Mode
from tests.support.messages import field, message

V1 = {"type": "record", "name": "Hit", "namespace": "web", "fields": [{"name": "n", "type": "int"}]}
V2 = {**V1, "fields": [{"name": "n", "type": "long"}, {"name": "who", "type": "string", "default": "?"}]}
OTHER = {**V1, "fields": [{"name": "page", "type": "string"}]}


@dataclass
class Order:
    item: str
    pieces: int = 1


Bag = message(field(1, "item", "string"), field(2, "n"), name="Bag")


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "pieces", "type": "int"}],
}


class Copy(Task):
    """Sends each record on, by a topic and a serde that a test gives to a class of its own."""

    def process(self, record: Record[str, Any]) -> None:
        """Headers, too: the schema ids among them belong to what was read."""
        self.out.send(record.key, record.value, headers=record.headers)  # type: ignore[attr-defined]  # of the subclass


def copying(serde: Any, mode: Mode = "aligned", *, out: Any = None) -> tuple[Job, Topic[str, Any], Topic[str, Any]]:
    """Return a job that copies ``in`` to ``out``, bad records to ``bad``."""
    source, sink = Topic("in", key=utf8, value=serde), Topic("out", key=utf8, value=out or serde)
    bad = DeadLetter(Topic("bad", key=utf8, value=bytes_serde))
    task = type("CopyAll", (Copy,), {"source": Input(source, errors=bad), "out": Output(sink)})
    return Job("copy", [task], 1, mode), source, sink
