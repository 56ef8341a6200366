"""A ready stage that gives records another key, so that those of one key meet in one task of the next stage."""

from collections.abc import Callable
from typing import Any, TypeVar

from grete.api.record import Record
from grete.api.tasks.task import Task
from grete.api.topics.topic import Input, Output, Topic

K = TypeVar("K")
V = TypeVar("V")


def repartition(
    source: Topic[Any, V] | Input[Any, V], *, to: Topic[K, V], key: Callable[[Record[Any, V]], K | None]
) -> type[Task]:
    """Return a stage that sends each record of ``source`` to the topic ``to``, under the key that ``key`` returns.

    Value, timestamp and headers stay. With key None a record goes to each partition in turn. Give an Input for its
    other arguments, such as ``errors=``, which counts for ``key``, too. The stage is called to-NAME, with the name of
    ``to``; a subclass may have another ``name``, ``partitions`` or ``mode``.
    (Kafka Streams: selectKey and repartition; Flink: keyBy.)
    """

    class Repartition(Task):
        records = source if isinstance(source, Input) else Input(source)
        out = Output(to)

        def process(self, record: Record[Any, V]) -> None:
            self.out.send(key(record), record.value, headers=record.headers)

    Repartition.name = f"to-{to.name}"
    return Repartition
