"""A job with a timer a minute, which a record that is far ahead makes due a hundred thousand times at once."""

from grete import Input, Job, Output, Record, Store, Task, Timer, Timers, Topic, int64, utf8

BURST = 100_000
FIRST_MS = 1_600_000_000_000
STEP_MS = 60_000
IN = Topic("beats", key=utf8, value=utf8)
OUT = Topic("reports", key=utf8, value=int64)


class Report(Task):
    """Each minute reports its time; each record says how many reports were before it, as a negative number."""

    name = "report"
    beats = Input(IN)
    timers = Timers()
    count = Store("count", key=utf8, value=int64)
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        """Say it, and begin with the first."""
        count = self.count.get("", 0)
        if record.timestamp == FIRST_MS:
            self.timers.schedule(FIRST_MS + STEP_MS)
        self.out.send(record.key, -count)

    def on_timer(self, timer: Timer) -> None:
        """Report, and again in a minute."""
        self.count.put("", self.count.get("", 0) + 1)
        self.out.send("minute", timer.at)
        self.timers.schedule(timer.at + STEP_MS)


def bursting() -> Job:
    """Return the job."""
    return Job("bursting", stages=[Report])


job = bursting()
