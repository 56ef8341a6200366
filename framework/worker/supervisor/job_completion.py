"""Tells when a job is done: all before given ends, and what comes of a drain, is processed and committed (A2b).

How far the inputs are committed, the log says; that all is done, each task, as it lives now: what one said before its
end may never have been committed.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from grete.api.jobs.job import Job
from grete.logs.open_transactions import HiddenInput
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskReport
from grete.state.read.checkpoints.commits import all_wirings, external_ends, readable_ends
from grete.worker.supervisor.completion import have_committed, idle_in, passed, reached, used_up
from grete.worker.supervisor.input_progress import InputProgress
from grete.worker.supervisor.progress import CommitProgress

STILL_S = 0.5  # seconds without a commit while the ends did not move

EndOffsets = dict[TopicPartition, int]


class ExternalEnds:
    """The ends of a job's external inputs."""

    def __init__(self, log: LogReader, job: Job) -> None:
        self._log, self._job = log, job
        self.last = external_ends(log, job)  # as the log last said
        self._seen: list[tuple[int, int]] = []  # committed and end by external input, when they last changed
        self._seen_s = 0.0
        self._cut: EndOffsets = {}

    def ask(self) -> None:
        """Ask the log where they end now. Raises LogAway."""
        self.last = external_ends(self._log, self._job)

    def readable(self, ends: EndOffsets, committed: EndOffsets) -> EndOffsets:
        """Return the ends without trailing offsets that hold no record, as Kafka's transaction markers (S1).

        That is looked for only once nothing moves: it costs a look back.
        """
        state = [(committed.get(partition, 0), end) for partition, end in ends.items()]
        if state != self._seen:
            self._seen, self._seen_s, self._cut = state, time.monotonic(), {}
        if time.monotonic() - self._seen_s > STILL_S and not self._cut:
            self._cut = readable_ends(self._log, {each: committed.get(each, 0) for each in ends}, ends)
        return {partition: self._cut.get(partition, end) for partition, end in ends.items()}


class Completion:
    """Judges by the log, and by what the tasks said last. All tasks of the job are hosted here."""

    def __init__(
        self,
        job: Job,
        log: LogReader,
        ends: ExternalEnds,
        inputs: InputProgress,
        tell: Callable[[str], None],
        *,
        aligned: bool,
    ) -> None:
        """``tell`` gets what is awaited: records that an open transaction hides.

        ``aligned``: the tasks that are not deterministic have their checkpoints in common.
        """
        self.ends, self.inputs = ends, inputs
        self.waits_for_idle = True  # not if the inputs are to end: one that is idle holds back nothing that is late
        self._job, self._log, self._aligned = job, log, aligned
        self.commits = CommitProgress(log)
        self._hidden = HiddenInput(log, inputs.committed, tell)
        # ends, the checkpoint by which they are committed; of the generations that have said so
        self._reached: tuple[EndOffsets, int] | None = None
        self._generations: dict[str, int] = {}  # by task
        self._idle: tuple[EndOffsets, int] | None = None  # ends, a checkpoint in which inputs were idle
        self._drain_ends: EndOffsets | None = None  # where the inputs ended when the job was drained

    def drain(self, ends: EndOffsets) -> None:
        """Take note that the inputs end here (E7)."""
        self._drain_ends, self._reached, self._idle = dict(ends), None, None

    @property
    def draining(self) -> bool:
        """Whether the inputs have ended."""
        return self._drain_ends is not None

    def drained(self, ends: EndOffsets, said: Sequence[Mapping[str, TaskReport]]) -> bool:
        """Tell whether all before ``ends``, or those of the drain, is done; ``said``: of each worker, by task.

        Raises LogAway.
        """
        if self._drain_ends is not None:
            return self._is_done(self._drain_ends, said)
        is_done = self._is_done(ends, said)
        return (is_done or self._hidden.is_due) and self._hidden.is_over(ends) and is_done

    def _is_done(self, ends: EndOffsets, said: Sequence[Mapping[str, TaskReport]]) -> bool:
        committed = self.inputs.committed
        ends = self.ends.readable(ends, committed)
        if any(committed.get(partition, 0) < end for partition, end in ends.items()):
            return False
        tasks = {name: task for of_worker in said for name, task in of_worker.items()}
        if not (all(said) and all(task.settled for task in tasks.values())):
            return False  # a sink, too, has not taken everything
        generations = {name: task.generation for name, task in tasks.items()}
        if generations != self._generations:
            self._generations, self._reached, self._idle = generations, None, None
        deterministic = "deterministic" in self._job.modes
        if (deterministic or not self._aligned) and not self._idle_is_committed(ends, tasks):
            return False
        covered_t = {name: task.covered_t for name, task in tasks.items()}
        if deterministic and not passed(self._log, self._job, ends, self.commits.last_commit, covered_t):
            return False
        if self._job.modes == "deterministic":
            return True
        if not self._aligned:
            return self._have_told(tasks) and used_up(self._log, self._job, ends, self.commits.last_commit)
        if self._reached is None or self._reached[0] != ends:
            checkpoint_id = reached(self._log, self._job, ends, self.commits.last_commit)
            idle = self._idle_in(tasks)
            self._reached = None if checkpoint_id is None or idle is None else (dict(ends), max(checkpoint_id, idle))
        # not below the checkpoint in which they got there: sources close checkpoints on and on, and are always ahead
        aligned = (tasks[each.name] for each in all_wirings(self._job) if not each.deterministic)
        return self._reached is not None and have_committed(aligned, self._reached[1])

    def _have_told(self, tasks: Mapping[str, TaskReport]) -> bool:
        """Tell whether no task has committed since its report: without a guarantee, what was read since may be held."""
        lasts = ((self.commits.last_commit(w.changelog), tasks[w.name]) for w in all_wirings(self._job))
        return all(last is not None and last.commit.checkpoint_id <= task.checkpoint_id for last, task in lasts)

    def _idle_is_committed(self, ends: EndOffsets, tasks: Mapping[str, TaskReport]) -> bool:
        """Tell whether all inputs are idle, or have ended, and the tasks that commit by their timer have done so."""
        if self._idle is None or self._idle[0] != ends:
            idle = self._idle_in(tasks)
            self._idle = None if idle is None else (dict(ends), idle)
        timed = (tasks[each.name] for each in all_wirings(self._job) if each.deterministic or not self._aligned)
        return self._idle is not None and have_committed(timed, self._idle[1])

    def _idle_in(self, tasks: Mapping[str, TaskReport]) -> int | None:
        inputs, waits = len(self.inputs.committed), self.waits_for_idle
        return idle_in(self._job, inputs, tasks.values(), ending=self.draining, waits_for_idle=waits)
