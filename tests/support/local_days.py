"""A job that bills meters by the day, the week and the month of places where clocks change."""

from grete import CalendarWindow, Input, Job, Output, Record, Task, Topic, Window, int64, json, utf8

events = Topic("events", key=utf8, value=int64)  # meter → Wh
billed = Topic("billed", key=utf8, value=json(list[int]))  # meter and period → start, end, Wh


class Bill(Task):
    """Adds up what each meter has used; a reading may be two hours late."""

    source = Input(events, out_of_order_ms=7_200_000)
    days = CalendarWindow("days", "day", "Europe/Berlin", key=utf8, value=int64)
    weeks = CalendarWindow("weeks", "week", "America/New_York", key=utf8, value=int64, week_begins="sunday")
    months = CalendarWindow("months", "month", "Europe/Berlin", key=utf8, value=int64, grace_ms=7_200_000)
    out = Output(billed)

    def process(self, record: Record[str, int]) -> None:
        """Add; none is late."""
        for window in (self.days, self.weeks, self.months):
            assert window.update(record.key, record.timestamp, lambda used: (used or 0) + record.value), "late"

    def on_window(self, window: Window[str, int]) -> None:
        """Tell the sum, and of which period."""
        self.out.send(f"{window.key} {window.name}", [window.start, window.end, window.value])


job = Job("local-days", stages=[Bill], partitions=3)
