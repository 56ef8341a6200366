"""A small job for each thing that a live task may use: what a history in batch makes of it is compared with live."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from grete import (
    ById,
    Call,
    DeadLetter,
    HoppingWindow,
    Input,
    IntervalJoin,
    Job,
    Output,
    Pair,
    Record,
    SessionWindow,
    SlidingWindow,
    Store,
    TableJoin,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    VersionedStore,
    Window,
    int64,
    repartition,
    utf8,
)
from grete.api.tasks.mode import Mode
from tests.support.parity_clocks import Recent, Remind, Reminded, TakenIn
from tests.support.parity_topics import (
    BEGIN_MS,
    PARTITIONS,
    START_MS,
    alarms,
    delayed,
    events,
    letters,
    prices,
    spread,
    told,
    visits,
)
from tests.support.parity_windows import Counts, Days


class Sums(Task):
    """Adds up by key, and sets one number aside."""

    source = Input(events, errors=DeadLetter(letters))
    sums = Store("sums", key=utf8, value=int64)
    out = Output(told("sums"))

    def process(self, record: Record[str, int]) -> None:
        self.sums.put(record.key, total := self.sums.get(record.key, 0) + record.value)
        self.out.send(record.key, total)
        if record.value == 5:
            raise ValueError(record.value)


class Windows(Task):
    """Adds up in windows of four kinds."""

    source = Input(events)
    blocks = TumblingWindow("blocks", 70, key=utf8, value=int64, grace_ms=20)
    hops = HoppingWindow("hops", 60, 20, key=utf8, value=int64, grace_ms=10)
    near = SlidingWindow("near", 30, key=utf8, value=int64)
    visits = SessionWindow("visits", 40, key=utf8, value=int64, merge=int.__add__, grace_ms=5)
    out = Output(told("windows"))

    def process(self, record: Record[str, int]) -> None:
        for window in (self.blocks, self.hops, self.near, self.visits):
            assert window.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(f"{window.name} {window.key} {window.start}", window.value)


class Delay(Task):
    """Keeps each number for a while of event time, then sends it."""

    source = Input(events)
    waiting = Store("waiting", key=utf8, value=int64)
    patience = Timers()
    out = Output(delayed)

    def process(self, record: Record[str, int]) -> None:
        key = f"{record.key} {record.timestamp}"
        self.waiting.put(key, record.value)
        self.patience.schedule(record.timestamp + 70, key)

    def on_timer(self, timer: Timer) -> None:
        self.out.send(f"k{timer.key[0]}", self.waiting.get(timer.key, 0))
        self.waiting.delete(timer.key)


class Later(Task):
    """Adds up by window what the timers of another stage have sent."""

    source = Input(delayed)
    totals = TumblingWindow("totals", 100, key=utf8, value=int64, grace_ms=3_000)  # an input may be idle
    out = Output(told("later"))

    def process(self, record: Record[str, int]) -> None:
        assert self.totals.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(f"{window.key} {window.start}", window.value)


class Joins(Task):
    """Joins odd numbers with even ones: within an interval, as two tables, and by versions."""

    source = Input(events)
    near = IntervalJoin("near", before_ms=40, after_ms=90, key=utf8, left=int64, right=int64, how="outer", grace_ms=5)
    both = TableJoin("both", utf8, int64, int64, how="left")
    known = VersionedStore("known", utf8, int64, retention_ms=100)
    out = Output(told("joins"))

    def process(self, record: Record[str, int]) -> None:
        key, at, value = record.key, record.timestamp, record.value
        row = None if value == 9 else value
        self.known.put(key, at, row)
        if value % 2:
            assert self.near.put_left(key, at, value), "late"
            self.both.put_left(key, at, row)
        else:
            assert self.near.put_right(key, at, value), "late"
            self.both.put_right(key, at, (self.known.get(key, at - 100) or 0) + value)

    def on_join(self, pair: Pair[str, int, int]) -> None:
        self.out.send(f"{pair.name} {pair.key}", 10 * (pair.left or 0) + (pair.right or 0))


class Forget(Task):
    """Drops what comes again soon, and remembers each number for a while."""

    source = Input(events, deduplicate=ById(lambda record: f"{record.key}{record.value}", horizon_ms=500))
    seen = Store("seen", key=int64, value=int64, ttl_ms=400)
    out = Output(told("forget"))

    def process(self, record: Record[str, int]) -> None:
        if self.seen.get(record.value) is None:
            self.seen.put(record.value, record.timestamp)
            self.out.send(record.key, record.value)


class Clock(Task):
    """Keeps the time, a number and an id that its context gives it."""

    source = Input(events)
    last = Store("last", key=utf8, value=utf8)

    def process(self, record: Record[str, int]) -> None:
        self.last.put(record.key, f"{self.ctx.now_us()} {self.ctx.random().random()} {self.ctx.uuid()}")


def twice(value: int) -> int:
    """Stand for a service."""
    return 2 * value


class Calls(Task):
    """Asks for each record."""

    in_flight = 8
    source = Input(events)
    ask = Call(twice, result=int64)
    sums = Store("sums", key=utf8, value=int64)
    out = Output(told("calls"))

    async def process(self, record: Record[str, int]) -> None:
        answer = await self.ask(record.value)
        self.sums.put(record.key, total := self.sums.get(record.key, 0) + answer)
        self.out.send(record.key, total)


Spread = repartition(events, to=spread, key=lambda record: f"n{record.value}")


class Unequal(Task):
    """Counts by number, in three tasks behind two."""

    partitions = 3
    source = Input(spread)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(told("unequal"))

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)
        self.out.send(record.key, record.value)


class Everywhere(Task):
    """Counts by number what another stage sends, all of it in each task."""

    source = Input(spread, broadcast=True)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)


class Tables(Task):
    """Reads a table of another number of partitions first, all of it in each task."""

    source = Input(events)
    table = Input(prices, broadcast=True, bootstrap=True)
    known = Store("known", key=utf8, value=int64)
    bills = Store("bills", key=utf8, value=int64)
    out = Output(told("tables"))

    def process(self, record: Record[str, int]) -> None:
        if record.topic == prices.name:
            self.known.put(record.key, record.value)
        else:
            self.bills.put(record.key, bill := self.bills.get(record.key, 0) + self.known.get(record.key, -1_000_000))
            self.out.send(record.key, bill)


class Alarms(Task):
    """Reads one topic before another; counts each alone, as the order between the two is that of a moment."""

    alarms = Input(alarms, priority=1)
    source = Input(events)
    counts = Store("counts", key=utf8, value=int64)
    out = Output(told("alarms"))

    def process(self, record: Record[str, int]) -> None:
        key = f"{record.topic} {record.key}"
        self.counts.put(key, count := self.counts.get(key, 0) + 1)
        self.out.send(key, count)


class Begun(Task):
    """Begins in the middle of the history; takes many records at a time."""

    source = Input(events, start=datetime.fromtimestamp(START_MS / 1000, UTC))
    counts = Store("counts", key=utf8, value=int64)
    out = Output(told("begun"))

    def process_batch(self, records: list[Record[str, int]]) -> None:
        for record in records:
            self.counts.put(record.key, count := self.counts.get(record.key, 0) + 1)
            self.out.send(record.key, count, timestamp=record.timestamp)


class Timed(Task):
    """Takes the time of a record from its value."""

    source = Input(events, time=lambda value: BEGIN_MS + 10 * value, out_of_order_ms=200)
    blocks = TumblingWindow("blocks", 20, key=utf8, value=int64)
    out = Output(told("timed"))

    def process(self, record: Record[str, int]) -> None:
        assert self.blocks.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(f"{window.key} {window.start}", window.value)


class Visits(Task):
    """Reads two partitions in each task, and counts in windows."""

    source = Input(visits)
    sums = Store("sums", key=utf8, value=int64)
    blocks = TumblingWindow("blocks", 70, key=utf8, value=int64)
    out = Output(told("visits"))

    def process(self, record: Record[str, int]) -> None:
        self.sums.put(record.key, self.sums.get(record.key, 0) + record.value)
        assert self.blocks.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(f"{window.key} {window.start}", window.value)


class Row(NamedTuple):
    """A row of the table: what the tasks of these stages use. ``modes``: in which they are compared."""

    what: str
    stages: Sequence[type[Task]]
    modes: Sequence[Mode] = ("aligned", "deterministic")
    same: bool = True  # a live run makes the same state and outputs; else only the audit is compared


ROWS = [
    Row("state, `process`, dead letters", [Sums]),
    Row("tumbling, hopping, sliding and session windows", [Windows]),
    Row("calendar windows", [Days]),
    Row("windows of counts", [Counts]),
    Row("event-time timers, a window behind them", [Delay, Later]),
    Row("interval joins, table joins, versioned tables", [Joins]),
    Row("`deduplicate=`, `ttl_ms`", [Forget]),
    Row("`self.ctx`", [Clock], ["deterministic"], same=False),
    Row("`async def process` with calls", [Calls]),
    Row("a stage with another number of partitions, a broadcast stream", [Spread, Unequal, Everywhere]),
    Row("`broadcast=`, `bootstrap=`", [Tables]),
    Row("`priority=`", [Alarms]),
    Row("a topic with more partitions than tasks", [Visits]),
    Row("`start=`, `process_batch`", [Begun]),
    Row("`time=`, `out_of_order_ms=`", [Timed]),
    Row('`time="intake"`', [TakenIn], ["deterministic"], same=False),
    Row("`process_batch` with `ttl_ms`", [Recent], ["deterministic"], same=False),
    Row("wall-clock timers", [Remind, Reminded], ["deterministic"], same=False),
]


# What the mode makes another matter: the order of records and timers, calls, clocks. Of the rest, one row.
OF_THE_MODE = [row for row in ROWS if "aligned" not in row.modes or {Sums, Delay, Calls, Visits} & {*row.stages}]


def job_of(mode: Mode, rows: Sequence[Row] = ROWS) -> Job:
    """Return the job of these rows in a mode."""
    stages = [stage for row in rows if mode in row.modes for stage in row.stages]
    return Job(f"parity-{mode}", stages, partitions=PARTITIONS, mode=mode)


def left_out() -> Job:
    """Return an aligned job of which an audit can recompute the first stage alone."""
    return Job("parity-left-out", [Sums, TakenIn, Recent, Remind, Reminded], partitions=PARTITIONS)


def both_modes(suffix: str) -> Job:
    """Return a job whose second stage is aligned, behind a deterministic one; ``suffix``: of its name and topics."""
    read, between, written = (
        Topic(f"{name}{suffix}", key=utf8, value=int64) for name in (events.name, delayed.name, "told-later")
    )
    first = {"name": "delay", "mode": "deterministic", "source": Input(read), "out": Output(between)}
    second = {"name": "later", "source": Input(between), "out": Output(written)}
    stages = [type("First", (Delay,), first), type("Second", (Later,), second)]
    return Job(f"parity{suffix}", stages, partitions=PARTITIONS)
