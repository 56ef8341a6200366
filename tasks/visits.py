"""Sessionised clicks: what a visitor does until half an hour's pause is one visit, and an early result tells of it."""

from typing import Any

import msgspec

from grete import Every, Input, Job, Output, Record, SessionWindow, Task, Topic, Window, json, utf8

MINUTE_MS = 60_000


class Visit(msgspec.Struct):
    """The pages of one visit, in the order in which they came, and how long it took."""

    pages: list[str]
    seconds: int = 0
    over: bool = False


clicks = Topic("clicks", key=utf8, value=utf8)  # visitor → page, with the click's time
visits = Topic("visits", key=utf8, value=json(Visit))  # visitor → visit so far, then the whole visit
late_clicks = Topic("late-clicks", key=utf8, value=utf8)


class Visits(Task):
    """Holds one list of pages for each visit. A click that is late goes to a topic of its own."""

    clicks = Input(clicks)
    open_visits = SessionWindow(
        "open-visits",
        gap_ms=30 * MINUTE_MS,
        key=utf8,
        value=json(list[str]),
        merge=lambda earlier, later: earlier + later,
        grace_ms=MINUTE_MS,
        emit=Every(10 * MINUTE_MS),
    )
    out = Output(visits)
    late = Output(late_clicks)

    def process(self, record: Record[str, str]) -> None:
        if not self.open_visits.update(record.key, record.timestamp, lambda pages: [*(pages or ()), record.value]):
            self.late.send(record.key, record.value)

    def on_window(self, window: Window[str, Any]) -> None:
        """Tell of the visit every ten minutes while it changes, and once it is over."""
        seconds = (window.end - 1 - window.start) // 1000
        self.out.send(window.key, Visit(window.value, seconds, window.final))


job = Job("site-visits", stages=[Visits])
