"""Counts the views of each page by the minute, in event time: by the records' timestamps, not by the clock."""

from grete import Input, Job, Output, Record, Task, Topic, TumblingWindow, Window, int64, utf8

MINUTE_MS = 60_000

views = Topic("views", key=utf8, value=utf8)  # page → who looked at it
per_minute = Topic("views-per-minute", key=utf8, value=int64)  # page → views, with the time of the window


class CountViews(Task):
    """Holds one number for each page and minute. A record may be 10 s late; a later one is dropped and counted."""

    views = Input(views)
    counts = TumblingWindow("counts", size_ms=MINUTE_MS, key=utf8, value=int64, grace_ms=10_000)
    out = Output(per_minute)

    def process(self, record: Record[str, str]) -> None:
        self.counts.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        """Send a page's number once its minute is over."""
        self.out.send(window.key, window.value)


job = Job("page-views", stages=[CountViews])
