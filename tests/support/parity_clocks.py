"""Tasks of ``parity`` that have something from a clock: only what deterministic mode records is made again."""

from grete import Input, Output, Record, Store, Task, Timer, Timers, int64, utf8
from tests.support.parity_topics import FAR, YEAR_MS, events, reminded, told


class TakenIn(Task):
    """Keeps the time at which it took records in."""

    source = Input(events, time="intake")
    last = Store("last", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.last.put(record.key, record.timestamp)


class Recent(Task):
    """Remembers numbers for a while, from the last one of a batch on."""

    source = Input(events)
    seen = Store("seen", key=utf8, value=int64, ttl_ms=400)

    def process_batch(self, records: list[Record[str, int]]) -> None:
        self.seen.put_many((f"{record.key}{record.value}", record.timestamp) for record in records)


class Remind(Task):
    """Sends each number a bit later by the clock, some years later, and one again and again."""

    source = Input(events)
    waiting = Store("waiting", key=utf8, value=int64)
    fired = Store("fired", key=utf8, value=int64)
    clock = Timers(clock="wall")
    out = Output(reminded)

    def process(self, record: Record[str, int]) -> None:
        key = f"{record.key} {record.timestamp}"
        self.waiting.put(key, record.value)
        self.clock.schedule(self.ctx.now() + (40 if record.value != FAR else 100 * YEAR_MS), key)

    def on_timer(self, timer: Timer) -> None:
        self.fired.put(timer.key, times := self.fired.get(timer.key, 0) + 1)
        self.out.send(timer.key[0], self.waiting.get(timer.key, 0))
        if times < 4 and timer.key.endswith("7"):
            self.clock.schedule(timer.at + 25, timer.key)


class Reminded(Task):
    """Keeps when it was reminded of a key last, and adds up."""

    source = Input(reminded)
    sums = Store("sums", key=utf8, value=int64)
    at = Store("at", key=utf8, value=int64)
    out = Output(told("reminded"))

    def process(self, record: Record[str, int]) -> None:
        self.sums.put(record.key, total := self.sums.get(record.key, 0) + record.value)
        self.at.put(record.key, self.ctx.now())
        self.out.send(record.key, total)
