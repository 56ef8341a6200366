"""The join that a timed task may have beside its windows, and the oracle's own: a list of what came, gone through."""

from collections.abc import Callable, Iterator

from grete.api.serdes.serde import bytes_serde
from grete.api.stateful.interval_join import IntervalJoin
from grete.api.stateful.joins import Pair
from tests.verification.simulation.window_kinds import PlainRows, Schedule

NAME = "near"
LEFTS, RIGHTS = 90, 91  # store ids
STORE_IDS = {f"{NAME}-left": LEFTS, f"{NAME}-right": RIGHTS}
BEFORE_MS, AFTER_MS, GRACE_MS = 6, 11, 4
HELD_MS = GRACE_MS + max(BEFORE_MS, AFTER_MS)  # by how much a record may be older when it is told without a match
_STEP_MS = (BEFORE_MS + AFTER_MS) // 4  # to which timers are rounded up that tell of nothing
_SIGN = 1 << 63

NEAR = IntervalJoin(
    NAME,
    before_ms=BEFORE_MS,
    after_ms=AFTER_MS,
    key=bytes_serde,
    left=bytes_serde,
    right=bytes_serde,
    how="outer",
    grace_ms=GRACE_MS,
)
BytesPair = Pair[bytes, bytes, bytes]


class PlainJoin:
    """An outer join in which all that a side keeps is looked at each time."""

    def __init__(
        self,
        sides: tuple[PlainRows, PlainRows],
        schedule: Schedule,
        now: Callable[[], int],
        give: Callable[[BytesPair, int], None],
    ) -> None:
        self._sides, self._schedule, self._now, self._give = sides, schedule, now, give

    def put_left(self, key: bytes, timestamp: int, value: bytes) -> bool:
        """Take a record of the left side; False if it is late."""
        return self._put(0, key, timestamp, value)

    def put_right(self, key: bytes, timestamp: int, value: bytes) -> bool:
        """Take a record of the right side; False if it is late."""
        return self._put(1, key, timestamp, value)

    def _put(self, side: int, key: bytes, at: int, value: bytes) -> bool:
        if at < self._now() - GRACE_MS:
            return False
        others = [
            (time, values)
            for time, _, values in list(self._of(1 - side, key))
            if (at - BEFORE_MS <= time <= at + AFTER_MS if side == 0 else time - BEFORE_MS <= at <= time + AFTER_MS)
        ]
        before = [(matched, values) for time, matched, values in self._of(side, key) if time == at]
        matched, values = before[0] if before else (False, [])
        if not before:
            due = self._due(side, at)
            due = due if not others else -(-due // _STEP_MS) * _STEP_MS
            self._schedule(due, "lr"[side] + key.decode("latin-1"))
        self._keep(side, key, at, [*values, value], matched=matched or bool(others))
        for time, theirs in others:
            self._keep(1 - side, key, time, theirs, matched=True)
        for time, theirs in others:
            for each in theirs:
                both = ((value, each), (at, time)) if side == 0 else ((each, value), (time, at))
                self._give(Pair(NAME, key, *both[0], *both[1]), max(at, time))
        return True

    def fire(self, at: int, key: str) -> None:
        """Forget what can have no match any more, and tell of what had none."""
        side, raw = "lr".index(key[0]), key[1:].encode("latin-1")
        for time, matched, values in list(self._of(side, raw)):
            if self._due(side, time) <= at:
                self._sides[side].delete(_place(raw, time))
                for value in () if matched else values:
                    sides, times = ((value, None), (time, None)) if side == 0 else ((None, value), (None, time))
                    self._give(Pair(NAME, raw, *sides, *times), time)

    def _due(self, side: int, at: int) -> int:
        return at + (AFTER_MS, BEFORE_MS)[side] + GRACE_MS + 1

    def _of(self, side: int, key: bytes) -> Iterator[tuple[int, bool, list[bytes]]]:
        """Yield (time, whether it has a match, values) of what a side keeps of a key, by time."""
        first = len(key).to_bytes(4, "big") + key
        for place, kept in self._sides[side].range(first, first + b"\xff" * 9):
            values, rest = list[bytes](), kept[1:]
            while rest:
                size = int.from_bytes(rest[:4], "big")
                values.append(rest[4 : 4 + size])
                rest = rest[4 + size :]
            yield int.from_bytes(place[-8:], "big") - _SIGN, kept[0] == 1, values

    def _keep(self, side: int, key: bytes, at: int, values: list[bytes], *, matched: bool) -> None:
        texts = b"".join(len(value).to_bytes(4, "big") + value for value in values)
        self._sides[side].put(_place(key, at), bytes([matched]) + texts)


def _place(key: bytes, at: int) -> bytes:
    return len(key).to_bytes(4, "big") + key + (at + _SIGN).to_bytes(8, "big")
