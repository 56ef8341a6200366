"""Ranges of commits for an audit's steps, task by task: aligned tasks share checkpoints."""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from grete.api.jobs.job import Job
from grete.batch.channels import stages_in_order
from grete.errors import ConfigError
from grete.ports import JobLogReader
from grete.replay.audit import steps
from grete.replay.audit.audited_task import AuditedTask
from grete.replay.audit.steps import AuditStep, AuditTally, RemadeMessage, records_between
from grete.state.read.checkpoints.commit_search import at_most
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import Snapshot, id_of_all, snapshots


class AuditCourse(Protocol):
    """``carried``: what tasks have sent that others have not taken yet. It is noted with the place.

    ``lost``: why no step can follow that which has been made, if none can.
    """

    carried: list[RemadeMessage]
    lost: str

    def begin(self, newest: list[Snapshot]) -> list[Snapshot] | None:
        """Return the commits at which an audit begins, given the newest ones; None: it must wait."""

    def step(self, base: list[Snapshot], newest: list[Snapshot]) -> tuple[AuditStep, list[Snapshot]] | None:
        """Make a step of all tasks again, each after those that it reads; return where it ends. None: nothing is new.

        Raises as ``AuditedTask.step``.
        """


class AlignedCourse:
    """The way from one checkpoint of all tasks to a later one."""

    def __init__(self, job: Job, log: JobLogReader, tasks: Sequence[AuditedTask]) -> None:
        self._job, self._log, self._tasks = job, log, tasks
        self.carried: list[RemadeMessage] = []
        self.lost = ""

    def begin(self, newest: list[Snapshot]) -> list[Snapshot]:
        """As of AuditCourse."""
        return newest

    def step(self, base: list[Snapshot], newest: list[Snapshot]) -> tuple[AuditStep, list[Snapshot]] | None:
        """As of AuditCourse."""
        goal, caught_up = self._goal(base, newest)
        if [each.offset for each in goal] == [each.offset for each in base]:
            return None
        sent = defaultdict[tuple[int, int], list[RemadeMessage]](list)  # stage, partition → what it reads
        consumers = {stream.topic: stream.consumer for stream in self._job.topology().streams}
        tally = AuditTally()
        for stage in stages_in_order(self._job):
            for partition, number in enumerate(range(*self._job.tasks_of(stage.ordinal).indices(len(self._tasks)))):
                task, before, after = self._tasks[number], base[number], goal[number]
                taken = sent.pop((stage.ordinal, partition), [])
                if before.offset == after.offset and not taken:
                    continue
                frames, compared = task.step(self._log, before.commit, after, taken)
                for frame in frames:
                    topic, place = frame.partition
                    sent[consumers[topic], place].append(
                        RemadeMessage(frame.producer, topic, place, frame.first, frame.start, frame.message)
                    )
                tally.add(stage.name, compared)
        return tally.told(id_of_all(base), id_of_all(goal), caught_up=caught_up), goal

    def _goal(self, base: list[Snapshot], newest: list[Snapshot]) -> tuple[list[Snapshot], bool]:
        """Return a later checkpoint that is not too far, and whether it is the newest."""
        newest = goal = _forward(base, newest)
        low, high = id_of_all(base), id_of_all(newest)
        while _records(base, goal) > steps.STEP_RECORDS_MAX and high - low > 1:
            middle = (low + high) // 2
            found = self._at_most(base, middle)
            if found is None or not _records(base, found):
                low = middle
            else:
                goal, high = found, middle
        return goal, goal is newest

    def _at_most(self, base: list[Snapshot], checkpoint_id: int) -> list[Snapshot] | None:
        """Return a checkpoint up to this one, or None."""
        wirings = all_wirings(self._job)
        inner = [wiring for wiring in wirings if not wiring.is_source] or wirings
        with contextlib.suppress(ConfigError):
            found = at_most(self._log, inner[0], checkpoint_id).commit.checkpoint_id
            return _forward(base, snapshots(self._log, self._job, found))
        return None


def _forward(base: list[Snapshot], found: list[Snapshot]) -> list[Snapshot]:
    """Return a checkpoint at which no task is behind ``base``: one that nothing reads may have gone on alone."""
    return [max(pair, key=lambda each: each.offset) for pair in zip(base, found, strict=True)]


def _records(base: Sequence[Snapshot], goal: Sequence[Snapshot]) -> int:
    """Return the number of offsets from outside between two checkpoints."""
    return sum(records_between(before, after) for before, after in zip(base, goal, strict=True))
