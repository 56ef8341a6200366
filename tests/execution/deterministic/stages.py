"""Stages of deterministic mode that use what a task may have: stores, timers, windows, batches, random numbers."""

from grete import (
    DeadLetter,
    Input,
    Job,
    Output,
    Record,
    Store,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)

LINES = Topic("lines", key=utf8, value=utf8)
MIDDLE = Topic("middle", key=utf8, value=utf8)
OUT = Topic("out", key=utf8, value=utf8)
LETTERS = Topic("letters", key=utf8, value=utf8)


class Splits(Task):
    lines = Input(LINES)
    out = Output(MIDDLE)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(None, word)


class Everything(Task):
    """Timers, windows, numbers by chance, failures: whatever could depend on the moment."""

    middle = Input(MIDDLE, errors=DeadLetter(LETTERS))
    counts = Store("counts", key=utf8, value=int64)
    windows = TumblingWindow("windows", 7, key=utf8, value=int64, grace_ms=2)
    timers = Timers()
    out = Output(OUT)
    more = Output(Topic("more", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, count)
        self.windows.update(record.value, record.timestamp, lambda total: (total or 0) + 1)
        self.timers.schedule(record.timestamp + len(record.value) - 3, record.value)
        if count % 4 == 3:
            raise ValueError("the third")
        self.out.send(record.value, f"{count} {self.ctx.uuid()} {self.ctx.now_us()}")
        self.more.send(None, record.value)

    def on_timer(self, timer: Timer) -> None:
        late = not self.windows.update("timer", timer.at, lambda total: (total or 0) + 1)
        self.out.send(timer.key, f"timer {timer.at} {late} {self.ctx.random().random()}")

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, f"window {window.start} {window.value}")


class Reads(Task):
    more = Input(Topic("more", key=utf8, value=utf8))
    timers = Timers()

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""

    def on_timer(self, timer: Timer) -> None:
        """Do nothing."""


class Batches(Task):
    """A source of batches, with a timer."""

    lines = Input(LINES)
    timers = Timers()
    out = Output(MIDDLE)

    def process_batch(self, records: list[Record[str, str]]) -> None:
        self.timers.schedule(1, "later")
        self.out.send(None, f"{len(records)} lines")

    def on_timer(self, timer: Timer) -> None:
        self.out.send(None, timer.key)


class ReadsMiddle(Task):
    middle = Input(MIDDLE)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


JOB = Job("j", [Splits, Everything, Reads], mode="deterministic")
