"""The common parts of all calls of a task's methods: state, outputs, time, and the undo of a call."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from grete.execution.job_task import JobTask
from grete.execution.records.outputs import Outputs
from grete.execution.records.reading import Reading
from grete.execution.sinks.outbox import Outbox
from grete.execution.timing.event_time import EventTime
from grete.execution.timing.timers import TimerQueue
from grete.protocol.record_batch import RecordBatch
from grete.stores.overlay.overlay import Overlay

T = TypeVar("T")


class RecordClock(Protocol):
    """A time that each record has, and that the task is to be at before the record is processed."""

    def each(self, batch: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""

    def whole(self, batch: RecordBatch) -> None:
        """Move time to a batch that is processed in one turn."""

    def at(self, batch: RecordBatch, index: int) -> Callable[[], None]:
        """Move time to one record of a batch, from wherever it is; return what moves it back."""


@dataclass(slots=True)
class FailureCounts:
    """Records, timers and windows that error policies have dropped since the process started, and the last error."""

    count: int = 0
    last: str = ""
    letters: int = 0  # what was sent to a dead-letter topic instead

    def add(self, text: str) -> None:
        """Count a record, timer or window."""
        self.count, self.last = self.count + 1, text


@dataclass(frozen=True, slots=True)
class Site:
    """The common part of a task's calls. ``fire`` runs timers that are due, and tells whether none is left.

    It is None if the task declares none.
    """

    task: JobTask
    overlay: Overlay
    outputs: Outputs
    outbox: Outbox
    timers: TimerQueue
    fire: Callable[[], bool] | None
    time: EventTime | None  # None: nothing here or behind the task goes by event time
    now: Callable[[], int]  # the time in ms that user code sees
    clock: RecordClock | None = None  # logical time in deterministic mode (D1)
    reading: Reading = field(default_factory=Reading)
    failed: FailureCounts = field(default_factory=FailureCounts)
    out_of_order_ms: int = 0  # of the input: its records hold event time back by that

    def advance(self, timestamp: int) -> bool:
        """Let event time follow a record's timestamp as far as the other sources allow (E1), and fire what is due.

        Return whether timers are left, so that the next record waits (E10).
        """
        time, timers = self.time, self.timers
        if time is None:
            return False
        timestamp -= self.out_of_order_ms
        time.highest = max(time.highest, timestamp)
        reached = min(timestamp, time.ceiling)
        if reached > timers.now:
            time.now = timers.now = reached
        return self.fire is not None and timers.due <= timers.now and not self.fire()

    @property
    def counts(self) -> dict[str, int]:
        """Records in, records out and dead letters since the process started; after a rollback some count again."""
        out = self.outputs.sent + self.outbox.sent_to.total()
        return {"in": self.reading.records, "out": out, "dead letters": self.failed.letters}

    @property
    def sent_to(self) -> Mapping[str, int]:
        """Topic of the log, or "sink:" and an Output's attribute → records sent since the process started."""
        return {**self.outputs.sent_to, **{f"sink:{name}": count for name, count in self.outbox.sent_to.items()}}

    def mark(self) -> None:
        """Begin to remember what one call does."""
        self.overlay.begin_undo()
        self.outputs.mark()
        self.outbox.mark()

    def undo(self) -> None:
        """Take back what was done since the mark. Timers are in the overlay: their heap may hold more than is set."""
        self.overlay.undo()
        self.outputs.rollback()
        self.outbox.rollback()

    def keep(self) -> None:
        """Keep what was done since the mark."""
        self.overlay.end_undo()
