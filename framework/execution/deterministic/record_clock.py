"""The clock of the loops over records in deterministic mode: logical time (D1)."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from grete.execution.deterministic.outputs import LogicalOutputs, TimeAndSource
from grete.protocol.record_batch import RecordBatch

T = TypeVar("T")


class LogicalTime:
    """Sets the logical time that outputs inherit: a RecordClock."""

    def __init__(self, outputs: LogicalOutputs, fire_by: Callable[[int], None] | None = None) -> None:
        """``fire_by`` runs wall-clock timers up to a logical time in µs; None: the task has none."""
        self._outputs, self._fire_by = outputs, fire_by

    def each(self, batch: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""
        assert batch.logical is not None
        outputs, times = self._outputs, zip(*batch.logical, strict=True)
        for item, at in zip(items, times if self._fire_by is None else map(self._fired, times), strict=False):
            outputs.at = at
            yield item

    def _fired(self, at: TimeAndSource) -> TimeAndSource:
        """Return the logical time of a record, once the timers before it have fired."""
        assert self._fire_by is not None
        self._fire_by(at[0] - 1)
        return at

    def whole(self, batch: RecordBatch) -> None:
        """Move time to the last record of a batch."""
        assert batch.logical is not None
        if self._fire_by is not None:
            self._fire_by(batch.logical[0][0] - 1)
        self._outputs.at = batch.logical[0][-1], batch.logical[1][-1]

    def at(self, batch: RecordBatch, index: int) -> Callable[[], None]:
        """Move time to one record of a batch, from wherever it is; return what moves it back."""
        assert batch.logical is not None
        outputs, before = self._outputs, self._outputs.at
        outputs.at = batch.logical[0][index], batch.logical[1][index]
        return lambda: setattr(outputs, "at", before)
