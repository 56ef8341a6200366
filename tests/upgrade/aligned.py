"""Two aligned stages with a window, a timer and all kinds of sinks: the job of the stored directories."""

import msgspec

from grete import (
    Files,
    Input,
    Job,
    Output,
    Record,
    Store,
    Table,
    Task,
    Timer,
    Timers,
    Topic,
    TumblingWindow,
    Window,
    int64,
    json,
    utf8,
)

LONG_MS = 1 << 40  # 34 years: the stored records are of 1970, in the first window; those of today are in the second

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)


class Total(msgspec.Struct):
    """A row: how often a word has come, when it came again."""

    word: str
    total: int


class Split(Task):
    """Lines → words."""

    lines = Input(lines)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
        for word in record.value.split():
            self.out.send(word, record.key)


class Count(Task):
    """Words → a running total of each, its total in a window, and a note when its timer fires."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    windows = TumblingWindow("windows", LONG_MS, key=utf8, value=int64)
    timers = Timers()
    out = Output(totals)
    rows = Output(Table("rows.db", "totals", json(Total)))
    files = Output(Files("files", json(Total)))

    def process(self, record: Record[str, str]) -> None:
        word, count = record.key, self.counts.get(record.key, 0) + 1
        self.counts.put(word, count)
        self.windows.update(word, record.timestamp, lambda value: (value or 0) + 1)
        if count == 1:
            self.timers.schedule(record.timestamp + LONG_MS, word)
        self.out.send(word, count)
        self.rows.send(None, Total(word, count))
        self.files.send(None, Total(word, count))

    def on_timer(self, timer: Timer) -> None:
        self.out.send("timer " + timer.key, timer.at)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send("window " + window.key, window.value)


job = Job("upgraded", stages=[Split, Count], partitions=2)
