"""Two deterministic stages with a timer and random numbers: the job of the stored directories."""

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8

SOON_MS = 300_000  # the stored directories are older; a test is over before

lines = Topic("lines", key=utf8, value=utf8)
words = Topic("words", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)
dice = Topic("dice", key=utf8, value=utf8)


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
    """Words → a running total of each, an identifier, and a note when its timer fires."""

    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    timers = Timers()
    out = Output(totals)
    dice = Output(dice)

    def process(self, record: Record[str, str]) -> None:
        word, count = record.key, self.counts.get(record.key, 0) + 1
        self.counts.put(word, count)
        if count == 1:
            self.timers.schedule(self.ctx.now() + SOON_MS, word)
        self.out.send(word, count)
        self.dice.send(word, str(self.ctx.uuid()))

    def on_timer(self, timer: Timer) -> None:
        self.out.send("timer " + timer.key, timer.at)


job = Job("upgraded", stages=[Split, Count], partitions=2, mode="deterministic")
