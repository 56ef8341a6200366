"""Drops the records of an input that have come before: the ids and numbers that were seen are state of the task.

An entry holds the time at which it was last needed to be new. It counts until event time is ``horizon_ms`` later, and
is deleted some time after that: each new key in ``CLEAN_ONE_IN`` makes the task look at the next ``CLEAN_KEYS`` keys.
The choice of these keys is by what is in state and record alone, so a task that processes its records again deletes
the same keys.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any
from zlib import crc32

from grete.api.jobs.graph import StageGraph
from grete.api.record import Record
from grete.api.serdes.serde import Serde, encode_error, functions_of, placing_in_store
from grete.api.topics.deduplicate import ById, Deduplicate, Range
from grete.errors import TaskError
from grete.execution.limits import CLEAN_KEYS, CLEAN_ONE_IN
from grete.execution.timing.floors import Floors
from grete.execution.timing.reserved_stores import META
from grete.execution.timing.timers import TimerQueue
from grete.stores.overlay.overlay import Overlay
from grete.stores.overlay.overlay_store import OverlayStore

_SIGN = 1 << 63  # a number is kept in 8 bytes with a sign


class Deduplicator:
    """The entries of one input. ``duplicates`` counts the records dropped since the process started."""

    def __init__(
        self,
        declared: Deduplicate[Any, Any],
        name: str,
        store: OverlayStore,
        meta: OverlayStore,
        timers: TimerQueue,
        floors: Floors,
    ) -> None:
        """``name`` is that of the store, whose cursor is in ``meta``; ``timers``, ``floors`` know the event time."""
        self.duplicates = 0
        self._horizon_ms = declared.horizon_ms
        self._store, self._meta = store, meta
        self._cursor_key = b"cleaned " + name.encode()
        kept = declared.store(name)
        self._encode, self._decode = functions_of(kept.value)
        self._key_of = _key if declared.key is None else partial(_key_of_parts, kept.key)
        self._now = _time_for(timers, floors, placing_in_store(kept.key))
        self.is_new: Callable[[Record[Any, Any]], bool]
        if isinstance(declared, ById):
            self._by_id = declared
            self.is_new = self._is_new_id
        else:
            self._by_sequence = declared
            self.is_new = self._is_new_number

    def around(self, process: Callable[[Any], object]) -> Callable[[Any], object]:
        """Return ``process`` for the records that are new."""
        is_new = self.is_new
        return lambda record: process(record) if is_new(record) else None

    def around_batch(self, process: Callable[[Any], object]) -> Callable[[Any], object]:
        """Return ``process_batch`` for the records that are new, if there are any."""
        is_new = self.is_new

        def process_new(records: Sequence[Record[Any, Any]]) -> object:
            fresh = [record for record in records if is_new(record)]
            return process(fresh) if fresh else None

        return process_new

    def _is_new_id(self, record: Record[Any, Any]) -> bool:
        key = self._key_of("id", self._by_id.id(record))
        seen = self._store.get(key)
        if seen is not None and not self._expired(key, seen):
            self.duplicates += 1
            return False
        self._store.put(key, self._encode(self._time_of(key, record)))
        self._clean(key)
        return True

    def _is_new_number(self, record: Record[Any, Any]) -> bool:
        declared = self._by_sequence
        key, number = self._key_of("session", declared.session(record)), declared.number(record)
        if type(number) is not int or not -_SIGN <= number < _SIGN:
            raise TaskError(f"session {key!r}: the number is {number!r}: need an int of 64 bits")
        time = self._time_of(key, record)
        ranges: tuple[Range, ...] = ()
        seen = self._store.get(key)
        known = seen is not None and not self._expired(key, seen)
        if seen is not None and known:
            before, ranges = self._decode(seen)
            time = max(time, before)
        wider = with_number(ranges, number)
        if wider is None:
            self.duplicates += 1
            return False
        if len(wider) - 1 > declared.gaps_max:
            raise TaskError(
                f"session {key!r}: number {number} would leave {len(wider) - 1} gaps after {wider[0][0]}, more than "
                f"gaps_max = {declared.gaps_max}: raise it, or look for the records that the producer has lost"
            )
        self._store.put(key, self._encode((time, wider)))
        if not known:
            self._clean(key)
        return True

    def _time_of(self, key: bytes, record: Record[Any, Any]) -> int:
        """Return the time from which the horizon counts: a late record is remembered as long as others."""
        return max(record.timestamp, self._now(key))

    def _expired(self, key: bytes, seen: bytes) -> bool:
        return int.from_bytes(seen[:8], signed=True) + self._horizon_ms <= self._now(key)

    def _clean(self, key: bytes) -> None:
        """Delete what has expired of the next keys, if it is this key's turn."""
        if crc32(key) % CLEAN_ONE_IN:
            return
        cursor = self._meta.get(self._cursor_key) or b""
        rows = list(islice(self._store.scan(cursor), CLEAN_KEYS))
        for each, seen in rows:
            if self._expired(each, seen):
                self._store.delete(each)
        self._meta.put(self._cursor_key, rows[-1][0] + b"\0" if len(rows) == CLEAN_KEYS else b"")


def _time_for(timers: TimerQueue, floors: Floors, placing: Callable[[bytes], bytes] | None) -> Callable[[bytes], int]:
    """Return the function that tells the event time for a key of the store."""

    def time_for(key: bytes) -> int:
        if not floors.kept:
            return timers.now
        return max(timers.now, floors.of(key if placing is None else placing(key)))

    return time_for


def with_number(ranges: Sequence[Range], number: int) -> tuple[Range, ...] | None:
    """Return the ranges with a number added, those that it joins as one; None if a range has it already."""
    at = len(ranges)
    while at and ranges[at - 1][0] > number:
        at -= 1
    if at and number <= ranges[at - 1][1]:
        return None
    first = last = number
    before, after = at, at
    if at and ranges[at - 1][1] == number - 1:
        first, before = ranges[at - 1][0], at - 1
    if at < len(ranges) and ranges[at][0] == number + 1:
        last, after = ranges[at][1], at + 1
    assert not before or ranges[before - 1][1] + 1 < first, f"{first} belongs to the range {ranges[before - 1]}"
    return (*ranges[:before], (first, last), *ranges[after:])


def deduplicators_of(
    stage: StageGraph, overlay: Overlay, timers: TimerQueue, floors: Floors
) -> dict[str, Deduplicator]:
    """Return topic → what drops the repeats of that input, for the inputs that declare it."""
    found, ids, meta = {}, stage.store_ids(), overlay.store(META)
    for declared in stage.inputs.values():
        if declared.deduplicate is not None:
            topic = declared.topic.name
            name = stage.seen[topic].name
            found[topic] = Deduplicator(declared.deduplicate, name, overlay.store(ids[name]), meta, timers, floors)
    return found


def _key(what: str, found: object) -> bytes:
    """Return the bytes of an id or a session. Raises TaskError if it is empty, or neither str nor bytes."""
    key = found.encode() if isinstance(found, str) else found
    if not isinstance(key, bytes) or not key:
        raise TaskError(f"deduplicate: the record's {what} is {found!r}: need a str or bytes that is not empty")
    return key


def _key_of_parts(serde: Serde[Any], what: str, found: object) -> bytes:
    """Return the bytes of an id or a session that has several parts. Raises SerdeError."""
    try:
        return functions_of(serde)[0](found)
    except Exception as error:
        raise encode_error(serde, found, error, f"deduplicate: the record's {what}: ") from error
