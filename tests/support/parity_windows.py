"""Tasks of ``parity`` with windows of a calendar, and of counts."""

from grete import CalendarWindow, CountWindow, Input, Output, Record, Task, Window, int64, utf8
from tests.support.parity_topics import events, told


class Days(Task):
    """Adds up by day."""

    source = Input(events)
    days = CalendarWindow("days", "day", "Europe/Berlin", key=utf8, value=int64)
    out = Output(told("days"))

    def process(self, record: Record[str, int]) -> None:
        self.days.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(f"{window.key} {window.start}", window.value)


class Counts(Task):
    """Adds up in windows of counts."""

    source = Input(events)
    threes = CountWindow("threes", 3, key=utf8, value=int64)
    fives = CountWindow("fives", 5, key=utf8, value=int64, every=2)
    out = Output(told("counts"))

    def process(self, record: Record[str, int]) -> None:
        for window in (self.threes, self.fives):
            window.update(record.key, record.timestamp, lambda sum_: (sum_ or 0) + record.value)

    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(f"{window.name} {window.key} {window.start} {window.end}", window.value)
