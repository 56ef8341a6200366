"""A whole job on this machine: its topics, its workers, and how far they have come."""

import math
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import asdict

from grete.api.jobs.job import Job
from grete.closable import Closable
from grete.core.supervision.assignment import Assignment, HostedShare, check_processes, was_fenced
from grete.core.supervision.supervised_worker import Life, SupervisedWorker
from grete.errors import ExitCode, Fenced, FrameworkError, LogAway, TransientError
from grete.job.directory import JobDirectory
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskReport, TaskState
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings, count_commits, ends_of, last_commit
from grete.worker.supervisor.input_progress import InputProgress
from grete.worker.supervisor.job_completion import Completion, ExternalEnds
from grete.worker.supervisor.supervisor import Supervisor


class TaskReports:
    """The reports by task, as the workers said last.

    ``troubles``: why its sink does not take what it should. ``waits``: for which other tasks it waits, if for long.
    ``failures``: the error of what it last dropped as failed. ``restores``: how many messages of its changelog it has
    read, of how many. ``dropped``: by reason and task, the records since the run began; a task that is started again
    counts from 0, and what its predecessor has said stays. ``released``: outputs of deterministic tasks that are out.
    """

    def __init__(self) -> None:
        """Nothing is said yet."""
        self.changes = -1  # of the supervisor, when they were last taken
        self.troubles: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.restores: dict[str, tuple[int, int]] = {}
        self.dropped: dict[str, dict[str, int]] = {}
        self.released = 0
        self._released: dict[tuple[str, Life], int] = {}  # by task and its life
        self._of_lives: dict[tuple[str, Life], Mapping[str, int]] = {}  # task, its life → records by reason

    def take(self, workers: Iterable[SupervisedWorker]) -> None:
        """Take what the workers said last."""
        self.troubles, self.waits, self.failures, self.restores = {}, {}, {}, {}
        for worker in workers:
            for name, task in worker.reports.tasks.items():
                for said, by_task in (
                    (task.sink_trouble, self.troubles),
                    (task.waits, self.waits),
                    (task.last_failure, self.failures),
                ):
                    if said:
                        by_task[name] = said
                restore = task.restore
                if task.status is TaskState.STARTING and 0 < restore.done < restore.total:
                    self.restores[name] = restore.done, restore.total
                life = worker.life_of(task)
                if task.measures.released:
                    self._released[name, life] = task.measures.released
                self._drop(name, life, asdict(task.dropped))
        self.released = sum(self._released.values())

    def _drop(self, name: str, life: Life, dropped: Mapping[str, int]) -> None:
        before = self._of_lives.get((name, life), {})
        if dropped != before:
            self._of_lives[name, life] = dropped
            for reason, count in dropped.items():
                by_task = self.dropped.setdefault(reason, {})
                by_task[name] = by_task.get(name, 0) + count - before.get(reason, 0)


class OutsideInputs(NamedTuple):
    """The inputs from outside as a run begins: those that are ``fed`` by it, and topic → time where one begins.

    ``starts`` counts for a job that is new to its inputs, whatever its code says.
    """

    fed: Collection[str] = ()
    starts: Mapping[str, datetime] | None = None


WHOLE, OWN_INPUTS = HostedShare(), OutsideInputs()  # all of a job; inputs that others write, and code that says where
ASK_S = 2.0  # for an answer of the log; then workers and signals have their turn, and it is asked again


class LocalJob(Closable):
    """The one supervisor of a job's directory. ``poll`` must be called often: it is what restarts the dead."""

    def __init__(
        self,
        job: Job,
        reference: str,
        job_directory: JobDirectory,
        settings: Settings,
        *,
        inputs: OutsideInputs = OWN_INPUTS,
        patience: Patience | None = None,
        share: HostedShare = WHOLE,
    ) -> None:
        """Make the topics, also the ``inputs`` that are fed here; start nothing yet.

        ``share``: what is hosted here until ``supervisor.assign`` says otherwise.

        ``patience`` is kept while the job starts; once it runs, a log that does not answer is waited for without end.
        Raises ConfigError: a second supervisor, another job's directory, a topic that is missing or wrong.
        """
        self.job = job
        self.job_directory = job_directory
        self.settings = settings
        self.patience = Patience() if patience is None else patience
        fixed_hashes = "deterministic" in job.modes
        check_processes(job.workers, share.processes)
        self._shares = share.assignment is not None  # with other machines
        self.supervisor = Supervisor(
            job_directory,
            reference,
            Assignment(frozenset(range(job.workers))) if share.assignment is None else share.assignment,
            settings,
            processes=share.processes,
            fixed_hashes=fixed_hashes,
        )
        with ExitStack() as opened:
            opened.callback(self.supervisor.close)
            self.log = job_directory.open_log(patience=self.patience)
            opened.callback(self.log.close)
            self.metadata = prepare(job, self.log, job_directory, settings, inputs.fed, starts=inputs.starts)
            ends = ExternalEnds(self.log, job)
            progress = InputProgress(self._positions_in_log(), [wiring.name for wiring in all_wirings(job)])
            self._opened = opened.pop_all()  # from here on close() is responsible
        self.completion = Completion(job, self.log, ends, progress, self.supervisor.tell, aligned=settings.aligned)
        self._reports = TaskReports()
        self._fenced: set[int] = set()  # workers of which the news has been told
        self.patience.seconds = math.inf

    def share(self, more: int) -> None:
        """Let as many workers more, or fewer, share the partitions, once all tasks run; what moves commits first."""
        sharing, most = self.supervisor.core.sharing, self.job.workers
        before = sharing.asked or sharing.processes or most
        processes = min(max(1, before + more), most)
        if processes == before:
            self.supervisor.tell(f"--processes stays {before}: the job has {most} partitions, and one is never divided")
            return
        sharing.asked = processes
        self.supervisor.tell(f"--processes is {processes} now: partitions move as soon as all tasks run")

    def poll(self, timeout_ms: float) -> None:
        """Let the supervisor work. Raises Halted, Fenced, FrameworkError if a worker is gone and will not come back.

        A fenced worker, or task, ends alone: another process does its work. Raises Fenced when all of them are, but not
        where other machines host partitions, too. What has not ended goes on with the next call.
        """
        self.supervisor.poll(timeout_ms)
        workers = self.supervisor.workers
        fenced = {number for number, worker in workers.items() if worker.exit_code == ExitCode.FENCED}
        for number in sorted(fenced - self._fenced):
            self.supervisor.tell(f"{self._was_fenced([number])}; the other workers go on")
        self._fenced = fenced
        for worker in workers.values():
            if worker.exit_code == ExitCode.DONE:
                raise FrameworkError(f"worker {worker.number} was stopped from outside: start the job again")
        if len(fenced) == len(workers) and not self._shares:
            raise Fenced(self._was_fenced(fenced))

    def require_all(self) -> None:
        """Raise Fenced if another process owns one of the tasks; its progress is not visible here."""
        if self._fenced:
            raise Fenced(self._was_fenced(self._fenced))
        for name, task in ChainMap(*(worker.reports.fenced for worker in self.supervisor.workers.values())).items():
            text = "" if task.end is None else f": {task.end.text}"
            raise Fenced(f"{name} was fenced: another process has taken it{text}", task=name)

    def ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the external inputs: now, or when the log last answered."""
        with suppress(LogAway), self.patience.briefly(ASK_S):
            self.completion.ends.ask()
        return self.completion.ends.last

    def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the external inputs, as the workers last said.

        Of an input that is read elsewhere: by what was in the log when this run began, or was here last.
        """
        self._take()
        return self.completion.inputs.committed

    def _take(self) -> None:
        """Take the statuses, unless that was done since the last of them came: it is asked for many times a second."""
        if self._reports.changes == self.supervisor.core.changes:
            return
        self._reports.changes = self.supervisor.core.changes
        active = self.supervisor.core.assignment.active
        self.completion.inputs.host(
            wiring.name for wiring in all_wirings(self.job) if wiring.changelog.partition in active
        )
        self.completion.inputs.take(self.supervisor.workers.values())
        self._reports.take(self.supervisor.workers.values())

    def _tasks(self) -> Iterator[tuple[str, TaskReport]]:
        """Yield the name of each task, and what it said last."""
        for worker in self.supervisor.workers.values():
            yield from worker.reports.tasks.items()

    @property
    def reports(self) -> TaskReports:
        """Return the last reports of the tasks, for a person."""
        self._take()
        return self._reports

    def checkpoint_ids(self) -> dict[str, int]:
        """Return task → last committed checkpoint, as the workers last said; -1: no status yet."""
        self.committed()
        return self.completion.inputs.checkpoint_ids

    def through(self) -> dict[TopicPartition, int]:
        """Return the external inputs' progress through all stages: in checkpoints that every task committed."""
        self.committed()
        return self.completion.inputs.through()

    def records_through(self, ends: dict[TopicPartition, int]) -> tuple[int, int]:
        """Return the number of records through all stages since this run began, and the number it is to take.

        Of what is still to come each offset counts as a record: no task has looked yet.
        """
        with suppress(LogAway), self.patience.briefly(ASK_S):
            ends = self.completion.ends.readable(ends, self.committed())
        self.committed()
        return self.completion.inputs.records_through(ends)

    def records_committed(self) -> int:
        """Return the number of input records committed since this run began, as the workers last said."""
        self.committed()
        return self.completion.inputs.records_committed()

    def drain(self, ends: dict[TopicPartition, int]) -> None:
        """Let the inputs end where all is processed: tasks read no more, and fire what waits for event time (E7)."""
        self.completion.drain(ends)
        self.supervisor.drain()

    def waiting_timers(self) -> int:
        """Return the number of event-time timers, those of windows included, as the workers last said."""
        return sum(task.timers for _, task in self._tasks())

    def waiting_wall_timers(self) -> int:
        """Return the number of wall-clock timers, as the workers last said."""
        return sum(task.wall_timers for _, task in self._tasks())

    def drained(self, ends: dict[TopicPartition, int]) -> bool:
        """Tell whether all before ``ends``, and what comes of ``drain``, is processed and committed (A2b).

        It is not seen from here while another machine hosts a partition.
        """
        if len(self.supervisor.core.assignment.active) < self.job.workers:
            return False
        with suppress(LogAway), self.patience.briefly(ASK_S):
            self._take()
            return self.completion.drained(ends, [worker.reports.tasks for worker in self.supervisor.workers.values()])
        return False

    def _was_fenced(self, numbers: Collection[int]) -> str:
        return was_fenced({number: worker.partitions for number, worker in self.supervisor.workers.items()}, numbers)

    def commits(self) -> int:
        """Return the number of valid commits in all changelogs together. Reads all of them."""
        return sum(count_commits(self.log, wiring.changelog) for wiring in all_wirings(self.job))

    def stop(self) -> None:
        """Stop all workers gracefully (R6)."""
        self.supervisor.stop()

    def require_stopped(self) -> None:
        """Raise TransientError if a worker did not stop, or not in time: its last records are not committed."""
        failures = self.supervisor.core.failures
        if others := [each.text for each in failures if not each.late]:
            raise TransientError("; ".join(others))
        if failures:
            raise TransientError(
                f"{len(failures)} of {len(self.supervisor.workers)} workers did not stop within "
                f"shutdown_timeout_ms = {self.settings.shutdown_timeout_ms}: nothing is lost, and the next start "
                "processes again what they had not committed. Set it higher if that takes too long",
                setting="shutdown_timeout_ms",
            )

    def close(self) -> None:
        """Close the log, end what still runs, and release the directory."""
        self._opened.close()

    def _positions_in_log(self) -> dict[TopicPartition, dict[str, int]]:
        found: dict[TopicPartition, dict[str, int]] = {}
        readers = [wiring for wiring in all_wirings(self.job) if wiring.external]
        ends = ends_of(self.log, (wiring.changelog for wiring in readers))
        starts = self.log.all_bounds(partition for wiring in readers for partition in wiring.external)
        for wiring, (changelog, bounds) in zip(readers, ends, strict=True):
            last = last_commit(self.log, changelog, bounds)
            entries = () if last is None else last.commit.external
            offsets = {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}
            for partition in wiring.external:
                begin = offsets.get(partition)
                if begin is None:
                    begin = max(starts[partition][0], wiring.starts.get(partition, 0))
                found.setdefault(partition, {})[wiring.name] = begin
        return found
