"""A bill for each account and day, where the day ends at midnight of the account's own time zone."""

from operator import itemgetter

from grete import CalendarWindow, Input, Job, Key, Output, Record, Store, Task, Topic, Window, int64, json, utf8

PLACE = Key(utf8, utf8)  # account, its time zone
DAY = Key(utf8, utf8)  # account, its local day

usage = Topic("usage", key=utf8, value=json(tuple[str, int]))  # by account: time zone, units
bills = Topic("bills", key=DAY, value=int64)


class Bill(Task):
    usage = Input(usage)
    days = CalendarWindow("days", "day", itemgetter(1), key=PLACE, value=int64)
    billed = Store("billed", key=utf8, value=int64)  # of an account, all days
    out = Output(bills)

    def process(self, record: Record[str, tuple[str, int]]) -> None:
        zone, units = record.value
        self.days.update((record.key, zone), record.timestamp, lambda before: (before or 0) + units)

    def on_window(self, window: Window[tuple[str, str], int]) -> None:
        account, _ = window.key
        self.billed.put(account, self.billed.get(account, 0) + window.value)
        self.out.send((account, self.days.date_of(window).isoformat()), window.value)


job = Job("billing", stages=[Bill], partitions=2)
