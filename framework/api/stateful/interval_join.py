"""A join of two streams within an interval of event time: both sides are kept, by time, as long as they can match."""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, ClassVar, TypeVar

from grete.api.serdes.serde import Codec, Serde, functions_of, in_each_version, topic_serde
from grete.api.stateful.declaration import TIME_MAX, TIME_MIN, TIMED_KEY, KeySlice, ResultLetter, timed_key_serde
from grete.api.stateful.joins import How, Join, Pair, give_pair
from grete.api.stateful.key_times import KeyTimes, has
from grete.api.stateful.spans import check_spans
from grete.api.store import Store
from grete.api.topics.topic import Errors
from grete.errors import ConfigError, TaskError
from grete.quoting import key_text

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")
V = TypeVar("V")

LEFT, RIGHT = 0, 1
_LENGTH = struct.Struct(">I")
_ROWS = 1_000  # of one key that are in memory while they are deleted
_STEPS = 4  # what is of no use any more is deleted within this part of the interval: more of them are more timers

Kept = tuple[bool, list[V]]  # the records of one key, side and ms: whether they have a match, and their values


@in_each_version
def _kept_serde(value: Serde[V]) -> Serde[Kept[V]]:
    encode_value, decode_value = functions_of(value)

    def encode(kept: Kept[V]) -> bytes:
        raws = [encode_value(each) for each in kept[1]]
        return b"".join((bytes((kept[0],)), *(part for raw in raws for part in (_LENGTH.pack(len(raw)), raw))))

    def decode(data: bytes) -> Kept[V]:
        values, at = list[V](), 1
        while at < len(data):
            end = at + 4 + _LENGTH.unpack_from(data, at)[0]
            values.append(decode_value(data[at + 4 : end]))
            at = end
        return data[0] == 1, values

    return Codec(f"kept({value.name})", (encode, decode), schema=value)


class IntervalJoin(Join[K, L, R]):
    """A class attribute of a task: a join of two streams within an interval of event time.

    Two records of a key match if left time - ``before_ms`` <= right time <= left time + ``after_ms``. One of the two
    bounds may be negative: after_ms=600_000, before_ms=-60_000 is "one to ten minutes later". ``on_join`` gets each
    Pair once, when the second of its records comes. With how="left" it also gets each left record without a match, once
    event time (see Timers) has passed the end of its interval by more than ``grace_ms``; with "outer" the right ones,
    too. A record is late if event time has passed its own time by more than ``grace_ms``: it is dropped, counted in
    ``late``, and ``put_left`` and ``put_right`` return False.

    ``errors`` says what becomes of a record without a match if ``on_join`` fails: as for an Input. A pair that fails
    fails as part of the record that completes it.

    A record is kept until no other that is not late can match it, and up to a quarter of the interval longer.
    """

    key_at: ClassVar[KeySlice] = TIMED_KEY

    def __init__(
        self,
        name: str,
        *,
        before_ms: int,
        after_ms: int,
        key: Serde[K],
        left: Serde[L],
        right: Serde[R],
        how: How = "inner",
        grace_ms: int = 0,
        matches_max: int = 10_000,
        errors: Errors = "fail",
    ) -> None:
        """Declare the join; it has the stores NAME-left and NAME-right. Raises ConfigError on an interval that is none.

        ``matches_max`` bounds the matches of one record, and the records of one key, side and ms: more are an error of
        the record (see Input).
        """
        super().__init__(name, key, left, right, how)
        check_spans(f"join {name!r}", before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms)
        if before_ms + after_ms < 0 or grace_ms < 0 or matches_max < 1:
            raise ConfigError(
                f"join {name!r}: before_ms = {before_ms}, after_ms = {after_ms}, grace_ms = {grace_ms}, matches_max = "
                f"{matches_max}: need before_ms + after_ms >= 0, grace_ms >= 0, matches_max >= 1"
            )
        self.kind = f"{how} interval join"
        self.sizes = {"before_ms": before_ms, "after_ms": after_ms, "grace_ms": grace_ms}
        self.grace_ms = grace_ms
        self.matches_max = matches_max
        self.errors = errors
        self.lefts: Store[tuple[K, int], Kept[L]] = Store(f"{name}-left", timed_key_serde(self.key), _kept_serde(left))
        self.rights: Store[tuple[K, int], Kept[R]] = Store(
            f"{name}-right", timed_key_serde(self.key), _kept_serde(right)
        )
        self._reach = after_ms, before_ms  # by side: how much later than a record its match may be
        self._tells = how != "inner", how == "outer"  # by side
        self._step = max(1, (before_ms + after_ms) // _STEPS)
        self._times: tuple[KeyTimes[K], ...] = ()  # by side, on a running task

    @property
    def tells(self) -> bool:
        """As of Stateful."""
        return any(self._tells)

    @property
    def held_ms(self) -> int:
        """As of Stateful: a record without a match is told when its interval has passed."""
        told = [reach for reach, tells in zip(self._reach, self._tells, strict=True) if tells]
        return self.grace_ms + max(0, *told) if told else self.grace_ms

    @staticmethod
    def key_of_timer(key: str) -> bytes | None:
        """As of Stateful: behind the side."""
        return key[1:].encode("latin-1")

    def begin(self, undone: Callable[[], int]) -> None:
        """As of Stateful."""
        self._times = tuple(KeyTimes(store, self.key, undone) for store in (self.lefts, self.rights))

    def put_left(self, key: K, timestamp: int, value: L) -> bool:
        """Give ``on_join`` the pairs of a record of the left side, and keep it for those to come.

        Return False if it is late. Raises TaskError if there are more than ``matches_max``, the value is None, or the
        join is not part of a running task; SerdeError on a bad key or value.
        """
        return self._put(LEFT, key, timestamp, value)

    def put_right(self, key: K, timestamp: int, value: R) -> bool:
        """As ``put_left``, of the right side. Raises what that raises: TaskError, SerdeError."""
        return self._put(RIGHT, key, timestamp, value)

    def which(self, result: Pair[K, L, R]) -> str:
        """As of Stateful."""
        side, time = ("left", result.left_time) if result.right is None else ("right", result.right_time)
        return f"join {self.name}, {side} record of {key_text(result.key)} at {time} without a match"

    def letter(self, result: Pair[K, L, R]) -> ResultLetter:
        """As of Stateful."""
        side, value = ("left", result.left) if result.right is None else ("right", result.right)
        raw = functions_of(self.serdes[side])[0](value)
        told = {"grete.join": self.name, "grete.side": side, "grete.key_serde": self.key.name}
        return functions_of(topic_serde(self.key))[0](result.key), raw, result.timestamp, told

    def _put(self, side: int, key: K, timestamp: int, value: Any) -> bool:
        self.check_runs()
        if value is None:  # which a Pair has where there is no match
            raise TaskError(
                f"join {self.name!r}: the {'right' if side else 'left'} record of key {key!r} at {timestamp} has no "
                "value: it can be in no pair: test for None before it is put"
            )
        if timestamp + self.grace_ms < self.time_for(key):
            self.late += 1
            return False
        own: Store[tuple[K, int], Kept[Any]] = self._store(side)
        place, times = (key, timestamp), self._times[side].of(key)
        is_new = times is not None and not has(times, timestamp)
        matched, values = (False, []) if is_new else own.get(place, (False, []))
        found = self._matches(side, key, timestamp)
        if sum(len(others) for _, (_, others) in found) > self.matches_max or len(values) >= self.matches_max:
            raise self._too_many(key, timestamp)
        if not values:
            self._set_timer(side, key, timestamp, exact=self._tells[side] and not found)
        own.put(place, (matched or bool(found), [*values, value]))
        self._times[side].put(key, timestamp)
        if self._tells[1 - side]:
            for other, (was_matched, others) in found:
                if not was_matched:
                    self._store(1 - side).put(other, (True, others))
        for (_, time), (_, others) in found:
            for each in others:
                if side == LEFT:
                    give_pair(self, key, (value, each), (timestamp, time))
                else:
                    give_pair(self, key, (each, value), (time, timestamp))
        return True

    def _store(self, side: int) -> Store[tuple[K, int], Kept[Any]]:
        return self.rights if side else self.lefts

    def _matches(self, side: int, key: K, timestamp: int) -> list[tuple[tuple[K, int], Kept[Any]]]:
        """Return the rows of the other side within the interval, by time; of a time too many if they are too many."""
        first = max(TIME_MIN, timestamp - self._reach[1 - side])
        last = min(TIME_MAX - 1, timestamp + self._reach[side])
        found, count = [], 0
        for row in self._rows(1 - side, key, first, last + 1):
            found.append(row)
            count += len(row[1][1])
            if count > self.matches_max:
                break
        return found

    def _rows(self, side: int, key: K, first: int, end: int) -> Iterator[tuple[tuple[K, int], Kept[Any]]]:
        """Return the rows of a key on one side, first <= time < end, by time."""
        store: Store[tuple[K, int], Kept[Any]] = self._store(side)
        times = self._times[side].of(key)
        if times is None:
            return store.range((key, first), (key, end))
        places = [(key, time) for time in times[bisect_left(times, first) : bisect_left(times, end)]]
        return ((place, kept) for place in places if (kept := store.get(place)) is not None)

    def _too_many(self, key: K, timestamp: int) -> TaskError:
        before, after = self.sizes["before_ms"], self.sizes["after_ms"]
        return TaskError(
            f"join {self.name!r}: the record of key {key!r} at {timestamp} has more than matches_max = "
            f"{self.matches_max} matches with before_ms = {before}, after_ms = {after}, or as many records have its "
            "time: make the interval shorter, join by a key that tells more of them apart, or raise matches_max"
        )

    def _set_timer(self, side: int, key: K, timestamp: int, *, exact: bool) -> None:
        """Let a record be deleted; one that may have to be told, not a ms too late."""
        at = timestamp + self._reach[side] + self.grace_ms + 1
        if not exact:
            at = -(-at // self._step) * self._step
        assert self.schedule is not None
        self.schedule(at, "lr"[side] + functions_of(self.key)[0](key).decode("latin-1"))

    def fire(self, at: int, key: str) -> None:
        """As of Stateful: delete what can have no match any more, and give what had none to ``on_join``."""
        side = "lr".index(key[0])
        store_key: K = functions_of(self.key)[1](key[1:].encode("latin-1"))
        own, times = self._store(side), self._times[side]
        first, end = TIME_MIN, at - self._reach[side] - self.grace_ms
        known = times.of(store_key)
        if known is not None and not self._tells[side]:
            for time in known[: bisect_left(known, end)]:
                own.delete((store_key, time))
                times.delete(store_key, time)
            return
        while rows := list(islice(self._rows(side, store_key, first, end), _ROWS)):
            first = rows[-1][0][1] + 1
            for place, _ in rows:
                own.delete(place)
                times.delete(*place)
            for (_, time), (matched, values) in rows if self._tells[side] else ():
                for value in () if matched else values:
                    sides, timed = ((value, None), (time, None)) if side == LEFT else ((None, value), (None, time))
                    self.give_due(Pair(self.name, store_key, *sides, *timed), time)
            if len(rows) < _ROWS:
                break
