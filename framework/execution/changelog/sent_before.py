"""Looks for what a task has sent in an earlier life: its changelog then tells less than its consumers know (C1)."""

from grete.core.graph.task_topology import TaskWiring
from grete.errors import OffsetOutOfRange
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.envelope import decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition


def sent_before(log: LogReader, wiring: TaskWiring, *, aligned: bool) -> TopicPartition | None:
    """Return a partition into which the task has sent; None: there is none, or nothing of it is left.

    A trimmed one counts if its consumer commits after the markers of all its producers (A6), or has this one alone.
    """
    aligns = {*wiring.outputs} - wiring.merged_outputs if aligned and not wiring.deterministic else set()
    bounds = log.all_bounds(wiring.outputs)
    for partition in wiring.outputs:
        while True:
            start, end = bounds[partition]
            if start > 0 and (wiring.tasks == 1 or partition in aligns):
                return partition
            try:
                if any(_is_of(wiring.producer, row.value or b"") for row in rows(log, partition, start, end)):
                    return partition
                break
            except OffsetOutOfRange:
                bounds |= log.all_bounds([partition])  # its consumer has trimmed it meanwhile: look at what is left
    return None


def _is_of(producer: int, message: bytes) -> bool:
    try:
        return decode_header(message).producer == producer
    except DecodeError:
        return False  # its consumer says what it thinks of it
