"""The jobs of ``features-RELEASE.tar.xz``: what release 0.2.0 had of ``tests.support.parity``.

A change of these tasks must fit what the archives hold, or they are made again by the first commit that has it.
"""

from grete import Job, Task
from grete.api.tasks.mode import Mode
from tests.support.parity import (
    Alarms,
    Begun,
    Calls,
    Clock,
    Delay,
    Everywhere,
    Forget,
    Joins,
    Later,
    Spread,
    Sums,
    Tables,
    Timed,
    Unequal,
    Windows,
)
from tests.support.parity_records import fed
from tests.support.parity_topics import PARTITIONS

MODES: tuple[Mode, ...] = ("aligned", "deterministic")
FIRST, KILLED, MORE = fed(0, 80), fed(90, 150), fed(160, 240)
CLOCK = "clock"  # the stage that keeps what a clock told, which no second run has again
EXPECTED = "expected.msgpack"  # in the directory of a job: state and outputs of one that nothing befell


def job_of(mode: Mode) -> Job:
    """Return the job of a mode."""
    clock: list[type[Task]] = [Clock] if mode == "deterministic" else []
    first: list[type[Task]] = [Sums, Windows, Delay, Later, Joins, Forget, *clock, Calls, Spread, Unequal, Everywhere]
    return Job(f"features-{mode}", [*first, Tables, Alarms, Begun, Timed], partitions=PARTITIONS, mode=mode)
