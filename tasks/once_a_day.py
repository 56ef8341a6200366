"""Tells of each alarm of a machine once a day: a store whose entries expire, by the records' timestamps."""

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

DAY_MS = 24 * 3_600_000

alarms = Topic("alarms", key=utf8, value=utf8)  # machine → what is wrong
notices = Topic("notices", key=utf8, value=utf8)


class TellOnce(Task):
    """Remembers for a day what it has told; no timer runs for it, and what has expired is deleted by the way."""

    alarms = Input(alarms)
    told = Store("told", key=utf8, value=int64, ttl_ms=DAY_MS)  # machine/alarm → when it was told, ms
    out = Output(notices)

    def process(self, record: Record[str, str]) -> None:
        what = f"{record.key}/{record.value}"
        if self.told.get(what) is None:
            self.told.put(what, record.timestamp)
            self.out.send(record.key, record.value)


job = Job("alarms", stages=[TellOnce])
