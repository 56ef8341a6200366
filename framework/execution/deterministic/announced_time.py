"""Logical time (D1): the event time that a task tells its consumers at moments of it (E2), and the clock of loops."""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from grete.core.deterministic.logical_watermarks import NEVER, step_at
from grete.core.events import Advance
from grete.execution.deterministic.outputs import LogicalOutputs, TimeAndSource
from grete.execution.task_code.record_times import part_of
from grete.execution.timing.event_time import AFTER_ALL, BEFORE_ALL
from grete.execution.timing.reserved_stores import EVENT_TIME
from grete.protocol.record_batch import RecordBatch

_TOLD = EVENT_TIME + b"told "  # in META, before a stream's name
_ENTRY = struct.Struct(">q?q")  # event time told last, whether the task was idle, when the next is due
_AGAIN = AFTER_ALL, False  # in place of what was told last: no watermark is like it, so the next one is told


class AnnouncedTime:
    """Collects what consumers are to be told. What was told is state: a successor must not tell it again otherwise.

    Event time that changes at logical time t is told as of the end of the step that t lies in, once that has passed. A
    task that was told to be idle, or to have ended, tells it again behind a step in which records or timers came: what
    they have sent makes it neither for its consumers.
    """

    def __init__(self, topics: Sequence[str], watermark: Callable[[], tuple[int, bool] | None]) -> None:
        """``topics``: the streams to consumers that go by event time; ``watermark``: the event time to tell now."""
        self.due = NEVER  # µs
        self._topics = tuple(topics)
        self._watermark = watermark
        self._told = BEFORE_ALL, False
        self._advances: list[Advance] = []

    def load(self, get: Callable[[bytes], bytes | None]) -> None:
        """Go on from the state. If a stream was not told yet, as that of a stage added last, tell all of them again."""
        self._told, self.due, self._advances = (BEFORE_ALL, False), NEVER, []
        entries = [entry for topic in self._topics if (entry := get(_key(topic))) is not None]
        if entries and len(entries) == len(self._topics):
            watermark, idle, self.due = _ENTRY.unpack(entries[0])
            self._told = watermark, idle

    def save(self) -> dict[bytes, bytes]:
        """Return the state."""
        entry = _ENTRY.pack(*self._told, self.due)
        return {_key(topic): entry for topic in self._topics}

    @staticmethod
    def is_due(key: bytes, entry: bytes) -> bool:
        """Tell whether an entry of a saved state says of event time that was still to be told."""
        return key.startswith(_TOLD) and _ENTRY.unpack(entry)[2] != NEVER

    @staticmethod
    def due_in(topic: str, get: Callable[[bytes], bytes | None]) -> int:
        """Return the logical time in µs as of which a saved state is still to tell a stream of event time, or NEVER."""
        entry = get(_key(topic))
        return NEVER if entry is None else int(_ENTRY.unpack(entry)[2])

    def changed(self, t: int) -> None:
        """Note that event time may have changed at logical time ``t``; all that was due before has been told."""
        if self._topics:
            self.due = NEVER if self._watermark() == self._told else step_at(t)

    def acted(self, t: int) -> None:
        """Note that records, or timers by the clock, of logical time ``t`` may have sent something."""
        if self._told[1]:
            self._told = _AGAIN
        if self._told == _AGAIN:
            self.due = step_at(t)

    def waits(self, last_t: int) -> None:
        """Note that a checkpoint closes before the event time of a decision, which ends at ``last_t``, is known."""
        if self._topics:
            self.due = step_at(last_t)

    def opens(self, first_t: int, last_t: int, watermark: tuple[int, bool]) -> None:
        """Note a decision; what was due before has been told. ``watermark``: the event time once an input goes on.

        If it ends in a later step than it begins in, consumers learn in the first one that the task is not idle any
        more, and has not ended: they have some of its records then, and the others are not to be late.
        """
        step, quiet = step_at(first_t), self._told[1] or self._told == _AGAIN
        if step_at(last_t) == step or not (quiet or self.due == step):
            return
        if watermark != self._told:
            self._advances.append(Advance(step, *watermark))
        self._told, self.due = _AGAIN if quiet else watermark, NEVER

    def pass_to(self, t: int) -> None:
        """Tell what is due by logical time ``t``: before anything of a later time is processed."""
        watermark = self._watermark()
        if self.due <= t and watermark is not None:
            self._advances.append(Advance(self.due, *watermark))
            self._told, self.due = watermark, NEVER

    def take(self) -> list[Advance]:
        """Return and forget the advances to send."""
        advances, self._advances = self._advances, []
        times = [each.t for each in advances]
        assert times == sorted({*times}), f"event time is told out of the order of its moments: {times}"
        return advances

    def parts(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield records in parts, each of one step; all at once if there is nothing to tell."""
        return by_step(batch) if self._topics else iter((batch,))


def by_step(batch: RecordBatch) -> Iterator[RecordBatch]:
    """Cut records where their times pass a step: so what is told of event time does not depend on other cuts."""
    assert batch.logical is not None
    times, begin = batch.logical[0], 0
    while step_at(times[begin]) < times[-1]:
        end = bisect_right(times, step_at(times[begin]), begin)
        yield part_of(batch, begin, end)
        begin = end
    yield batch if begin == 0 else part_of(batch, begin, len(times))


def _key(topic: str) -> bytes:
    return _TOLD + topic.encode()


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
