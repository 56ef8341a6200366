"""A job is done by one judgement of what its tasks say: workers in their reports, the kit's tasks of themselves."""

from dataclasses import dataclass

import pytest

from grete import Input, Job, Output, Record, Task, Topic, TumblingWindow, Window, int64, utf8
from grete.worker.supervisor.completion import have_committed, idle_in

VIEWS = Topic("views", key=utf8, value=int64)


@dataclass(frozen=True)
class Said:
    """The part of a report that is judged."""

    checkpoint_id: int = 0
    idle_in: int | None = None
    ended_in: int | None = None


class Pass(Task):
    """Sends on what it reads: no time plays a part."""

    views = Input(VIEWS)
    out = Output(Topic("passed", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)


class Count(Task):
    """Counts by the minute, in event time."""

    views = Input(VIEWS)
    minutes = TumblingWindow("minutes", 60_000, key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.minutes.update(record.key, record.timestamp, lambda n: (n or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        """Leave it at that."""


TIMED, UNTIMED = Job("count", stages=[Count]), Job("pass", stages=[Pass])
IDLE = [Said(4, idle_in=3), Said(5, idle_in=5)]


@pytest.mark.parametrize(
    ("job", "inputs", "tasks", "ending", "waits", "awaited"),
    [
        (TIMED, 2, IDLE, False, True, 5),
        (TIMED, 2, [*IDLE, Said(9)], False, True, None),
        (TIMED, 1, [Said(9)], False, True, 0),
        (TIMED, 2, [Said(9)], False, False, 0),
        (UNTIMED, 2, [Said(9)], False, True, 0),
        (TIMED, 1, [Said(9, ended_in=8), Said(7, ended_in=6)], True, True, 8),
        (UNTIMED, 1, IDLE, True, False, None),
        (TIMED, 2, [], False, True, None),
    ],
)
def test_a_checkpoint_that_has_what_comes_of_idle_or_ended_inputs_is_awaited(
    job: Job, inputs: int, tasks: list[Said], ending: bool, waits: bool, awaited: int | None
) -> None:
    """It is the last one of all tasks. Where none waits for time it is none; of a drain it is that of the ends."""
    assert idle_in(job, inputs, tasks, ending=ending, waits_for_idle=waits) == awaited


def test_each_task_is_to_have_committed_it() -> None:
    """One that has not holds the job up; a checkpoint that was left out counts as committed."""
    assert have_committed(IDLE, 4)
    assert not have_committed(IDLE, 5)
