"""The clock of the loops over records in deterministic mode: logical time (D1), and first come the timers before it."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from framework.execution.deterministic.outputs import LogicalOutputs
from protocol.record_batch import RecordBatch

T = TypeVar("T")


class LogicalTime:
    """Sets the logical time that outputs inherit: a RecordClock of a task without timers."""

    def __init__(self, outputs: LogicalOutputs) -> None:
        self._outputs = outputs

    def each(self, batch: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""
        outputs = self._outputs
        for item, at in zip(items, _times(batch), strict=False):
            outputs.at = at
            yield item

    def whole(self, batch: RecordBatch) -> None:
        """Move time to the last record of a batch."""
        self._outputs.at = _last(batch)


class TimedLogicalTime:
    """As LogicalTime, of a task with timers or windows: those that are due before a record fire before it."""

    def __init__(self, outputs: LogicalOutputs, reach: Callable[[int], None]) -> None:
        """``reach`` advances time to a µs, and fires the timers that are due by then."""
        self._outputs, self._reach = outputs, reach

    def each(self, batch: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""
        outputs, reach = self._outputs, self._reach
        for item, at in zip(items, _times(batch), strict=False):
            reach(at[0] - 1)
            outputs.at = at
            yield item

    def whole(self, batch: RecordBatch) -> None:
        """Fire the timers that are due before a batch, then move time to its last record."""
        self._reach(next(_times(batch))[0] - 1)
        self._outputs.at = _last(batch)


def _times(batch: RecordBatch) -> Iterator[tuple[int, int]]:
    """Yield the logical time of each record: (t in µs, source id)."""
    assert batch.logical is not None
    return zip(*batch.logical, strict=True)


def _last(batch: RecordBatch) -> tuple[int, int]:
    assert batch.logical is not None
    return batch.logical[0][-1], batch.logical[1][-1]
