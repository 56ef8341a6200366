"""A job with a timer a minute, of which two wait for a file beside the job's directory: a test comes between."""

import os
import time
from pathlib import Path

from grete import Input, Job, Output, Record, Task, Timer, Timers, Topic, int64, utf8

BURST = 3_000
STOPPED, KILLED = 1_500, 2_500  # the timers that wait
FIRST_MS = 1_600_000_000_000
STEP_MS = 60_000
IN = Topic("beats", key=utf8, value=utf8)
OUT = Topic("reports", key=utf8, value=int64)
FOLDER = "GATED_BURST_FOLDER"  # the variable that names where the files are


def _wait(number: int) -> None:
    folder = Path(os.environ[FOLDER])
    (folder / f"at-{number}").touch()
    while not (folder / f"gate-{number}").exists():
        time.sleep(0.01)


class Report(Task):
    """Each timer reports its time, each record the negative of its own."""

    name = "report"
    beats = Input(IN)
    timers = Timers()
    out = Output(OUT)

    def process(self, record: Record[str, str]) -> None:
        """Report, and begin with the first."""
        if record.timestamp == FIRST_MS:
            self.timers.schedule(FIRST_MS + STEP_MS)
        self.out.send("record", -record.timestamp)

    def on_timer(self, timer: Timer) -> None:
        """Report, and again in a minute."""
        number = (timer.at - FIRST_MS) // STEP_MS
        if number in (STOPPED, KILLED):
            _wait(number)
        self.out.send("timer", timer.at)
        self.timers.schedule(timer.at + STEP_MS)


job = Job("gated", stages=[Report])
