"""The job of bursting_job, whose records wait for a call."""

from grete import Call, Input, Job, Output, Record, Store, Task, Timer, Timers, int64, utf8
from tests.event_time.bursting_job import FIRST_MS, IN, OUT, STEP_MS


async def look(key: str) -> str:
    """Return the argument."""
    return key


class Report(Task):
    """Each minute reports its time; each record says how many reports were before it, as a negative number."""

    name = "report"
    beats = Input(IN)
    look = Call(look)
    timers = Timers()
    count = Store("count", key=utf8, value=int64)
    out = Output(OUT)

    async def process(self, record: Record[str, str]) -> None:
        """Say it, and begin with the first."""
        await self.look(record.key)
        if record.timestamp == FIRST_MS:
            self.timers.schedule(FIRST_MS + STEP_MS)
        self.out.send(record.key, -self.count.get("", 0))

    def on_timer(self, timer: Timer) -> None:
        """Report, and again in a minute."""
        self.count.put("", self.count.get("", 0) + 1)
        self.out.send("minute", timer.at)
        self.timers.schedule(timer.at + STEP_MS)


job = Job("bursting", stages=[Report])
