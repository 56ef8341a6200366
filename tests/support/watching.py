"""A job with windows of each kind in one task, and a window behind them: what they send, they send when they close."""

from grete import (
    HoppingWindow,
    Input,
    Job,
    Output,
    Record,
    SessionWindow,
    SlidingWindow,
    Task,
    Topic,
    TumblingWindow,
    Window,
    int64,
    utf8,
)
from grete.api.tasks.mode import Mode

events = Topic("events", key=utf8, value=int64)
seen = Topic("seen", key=utf8, value=int64)
totalled = Topic("totalled", key=utf8, value=int64)


class Watch(Task):
    """Adds up each number in windows of three kinds, and tells each sum under the window's name."""

    source = Input(events)
    hops = HoppingWindow("hops", 60, 20, key=utf8, value=int64, grace_ms=10)
    near = SlidingWindow("near", 30, key=utf8, value=int64)
    visits = SessionWindow("visits", 40, key=utf8, value=int64, merge=int.__add__, grace_ms=5)
    out = Output(seen)

    def process(self, record: Record[str, int]) -> None:
        """Add; records are in the order of time, so none is late."""
        for window in (self.hops, self.near, self.visits):
            assert window.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        """Send a number in which the window's bounds count, too."""
        self.out.send(window.name, window.value + window.start % 7 + window.end % 5)


class Total(Task):
    """Adds up what each kind has told, by period."""

    source = Input(seen)
    totals = TumblingWindow("totals", 100, key=utf8, value=int64)
    out = Output(totalled)

    def process(self, record: Record[str, int]) -> None:
        """Add; what a window sends is not older than what its task has told of its time, so none is late."""
        assert self.totals.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        """Tell."""
        self.out.send(f"{window.key} {window.start}", window.value)


def job_of(mode: Mode = "aligned") -> Job:
    """Return the job in a mode."""
    return Job("watching", stages=[Watch, Total], partitions=3, mode=mode)


job = job_of()
