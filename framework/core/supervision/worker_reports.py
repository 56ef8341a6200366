"""The reports of a worker process: its tasks, how far they are, and which of them other processes have."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from grete.core.supervision.process_end import indented
from grete.protocol.report import (
    EndReport,
    ReadUpTo,
    Reason,
    TaskEnd,
    TaskEndReason,
    TaskReport,
    TaskState,
    WorkerMeasures,
    WorkerReport,
)

_FAILURES: tuple[Literal["task error", "store corrupted"], ...] = (
    "task error",
    "store corrupted",
)  # a halt is to end the worker; fenced is no failure

SILENT_S = 5.0  # a worker reports twice a second, its watch once: on a busy machine, too, it has missed several turns


class WorkerReports:
    """The last reports of one worker: its ``tasks`` by name, its ``measures``.

    ``end``, ``exit``: why its process ends, and with which code. ``checkpoint_id``: the highest that one of its tasks
    has committed, -1: none is known. ``fenced``: the tasks that another process has, by name, as they were said last.
    ``still_s``: for how long it has not gone on, as far as it has said; ``silent_s``: for how long it has said nothing.
    """

    def __init__(self) -> None:
        """Nothing was reported yet."""
        self.tasks: Mapping[str, TaskReport] = {}
        self.measures: WorkerMeasures | None = None
        self.end: EndReport | None = None
        self.exit: int | None = None
        self.checkpoint_id = -1
        self.fenced: dict[str, TaskReport] = {}
        self.still_s = self.silent_s = 0.0
        self._missed = False  # a person was told that it says nothing
        self._read_up_to: dict[str, ReadUpTo] = {}  # task → what it has read and committed, of all lives
        self._ends: dict[str, Mapping[TaskEndReason, int]] = {}  # task → its ends alone in this process, as told
        self._states: dict[int, set[TaskState]] = {}  # of its tasks, by partition

    def process_started(self) -> None:
        """Take note that what comes next is said by a new process."""
        self.forget()
        self.end, self.exit, self._ends = None, None, {}
        self.still_s, self.silent_s, self._missed = 0.0, 0.0, False

    def forget(self) -> None:
        """Forget what was said last: that is not true of the dead."""
        self._be({})
        self.measures = None

    def begin_again(self, partitions: Collection[int], again: Collection[int]) -> None:
        """Know of no checkpoint, and keep in mind what is fenced of these partitions, but not ``again``."""
        self.checkpoint_id = -1
        self.keep_fenced(partitions, again)

    def keep_fenced(self, partitions: Collection[int], again: Collection[int] = ()) -> None:
        """Keep in mind which tasks another process has, of the partitions that are to be here, but not ``again``."""
        stay = set(partitions).difference(again)
        self.fenced = {name: task for name, task in self.fenced.items() if task.partition in stay}

    def take(self, report: WorkerReport, partitions: Collection[int]) -> tuple[bool, Counter[Reason], list[str]]:
        """Take a report of a worker that is to host these partitions.

        Return whether something was read and committed since the last one, how often tasks have failed by reason, and
        what a person is to be told.
        """
        self.silent_s = 0.0
        if report.measures is None or report.measures.goes_on:
            self.still_s = 0.0
        said = {task.name: task for task in report.tasks}
        self.measures, self.end, self.exit = report.measures, report.end, report.exit
        failures, news = self._failures(said), list(self._news(said))
        self._ends = {name: task.ends for name, task in said.items()}
        known = self.fenced | said
        self.fenced = {name: task for name, task in known.items() if task.status is TaskState.FENCED}
        self.keep_fenced(partitions)
        self._be(said | {name: task for name, task in self.fenced.items() if name not in said})
        self.checkpoint_id = max(self.checkpoint_id, *(task.checkpoint_id for task in self.tasks.values()), -1)
        return self._has_read(said), failures, news

    def lives(self) -> None:
        """Take a sign of life: its loop, or a record in it, has gone on."""
        self.still_s = self.silent_s = 0.0

    def missed(self, gap_s: float) -> bool | None:
        """Count a time in which nothing was said; return whether it says nothing, if that is news, else None."""
        self.silent_s += gap_s
        missed = self.silent_s >= SILENT_S
        if missed == self._missed:
            return None
        self._missed = missed
        return missed

    @property
    def takes_input(self) -> bool:
        """Whether all its tasks take input."""
        return bool(self.tasks) and all(
            states <= {TaskState.RUNNING, TaskState.FENCED} for states in self._states.values()
        )

    @property
    def partitions(self) -> Collection[int]:
        """The partitions whose tasks are there, or were fenced."""
        return self._states.keys()

    def states(self, partition: int) -> set[TaskState]:
        """Return the states of a partition's tasks."""
        return self._states.get(partition, set())

    def _be(self, tasks: Mapping[str, TaskReport]) -> None:
        self.tasks, self._states = tasks, {}
        for task in tasks.values():
            self._states.setdefault(task.partition, set()).add(task.status)

    def _has_read(self, said: Mapping[str, TaskReport]) -> bool:
        """Whether one of its tasks has committed more than it, or a process before this one, had when it last said."""
        now = {name: task.read_up_to for name, task in said.items()}
        has_read = any(moved(self._read_up_to.get(name), each) for name, each in now.items())
        self._read_up_to |= {name: each for name, each in now.items() if each is not None}
        return has_read

    def _failures(self, said: Mapping[str, TaskReport]) -> Counter[Reason]:
        failures = Counter[Reason]()
        for name, task in said.items():
            for reason in _FAILURES:
                failures[reason] += task.ends.get(reason, 0) - self._ends.get(name, {}).get(reason, 0)
        return failures

    def _news(self, said: Mapping[str, TaskReport]) -> Iterator[str]:
        for name, task in said.items():
            ended = sum(task.ends.values()) > sum(self._ends.get(name, {}).values())
            if ended and task.end is not None:  # else it has committed again since
                yield _text(name, task.end)


def moved(before: ReadUpTo | None, now: ReadUpTo | None) -> bool:
    """Whether something was read between two commits. The first one of all has read nothing."""
    return before is not None and now is not None and before != now


def _text(name: str, end: TaskEnd) -> str:
    if end.reason == "fenced":
        return f"{name} was fenced: another process has taken it; the other tasks go on: {end.text}"
    if end.restart_ms is None:
        return f"{name} has halted; the other tasks of its worker stop: {end.text}"
    restart = f"the other tasks go on; it starts again in {end.restart_ms / 1000:.1f} s"
    return f"{name} ended ({end.reason}): {end.text}; {restart}{indented(end.traceback)}"
