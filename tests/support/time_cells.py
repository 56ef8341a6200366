"""A job whose state is all that goes by time, in both modes, and a plain recount of it over rows in their order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from grete import (
    ById,
    Input,
    IntervalJoin,
    Job,
    Pair,
    Record,
    SessionWindow,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    VersionedStore,
    Window,
    int64,
    json,
    utf8,
)
from grete.protocol.partitioner import partition_of

PARTITIONS = 2
# Times are multiples of 10 ms, and spans are not: so no record is at the very end of one.
BLOCK_MS, GAP_MS, WAIT_MS, TTL_MS, HORIZON_MS, BEFORE_MS, AFTER_MS = 1_000, 155, 205, 255, 305, 105, 65

clicks = Topic("clicks", key=utf8, value=json(dict[str, int]))  # "id", and "at": a time of its own, in ms
views = Topic("views", key=utf8, value=json(dict[str, int]))

Click = Record[str, dict[str, int] | None]


class Alone(Task):
    """One input: windows, sessions, timers, entries that expire, and which record was last."""

    source = Input(clicks, errors="drop")
    blocks = TumblingWindow("blocks", BLOCK_MS, key=utf8, value=int64)
    visits = SessionWindow("visits", GAP_MS, key=utf8, value=int64, merge=int.__add__)
    alarms = Timers()
    recent = Store("recent", key=utf8, value=int64, ttl_ms=TTL_MS)
    seen = Store("seen", key=utf8, value=int64)
    closed = Store("closed", key=utf8, value=int64)
    ended = Store("ended", key=utf8, value=int64)
    fired = Store("fired", key=utf8, value=int64)
    fresh = Store("fresh", key=utf8, value=int64)
    last = Store("last", key=utf8, value=int64)

    def process(self, record: Click) -> None:
        if record.value is None:
            return
        key, at = record.key, record.timestamp
        assert self.blocks.update(key, at, lambda count: (count or 0) + 1), "late"
        assert self.visits.update(key, at, lambda count: (count or 0) + 1), "late"
        self.alarms.schedule(at + WAIT_MS, key)
        self.seen.put(key, at)
        if self.recent.get(key) is None:
            self.fresh.put(key, self.fresh.get(key, 0) + 1)
        self.recent.put(key, at)
        self.last.put(key, record.value["id"])

    def on_timer(self, timer: Timer) -> None:
        if self.seen.get(timer.key, 0) + WAIT_MS == timer.at:
            self.fired.put(f"{timer.key}@{timer.at}", 1)

    def on_window(self, window: Window[str, int]) -> None:
        store = self.closed if window.name == "blocks" else self.ended
        store.put(f"{window.key}@{window.start}", window.value)


class Joined(Task):
    """Two inputs: a join within an interval, and what was known at the time of a record."""

    source = Input(clicks, errors="drop")
    other = Input(views, errors="drop")  # at one time what is declared last comes first
    near = IntervalJoin("near", before_ms=BEFORE_MS, after_ms=AFTER_MS, key=utf8, left=int64, right=int64)
    known = VersionedStore("known", utf8, int64, retention_ms=10_000)
    pairs = Store("pairs", key=utf8, value=int64)
    then = Store("then", key=utf8, value=int64)

    def process(self, record: Click) -> None:
        if record.value is None:
            return
        key, at, number = record.key, record.timestamp, record.value["id"]
        if record.topic == views.name:
            assert self.near.put_right(key, at, number), "late"
            self.known.put(key, at, number)
            return
        assert self.near.put_left(key, at, number), "late"
        self.then.put(str(number), self.known.get(key, at, -1) + 1)

    def on_join(self, pair: Pair[str, int, int]) -> None:
        key = f"{pair.left}-{pair.right}"
        self.pairs.put(key, self.pairs.get(key, 0) + 1)


def _name(record: Any) -> str:
    """Return the id of a record or row; a tombstone has that of its key."""
    return str(record.key if record.value is None else record.value["id"])


class Once(Task):
    """Counts ids that have not come for a while."""

    source = Input(clicks, errors="drop", deduplicate=ById(_name, HORIZON_MS))
    first = Store("first", key=utf8, value=int64)

    def process(self, record: Click) -> None:
        key = _name(record)
        self.first.put(key, self.first.get(key, 0) + 1)


class Timed(Task):
    """Windows by a time of the record's own, which has another order."""

    source = Input(clicks, errors="drop", time=lambda value: value["at"])
    blocks = TumblingWindow("blocks", BLOCK_MS, key=utf8, value=int64)
    own = Store("own", key=utf8, value=int64)

    def process(self, record: Click) -> None:
        if record.value is not None:
            assert self.blocks.update(record.key, record.timestamp, lambda count: (count or 0) + 1), "late"

    def on_window(self, window: Window[str, int]) -> None:
        self.own.put(f"{window.key}@{window.start}", window.value)


def _stages() -> Iterator[type[Task]]:
    for task in (Alone, Joined, Once, Timed):
        for mode in ("aligned", "deterministic"):
            yield type(task.__name__, (task,), {"name": f"{task.__name__.lower()}-{mode}", "mode": mode})


job = Job("time-cells", list(_stages()), partitions=PARTITIONS)

# Stage → stores that the recount has.
STORES = {
    "alone": ["closed", "ended", "fired", "fresh", "last"],
    "joined": ["pairs", "then"],
    "once": ["first"],
    "timed": ["own"],
}

State = dict[str, dict[str, int]]  # store → key → number


class Row(NamedTuple):
    """A row of a history, in the order of time. ``value`` None: a tombstone."""

    at: int
    key: str
    value: dict[str, int] | None


def recount(rows: Sequence[Row], looked_at: Sequence[Row]) -> State:
    """Return the state after all clicks and views, each in the order of time and then of their places in files."""
    found: State = {name: {} for names in STORES.values() for name in names}
    for partition in range(PARTITIONS):
        ours, theirs = (
            [row for row in each if partition_of(row.key.encode(), PARTITIONS) == partition]
            for each in (rows, looked_at)
        )
        _alone(ours, found)
        _joined(ours, theirs, found)
        _once(ours, found["first"])
        found["own"] |= _closed([row if row.value is None else row._replace(at=row.value["at"]) for row in ours])
    return found


def _closed(rows: Sequence[Row]) -> dict[str, int]:
    now = max((row.at for row in rows), default=0)
    counts = Counter((row.key, row.at // BLOCK_MS * BLOCK_MS) for row in rows if row.value is not None)
    return {f"{key}@{start}": count for (key, start), count in counts.items() if start + BLOCK_MS <= now}


def _alone(rows: Sequence[Row], found: State) -> None:
    now = max((row.at for row in rows), default=0)
    found["closed"] |= _closed(rows)
    found["fired"] |= _fired(rows)
    found["fresh"] |= _fresh(rows)
    for key, same in groupby(sorted((row for row in rows if row.value is not None), key=_key), _key):
        ours = list(same)
        begin, count = ours[0].at, 0
        for row, following in zip(ours, [*ours[1:], None], strict=True):
            until = now if following is None else following.at
            count += 1
            if row.at + GAP_MS <= until:
                found["ended"][f"{key}@{begin}"] = count
                begin, count = until, 0
        found["last"][key] = _id(ours[-1])


def _fired(rows: Sequence[Row]) -> dict[str, int]:
    """Return the timers that no later record of their key has outdated: they fire behind the record that is due."""
    found: dict[str, int] = {}
    seen: dict[str, int] = {}
    waiting: list[tuple[int, str]] = []
    for row in rows:
        if row.value is not None:
            seen[row.key] = row.at
            waiting.append((row.at + WAIT_MS, row.key))
        for at, key in [each for each in waiting if each[0] <= row.at]:
            if seen[key] + WAIT_MS == at:
                found[f"{key}@{at}"] = 1
        waiting = [each for each in waiting if each[0] > row.at]
    return found


def _fresh(rows: Sequence[Row]) -> dict[str, int]:
    """Count by key the records whose entry had expired: by the time before the record."""
    found: dict[str, int] = {}
    seen: dict[str, int] = {}
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        if row.value is None:
            continue
        if row.key not in seen or (before is not None and seen[row.key] + TTL_MS < before.at):
            found[row.key] = found.get(row.key, 0) + 1
        seen[row.key] = row.at
    return found


def _joined(rows: Sequence[Row], others: Sequence[Row], found: State) -> None:
    for row in rows:
        if row.value is None:
            continue
        same = [other for other in others if other.key == row.key and other.value is not None]
        for other in same:
            if row.at - BEFORE_MS <= other.at <= row.at + AFTER_MS:
                pair = f"{_id(row)}-{_id(other)}"
                found["pairs"][pair] = found["pairs"].get(pair, 0) + 1
        found["then"][str(_id(row))] = next((_id(other) for other in reversed(same) if other.at <= row.at), -1) + 1


def _once(rows: Sequence[Row], found: dict[str, int]) -> None:
    taken: dict[str, int] = {}
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        name = _name(row)
        if name not in taken or (before is not None and taken[name] + HORIZON_MS < before.at):
            taken[name] = row.at
            found[name] = found.get(name, 0) + 1


def _id(row: Row) -> int:
    return -1 if row.value is None else row.value["id"]


def _key(row: Row) -> Any:
    return row.key
