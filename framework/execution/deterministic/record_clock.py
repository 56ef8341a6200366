"""The clock of the loops over records in deterministic mode: logical time (D1), and first come the timers before it."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from framework.execution.deterministic.outputs import LogicalOutputs
from framework.execution.process_loops import RecordBatch

T = TypeVar("T")


class LogicalTime:
    """Sets the logical time that outputs inherit: a RecordClock of a task without timers."""

    def __init__(self, outputs: LogicalOutputs) -> None:
        self._outputs = outputs

    def each(self, columns: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""
        outputs = self._outputs
        for item, at in zip(items, columns.logical, strict=False):
            outputs.at = at
            yield item

    def whole(self, columns: RecordBatch) -> None:
        """Move time to the last record of a batch."""
        self._outputs.at = columns.logical[-1]


class TimedLogicalTime:
    """As LogicalTime, of a task with timers or windows: those that are due before a record fire before it."""

    def __init__(self, outputs: LogicalOutputs, reach: Callable[[int], None]) -> None:
        """``reach`` advances time to a µs, and fires the timers that are due by then."""
        self._outputs, self._reach = outputs, reach

    def each(self, columns: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""
        outputs, reach = self._outputs, self._reach
        for item, at in zip(items, columns.logical, strict=False):
            reach(at[0] - 1)
            outputs.at = at
            yield item

    def whole(self, columns: RecordBatch) -> None:
        """Fire the timers that are due before a batch, then move time to its last record."""
        self._reach(columns.logical[0][0] - 1)
        self._outputs.at = columns.logical[-1]
