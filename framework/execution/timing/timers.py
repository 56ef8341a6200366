"""The timers of one task: durable in a reserved store, in memory a heap of what may be due.

The store is the truth. The heap may hold more (timers cancelled or undone): what is not in the store is passed over.
A timer is in the heap once, however often it is set. Once most of the heap is not in the store, what is goes to a new
heap, a few timers behind each batch: no call goes through all of them (A8), and they stay as few as they were (A9).

Timers of event time and those of the wall clock are in one store, and each has a queue of its own.
"""

import struct
from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from grete.errors import TaskError
from grete.execution.limits import ENDLESS_TIMERS, FOLLOWING_TIMERS, GONE_TIMERS_MIN, MOVED_TIMERS
from grete.execution.timing.event_time import BEFORE_ALL
from grete.quoting import key_text
from grete.stores.overlay.overlay_store import OverlayStore

_AT = struct.Struct(">Q")  # with the sign bit flipped: sorts as the numbers do
_SIGN = 1 << 63  # flipped, the bytes of negative times sort before those of positive ones
NEVER = 1 << 63  # ms: after every INT64
WALL = "@wall"  # the owner of wall-clock timers: no window has this name
_OF_WALL = bytes((len(WALL),)) + WALL.encode()


class DueTimer(NamedTuple):
    """A timer to fire. ``owner``: the name of a window; of the task's own Timers() it is empty, or WALL."""

    at: int
    owner: str
    key: str


class _Chain(NamedTuple):
    """Timers that fire one after another, each set by the one before for a time that was due."""

    since: int  # the time of the first
    length: int = 1
    back: int = 0  # of the last ones: each was set for a time that had fired


class TimerQueue:
    """Schedules, cancels and pops timers. ``now`` is the task's event time, ``due`` the least ``at`` in the heap."""

    def __init__(self, store: OverlayStore, *, wall: bool = False) -> None:
        """``wall``: of the wall clock alone; else of all owners but WALL."""
        self._wall = wall
        self.now = BEFORE_ALL
        self.due = NEVER
        self._store = store
        self._heap: list[bytes] = []
        self._left: list[bytes] = []  # the heap before, of which the timers that are still set go to the other
        self._in_heap: set[bytes] = set()  # in either
        self._touched: set[bytes] = set()  # set or cancelled since ``settle``
        self._gone: set[bytes] = set()  # in the heap and, when last settled, not in the store
        self._fired_to: int | None = None  # while timers fire one after another: the greatest time of them
        self._chain = _Chain(BEFORE_ALL)  # of which the timer that fires is the last
        self._chains: dict[bytes, _Chain] = {}  # timer that is set → the chain that it goes on

    def reload(self, now: int) -> None:
        """Start from the restored state; ``now`` is its event time."""
        self.now = now
        self._heap, self._left = [key for key, _ in self._store.scan() if self._is_ours(key)], []  # sorted: a heap
        self._in_heap = set(self._heap)
        self._touched, self._gone = set(), set()
        self._fired_to, self._chains = None, {}
        self._set_due()

    def schedule(self, owner: str, at: int, key: str = "") -> None:
        """Set a timer; one that is set already stays one. Raises TaskError on a bad time or key."""
        raw = _encode(owner, at, key)
        if self._store.get(raw) is None:
            self._store.put(raw, b"")
            self._touched.add(raw)
            if self._fired_to is not None and at <= self.now:
                since, length, back = self._chain
                self._chains[raw] = _Chain(since, length + 1, back + 1 if at <= self._fired_to else 0)
            if raw not in self._in_heap:
                self._in_heap.add(raw)
                heappush(self._heap, raw)
                self.due = min(self.due, at)

    def cancel(self, owner: str, at: int, key: str = "") -> None:
        """Remove a timer if it is set. Raises TaskError on a bad time or key."""
        raw = _encode(owner, at, key)
        if self._store.get(raw) is not None:
            self._store.delete(raw)
            self._touched.add(raw)

    def settle(self) -> None:
        """Note which timers of the last records are gone; no record is at work. Behind each batch: it takes as long."""
        assert len(self._heap) + len(self._left) == len(self._in_heap), "a timer is in the heap twice, or is lost"
        assert len(self._gone) <= len(self._in_heap), f"{len(self._gone)} timers are gone of {len(self._in_heap)}"
        if self._touched:
            touched, self._touched = self._touched, set()
            for raw in touched & self._in_heap:
                (self._gone.add if self._store.get(raw) is None else self._gone.discard)(raw)
            self._move(2 * len(touched))  # faster than timers come
        if self._left:
            self._move(MOVED_TIMERS)
        elif len(self._gone) > max(GONE_TIMERS_MIN, len(self._in_heap) // 2):
            self._left, self._heap = self._heap, []

    def _move(self, count: int) -> None:
        """Move timers that are set to the new heap, and drop the others."""
        left, gone = self._left, self._gone
        for _ in range(min(count, len(left))):
            raw = left.pop()  # of a heap the last one: the others still are a heap
            if raw in gone:
                gone.remove(raw)
                self._in_heap.remove(raw)
            else:
                heappush(self._heap, raw)
        self._set_due()

    def pop_next(self) -> DueTimer | None:
        """Remove and return the first timer that is due, one of many that fire one after another; None ends that.

        Raises TaskError in a row of timers that set one another for times that have fired, as it would never end, and
        in one that goes on in steps too small for the time to which it is to come.
        """
        due = self.pop()
        if due is None:
            self._fired_to, self._chains = None, {}
            return None
        chain = self._chains.pop(_encode(due.owner, due.at, due.key), None) if self._chains else None
        self._chain = chain = chain or _Chain(due.at)
        self._fired_to = due.at if self._fired_to is None else max(self._fired_to, due.at)
        if chain.back > ENDLESS_TIMERS:
            raise TaskError(
                f"{ENDLESS_TIMERS} timers in a row were each set by the last one for a time that had fired already, so "
                f"they would fire for ever: the last is at {due.at}, key {key_text(due.key)}. Set it for a later "
                "time, or do its work at once"
            )
        if chain.length > ENDLESS_TIMERS and not chain.back:
            self._refuse_too_many(due, chain)
        return due

    def _refuse_too_many(self, due: DueTimer, chain: _Chain) -> None:
        step = (due.at - chain.since) / (chain.length - 1)
        following = (self.now - due.at) / step
        if following > FOLLOWING_TIMERS:
            raise TaskError(
                f"{chain.length} timers in a row were each set by the one before, {step:,.1f} ms apart, and about "
                f"{int(following):,} more would follow before the next record: the last is at {due.at}, key "
                f"{key_text(due.key)}, and event time is at {self.now}. Let on_timer set the next one for a time "
                "behind ctx.event_time, or further apart; if a record has moved time too far, see whether its "
                "timestamp is in milliseconds"
            )

    def pop(self) -> DueTimer | None:
        """Remove and return the first timer that is due, or None."""
        if not self.is_due():
            return None
        raw = self._pop_first()
        self._store.delete(raw)
        return _decode(raw)

    def is_due(self) -> bool:
        """Whether a timer that is set is due. What is first in the heap and not set any more is dropped."""
        return self._drop_gone(self.now)

    def _drop_gone(self, until: int) -> bool:
        """Drop timers up to a time that are not set any more, up to the first one that is; return whether there is."""
        while self.due <= until:
            if self._store.get(self._first()[0]) is not None:
                return True
            self._pop_first()
        return False

    def _pop_first(self) -> bytes:
        raw = heappop(self._first())
        self._in_heap.discard(raw)
        self._gone.discard(raw)
        self._set_due()
        return raw

    def pop_all(self, now: int) -> Iterator[DueTimer]:
        """Remove and yield the timers up to ``now`` that are set at this moment, but for those cancelled meanwhile.

        What is set meanwhile stays, also for a time that has passed: it is a function of what the store has.
        """
        due: list[bytes] = []
        while self.due <= now:
            due.append(self._pop_first())
        for raw in due:
            if self._store.get(raw) is not None:
                self._store.delete(raw)
                yield _decode(raw)

    def move_to_next(self, until: int) -> bool:
        """Move time to the first timer that is set, if that is at most ``until``; return whether there is one."""
        found = self._drop_gone(until)
        if found:
            self.now = max(self.now, self.due)
        return found

    def last(self, silent: Collection[str]) -> tuple[int | None, int | None]:
        """Return the times of the last timer and of the last one of a window; None: there is none. Reads all.

        Timers of the owners in ``silent`` do not count.
        """
        last = last_of_windows = None
        for raw, _ in self._store.scan():
            at, owner, _ = _decode(raw)
            if owner not in silent and self._is_ours(raw):
                last, last_of_windows = at, at if owner else last_of_windows
        return last, last_of_windows

    @property
    def waiting(self) -> int:
        """Return the number of timers that are set, as of the last ``settle``."""
        return len(self._in_heap) - len(self._gone)

    def _is_ours(self, raw: bytes) -> bool:
        return raw.startswith(_OF_WALL, _AT.size) == self._wall

    def _first(self) -> list[bytes]:
        """Return the heap with the first timer; an empty one if there is none."""
        heap, left = self._heap, self._left
        return left if left and not (heap and heap[0] < left[0]) else heap

    def _set_due(self) -> None:
        first = self._first()
        self.due = _AT.unpack_from(first[0])[0] - _SIGN if first else NEVER


def _encode(owner: str, at: int, key: str) -> bytes:
    """Return at, length of the owner's name, owner, key: sorted by time, then owner, then key."""
    if type(at) is not int or not -_SIGN <= at < _SIGN:
        raise TaskError(f"timer at {at!r}: need an int, milliseconds since 1970, of 64 bits with its sign")
    if not isinstance(key, str):
        raise TaskError(f"timer key {key!r}: need a str")
    name = owner.encode()
    return _AT.pack(at + _SIGN) + bytes((len(name),)) + name + key.encode()


def _decode(raw: bytes) -> DueTimer:
    """Undo ``_encode``."""
    name_end = 9 + raw[8]
    return DueTimer(_AT.unpack_from(raw)[0] - _SIGN, raw[9:name_end].decode(), raw[name_end:].decode())
