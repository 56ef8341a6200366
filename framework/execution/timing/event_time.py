"""A task's event time: the minimum over its sources of what each has reached (E1). Pure: no clock, no I/O.

A source is a channel (producer × stream partition) or an external partition. Of a channel counts the watermark that its
producer sent last; of an external partition the highest timestamp read. An idle source does not count; if all are idle,
time is at the highest that one has reached, whichever became idle last. Once all have ended, because the job is
drained, what waits for a later time is due (E7); a source that goes on after that has not ended any more.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Iterator

from grete.core.graph.task_topology import TaskWiring
from grete.execution.timing.reserved_stores import EVENT_TIME
from grete.protocol.ids import TopicPartition

TimeSource = tuple[int, TopicPartition]  # producer id, or OUTSIDE

OUTSIDE = -1  # the producer of an external partition
BEFORE_ALL = -(1 << 63)  # what a source has reached before its first record or watermark
AFTER_ALL = (1 << 63) - 1  # as late as a timestamp can be: it holds nothing back
_ENTRY = struct.Struct(">iqb")  # producer, reached, idle: 1, _ENDED or _GOES_ON
_ENDED = 2  # in the idle byte: idle, and more
_GOES_ON = 3  # likewise: ended, but records have come since. Releases before take it for idle: the next end is one, too


class EventTime:
    """The time that each source has reached, in ms. ``now`` never goes back.

    While records of one source are processed (``begin`` to ``end``), ``now`` may rise with ``highest``, their highest
    timestamp, up to ``ceiling``: what the other sources have reached.
    """

    def __init__(self, watermarked: Iterable[TimeSource], read: Iterable[TimeSource], *, logged: bool = False) -> None:
        """``watermarked``: sources that send watermarks; ``read``: those whose records say how far they are.

        ``logged``: which of these are idle is not the clock's word but the log's, and so state.
        """
        self.now = BEFORE_ALL
        self.ceiling = self.highest = BEFORE_ALL
        self._under_way: TimeSource | None = None  # of those read, the one whose records are processed
        self._read = dict.fromkeys(read)  # in their order: the saved bytes must not depend on a hash
        self._reached = dict.fromkeys([*watermarked, *self._read], BEFORE_ALL)
        self._idle: set[TimeSource] = set()
        self._ended: set[TimeSource] = set()  # of those that are idle
        self._logged = logged
        self.goes_on = False  # all had ended, and records have come of which no watermark has told yet

    @property
    def idle(self) -> bool:
        """Whether every source is idle."""
        return len(self._idle) == len(self._reached)

    @property
    def ended(self) -> bool:
        """Whether every source has ended."""
        return len(self._ended) == len(self._reached)

    def begin(self, source: TimeSource) -> None:
        """Records of ``source`` follow: it is not idle. Those of a channel do not move time, its watermarks do."""
        assert self._under_way is None, f"records of {source} begin within those of {self._under_way}"
        self._idle.discard(source)
        self._ended.discard(source)
        self._under_way = source if source in self._read else None
        if self._under_way is not None:
            self.highest, self.ceiling = self._reached[source], self._least(source)
        else:
            self.highest, self.ceiling = BEFORE_ALL, BEFORE_ALL

    def end(self, source: TimeSource) -> None:
        """The records of ``source`` are processed."""
        if source in self._read:
            assert self._under_way in (source, None), f"{source} ends within {self._under_way}"
            self._under_way, self._reached[source] = None, max(self._reached[source], self.highest)
            self._advance()

    def cut(self) -> None:
        """The rest of the records under way comes again: those so far count as if they came alone (E10)."""
        if self._under_way is not None:
            self._reached[self._under_way] = max(self._reached[self._under_way], self.highest)
            self._under_way = None

    def watermark(self, source: TimeSource, watermark: int, *, idle: bool) -> None:
        """Take a watermark of a channel; one that is lower than a former one changes nothing."""
        self.watermarks([(source, watermark, idle)])

    def watermarks(self, marks: Iterable[tuple[TimeSource, int, bool]]) -> None:
        """Take watermarks of several channels, which are true at one time, as one."""
        for source, watermark, idle in marks:
            if watermark == AFTER_ALL:
                self._idle.add(source)
                self._ended.add(source)
            elif watermark >= self._reached[source]:
                self._reached[source] = watermark
                self._ended.discard(source)
                (self._idle.add if idle else self._idle.discard)(source)
        self._advance()

    def set_idle(self, source: TimeSource, *, ended: bool = False) -> None:
        """Note that nothing comes from ``source`` for now: it holds event time back no more until its next record."""
        if source not in self._reached:
            return  # it tells no time
        self._idle.add(source)
        if ended:
            self._ended.add(source)
        self._advance()

    def catch_up(self, now: int) -> None:
        """Let time be at least ``now``, whatever the sources have reached: all have ended, or a live run was there."""
        self.now = max(self.now, now)

    def save(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the state as (key, value): one entry for each partition."""
        assert self._ended <= self._idle, f"sources have ended, and are not idle: {self._ended - self._idle}"
        assert self._idle <= self._reached.keys(), f"sources that tell no time: {self._idle - self._reached.keys()}"
        entries: dict[TopicPartition, list[bytes]] = {}
        for source, reached in self._reached.items():
            # of those read, the clock of this process decided, unless that is logged; but not that they have ended
            idle = int(source in self._idle and (self._logged or source not in self._read))
            if source in self._ended:
                idle = _GOES_ON if self.goes_on else _ENDED
            if source == self._under_way:  # others of its records wait for timers that are due (E10)
                reached = max(reached, self.highest)  # noqa: PLW2901  # as if they came in a batch of their own
            entries.setdefault(source[1], []).append(_ENTRY.pack(source[0], reached, idle))
        for partition, entry in entries.items():
            yield _key(partition), b"".join(entry)

    def load(self, now: int, get: Callable[[bytes], bytes | None]) -> None:
        """Go back to a saved state; ``now`` is the time that was saved.

        A source that is not in the state begins afresh.
        """
        self.now, self.goes_on, self._under_way = now, False, None
        self._idle, self._ended = set(), set()
        for source in self._reached:
            self._reached[source] = BEFORE_ALL
        for partition in {partition for _, partition in self._reached}:
            for producer, reached, idle in _ENTRY.iter_unpack(get(_key(partition)) or b""):
                source = producer, partition
                if source in self._reached:
                    self._reached[source] = reached
                    if idle:
                        self._idle.add(source)
                    if idle >= _ENDED:
                        self._ended.add(source)
                    self.goes_on |= idle == _GOES_ON

    def _least(self, besides: TimeSource | None = None) -> int:
        """Return the time that every source but idle ones, and ``besides``, has reached; AFTER_ALL if there is none."""
        reached = self._reached
        if not self._idle:
            return min((reached[source] for source in reached if source != besides), default=AFTER_ALL)
        return min(
            (reached[source] for source in reached if source != besides and source not in self._idle), default=AFTER_ALL
        )

    def _advance(self) -> None:
        self.now = max(self.now, max(self._reached.values()) if self.idle else self._least())


def event_time_of(task: TaskWiring, silent: Collection[str] = ()) -> EventTime | None:
    """Return the event time of a task, None if nothing goes by it there or behind it (E1).

    ``silent``: the topics from outside that tell no time.
    """
    if not task.keeps_time:
        return None
    external = [(OUTSIDE, partition) for partition in task.external if partition.topic not in silent]
    return EventTime(task.channels, external, logged=task.deterministic)


def _key(partition: TopicPartition) -> bytes:
    return EVENT_TIME + str(partition).encode()
