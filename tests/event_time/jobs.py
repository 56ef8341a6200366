"""Jobs that go by event time: joins, and windows behind a repartition or a join. Topics bear the job's name."""

from grete import (
    HoppingWindow,
    Input,
    IntervalJoin,
    Job,
    Output,
    Pair,
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
from grete.api.tasks.mode import Mode

MINUTE = 60_000


def joining(name: str, partitions: int = 1, mode: Mode = "aligned") -> Job:
    """Return a job that joins two topics, NAME-left and NAME-right: each key's pair within ten minutes."""
    left = Topic(f"{name}-left", key=utf8, value=utf8)
    right = Topic(f"{name}-right", key=utf8, value=utf8)
    pairs = Topic(f"{name}-pairs", key=utf8, value=utf8)

    class JoinWithinTenMinutes(Task):
        name = "join"
        lefts = Input(left)
        rights = Input(right)
        waiting = Store("waiting", key=utf8, value=utf8)
        timers = Timers()
        out = Output(pairs)

        def process(self, record: Record[str, str]) -> None:
            mine, other = ("l", "r") if record.topic == left.name else ("r", "l")
            found = self.waiting.get(other + record.key)
            if found is None:
                self.waiting.put(mine + record.key, record.value)
                self.timers.schedule(record.timestamp + 10 * MINUTE, mine + record.key)
            else:
                self.out.send(record.key, f"{found} {record.value}")

        def on_timer(self, timer: Timer) -> None:
            self.waiting.delete(timer.key)

    return Job(name, stages=[JoinWithinTenMinutes], partitions=partitions, mode=mode)


def counting(name: str, partitions: int = 2, mode: Mode = "aligned", first: Mode | None = None) -> Job:
    """Return a job that sends NAME-in on by its value, and counts each value in windows of a minute.

    ``first``: the mode of the first stage, if it is another one.
    """
    source = Topic(f"{name}-in", key=utf8, value=utf8)
    by_value = Topic(f"{name}-by-value", key=utf8, value=utf8)
    counts = Topic(f"{name}-counts", key=utf8, value=int64)

    class Repartition(Task):
        name = "repartition"
        lines = Input(source)
        out = Output(by_value)

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.value, record.key)

    class CountPerMinute(Task):
        name = "count"
        values = Input(by_value)
        window = TumblingWindow("minute", MINUTE, key=utf8, value=int64)
        out = Output(counts)

        def process(self, record: Record[str, str]) -> None:
            self.window.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

        def on_window(self, window: Window[str, int]) -> None:
            self.out.send(window.key, window.value)

    Repartition.mode = first or mode
    return Job(name, stages=[Repartition, CountPerMinute], partitions=partitions, mode=mode)


def paying(name: str, partitions: int = 2, mode: Mode = "aligned") -> Job:
    """Return a job that joins NAME-left and NAME-right within ten minutes, and counts what each payer pays for.

    The payer is the right side's value. Windows of ten minutes, every five; orders that are not paid are counted, too.
    """
    left = Topic(f"{name}-left", key=utf8, value=utf8)
    right = Topic(f"{name}-right", key=utf8, value=utf8)
    by_payer = Topic(f"{name}-by-payer", key=utf8, value=utf8)
    counts = Topic(f"{name}-counts", key=utf8, value=int64)

    class Match(Task):
        name = "match"
        lefts = Input(left)
        rights = Input(right)
        paid = IntervalJoin(
            "paid", before_ms=0, after_ms=10 * MINUTE, key=utf8, left=utf8, right=utf8, how="left", grace_ms=MINUTE
        )
        out = Output(by_payer)

        def process(self, record: Record[str, str]) -> None:
            put = self.paid.put_left if record.topic == left.name else self.paid.put_right
            put(record.key, record.timestamp, record.value)

        def on_join(self, pair: Pair[str, str, str]) -> None:
            self.out.send(pair.right or "nobody", pair.key)

    class CountByPayer(Task):
        name = "count"
        pairs = Input(by_payer)
        window = HoppingWindow("window", 10 * MINUTE, 5 * MINUTE, key=utf8, value=int64)
        out = Output(counts)

        def process(self, record: Record[str, str]) -> None:
            self.window.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

        def on_window(self, window: Window[str, int]) -> None:
            self.out.send(window.key, window.value)

    return Job(name, stages=[Match, CountByPayer], partitions=partitions, mode=mode)


def windows_in_a_row(name: str, mode: Mode = "aligned") -> Job:
    """Return a job that counts values in windows of a minute with grace, and then the counts in windows of a minute."""
    source = Topic(f"{name}-in", key=utf8, value=utf8)
    firsts = Topic(f"{name}-firsts", key=utf8, value=int64)
    counts = Topic(f"{name}-counts", key=utf8, value=int64)

    class First(Task):
        name = "first"
        lines = Input(source)
        window = TumblingWindow("minute", MINUTE, key=utf8, value=int64, grace_ms=10_000)
        out = Output(firsts)

        def process(self, record: Record[str, str]) -> None:
            self.window.update(record.value, record.timestamp, lambda n: (n or 0) + 1)

        def on_window(self, window: Window[str, int]) -> None:
            self.out.send(window.key, window.value)

    class Second(Task):
        name = "second"
        inputs = Input(firsts)
        window = TumblingWindow("minute", MINUTE, key=utf8, value=int64)
        out = Output(counts)

        def process(self, record: Record[str, int]) -> None:
            self.window.update(record.key, record.timestamp, lambda n: (n or 0) + record.value)

        def on_window(self, window: Window[str, int]) -> None:
            self.out.send(window.key, window.value)

    return Job(name, stages=[First, Second], mode=mode)


def topic_of(job: Job, name: str) -> Topic[str, str]:
    """Return a topic of the job by the end of its name."""
    topics = [topic for stage in job.stages for topic in (*stage.topics_read(), *stage.topics_written())]
    return next(topic for topic in topics if topic.name == f"{job.name}-{name}")
