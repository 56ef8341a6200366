"""Finds the three most viewed pages of each minute: counts in one stage, a ranking in a second one."""

from grete import Input, Job, Output, Record, Task, Topic, TumblingWindow, Window, int64, json, utf8

MINUTE_MS, TOP = 60_000, 3
Ranking = list[tuple[int, str]]  # views, page

views = Topic("views", key=utf8, value=utf8)  # page → who looked at it
counts = Topic("views-by-page", key=utf8, value=json)  # "all" → (views, page), with the time of the window
rankings = Topic("top-pages", key=utf8, value=json)  # "all" → the pages with the most views, most first


class Count(Task):
    """Counts the views of each page; runs for each partition of the pages."""

    views = Input(views)
    per_minute = TumblingWindow("per-minute", size_ms=MINUTE_MS, key=utf8, value=int64, grace_ms=10_000)
    out = Output(counts)

    def process(self, record: Record[str, str]) -> None:
        self.per_minute.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send("all", (window.value, window.key))


class Rank(Task):
    """Keeps the best of a minute. All counts of a minute have its time, and come before any later one closes it."""

    counts = Input(counts)
    best = TumblingWindow("best", size_ms=MINUTE_MS, key=utf8, value=json(Ranking))
    out = Output(rankings)

    def process(self, record: Record[str, tuple[int, str]]) -> None:
        views, page = record.value
        self.best.update(record.key, record.timestamp, lambda top: sorted([*(top or ()), (views, page)])[-TOP:])

    def on_window(self, window: Window[str, Ranking]) -> None:
        self.out.send(window.key, [page for _, page in reversed(window.value)])


job = Job("top-pages", stages=[Count, Rank], partitions=2)
