"""A bill for each account and day, where the day ends at midnight of the account's own time zone."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from grete import Input, Job, Key, Output, Record, Store, Task, Timer, Timers, Topic, int64, json, utf8

DAY = Key(utf8, utf8)  # account, its local day

usage = Topic("usage", key=utf8, value=json(tuple[str, int]))  # by account: time zone, units
bills = Topic("bills", key=DAY, value=int64)


class Bill(Task):
    usage = Input(usage)
    units = Store("units", key=DAY, value=int64)
    billed = Store("billed", key=utf8, value=int64)  # of an account, all days
    midnight = Timers(key=DAY)
    out = Output(bills)

    def process(self, record: Record[str, tuple[str, int]]) -> None:
        name, units = record.value
        zone = ZoneInfo(name)
        local = datetime.fromtimestamp(record.timestamp / 1000, UTC).astimezone(zone)
        day = record.key, local.date().isoformat()
        if (before := self.units.get(day)) is None:
            end = datetime.combine(local.date() + timedelta(days=1), time(), zone)
            self.midnight.schedule(int(end.timestamp() * 1000), day)
        self.units.put(day, (before or 0) + units)

    def on_timer(self, timer: Timer[tuple[str, str]]) -> None:
        units = self.units.get(timer.key, 0)
        self.units.delete(timer.key)
        self.billed.put(timer.key[0], self.billed.get(timer.key[0], 0) + units)
        self.out.send(timer.key, units)


job = Job("billing", stages=[Bill], partitions=2)
