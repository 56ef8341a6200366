"""A job as it is seen at one moment: what its workers have said last. Read by other threads; never changed."""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from grete.core.supervision.process_end import WorkerEnd
from grete.core.supervision.worker_reports import SILENT_S
from grete.protocol.ids import TopicPartition
from grete.protocol.report import Blocked, HotKeys, Reason, StandbyTaskReport, TaskReport, WorkerMeasures
from grete.worker.members.partition_moves import PartitionMove


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process. ``tasks``: by name, ``measures``: of the process; empty and None until it has started.

    ``silent_s``: for how long it has said nothing, in s, though it should. ``stopped``: whether the system says that
    its process is stopped, looked at once it is silent; None: the system does not say.
    """

    number: int
    partitions: tuple[int, ...]  # whose tasks it hosts
    running: bool
    pid: int | None = None
    starts: int = 1
    crashes: int = 0  # in a row, without progress in between
    fenced: bool = False  # another process has its tasks
    halted: bool = False  # it will not be started again: see last_end
    last_end: WorkerEnd | None = None  # until it has committed again
    ends: Mapping[Reason, int] = {}  # how often it has ended, by reason
    tasks: Mapping[str, TaskReport] = {}
    measures: WorkerMeasures | None = None
    silent_s: float = 0.0
    stopped: bool | None = None
    host: str = ""  # of another member, "": it is on this machine

    @property
    def place(self) -> str:
        """The worker in words, with its machine if that is another one."""
        return f"worker {self.number}" + (f" on {self.host}" if self.host else "")

    @property
    def is_silent(self) -> bool:
        """Whether its process runs and has sent no report for SILENT_S."""
        return self.running and self.silent_s >= SILENT_S

    @property
    def blocked(self) -> Blocked | None:
        """The user code in which it has been for longer than any record should take, None: in none."""
        blocked = None if self.measures is None else self.measures.blocked
        return None if self.is_silent else blocked

    @property
    def blocked_since_s(self) -> float:
        """The time in s since 1970 at which the call of user code began that does not end, 0: there is none."""
        return 0.0 if self.blocked is None else self.blocked.since_ms / 1_000


class StandbyView(msgspec.Struct, frozen=True, kw_only=True):
    """The standby of one partition. ``tasks``: by name; empty at first."""

    partition: int
    running: bool
    pid: int | None = None
    starts: int = 1
    behind: int = -1  # messages of its changelogs that are still to be read, -1: it has not all before them
    tasks: Mapping[str, StandbyTaskReport] = {}
    host: str = ""  # of another member, "": it is on this machine


class MemberShown(msgspec.Struct, frozen=True, kw_only=True):
    """A member of the job that lives. ``code``: a digest, "": not known. ``since_ms``: when it began, 0: not known.

    ``reported_s``: how old its last report is, None: it has sent none. ``owns``: how many partitions it is to run.
    """

    session: str
    machine: str
    owns: int
    leads: bool = False
    leaving: bool = False
    code: str = ""
    since_ms: int = 0
    here: bool = False  # it is this process
    reported_s: float | None = None


class Incident(msgspec.Struct, frozen=True):
    """An event of a worker or a task, in words. ``at_ms``: the time in ms since 1970."""

    at_ms: int
    text: str
    kind: Literal["worker", "rollback", "back"] = "worker"


class ServingEnd(msgspec.Struct, frozen=True):
    """The end of the serving process: stopped by its user, or by an error, which says what to do."""

    kind: Literal["stopped", "halted", "failed"]
    text: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or the part of it that one process runs. ``at_ms``: the time in ms since 1970.

    ``busy``: task → the share of the last seconds in which its worker was with it. ``log_trouble``: what the process
    that serves says of a log that does not answer. ``disk_free_bytes``: of the disk of the job's directory.
    ``members``: those that live, None: the job has none. ``moved_ms``: when a partition last moved here, 0: never.
    ``others``: the parts of other members, whose workers and standbys are then among those of this view. ``ages``: of
    their tasks' checkpoints in s, when they were told.
    """

    job: str
    at_ms: int
    workers: tuple[WorkerView, ...]
    standbys: tuple[StandbyView, ...] = ()
    checkpoint_interval_ms: int
    ends: Mapping[str, int] = {}  # "topic[partition]" of an input → where it ends; empty: not known
    busy: Mapping[str, float] = {}
    log_trouble: str | None = None
    disk_free_bytes: int | None = None
    members: tuple[MemberShown, ...] | None = None
    others: tuple["JobView", ...] = ()
    ages: Mapping[str, float] = {}
    partitions_here: int = 0
    moved_ms: int = 0
    host: str = ""
    incidents: tuple[Incident, ...] = ()  # of workers, oldest first
    moves: tuple[PartitionMove, ...] = ()  # of partitions from machine to machine, oldest first
    ended: ServingEnd | None = None

    @property
    def codes(self) -> dict[str, tuple[str, ...]]:
        """Digest of a member's code, "" if it does not tell → the machines that have it."""
        found: dict[str, tuple[str, ...]] = {}
        for member in self.members or ():
            found[member.code] = (*found.get(member.code, ()), member.machine)
        return found

    def tasks(self) -> Iterator[tuple[WorkerView, TaskReport]]:
        """Yield (worker, report) of each task that has said something."""
        for worker in self.workers:
            for task in worker.tasks.values():
                yield worker, task

    def stream_lags(self, task: TaskReport) -> dict[str, int]:
        """Return stream → messages from other tasks that a task has not processed yet, as far as their end is known."""
        lags: dict[str, int] = {}
        for read in task.measures.streams:
            end = self.ends.get(str(TopicPartition(read.topic, read.partition)))
            if end is not None:
                lags[read.topic] = max(0, end - read.offset) + lags.get(read.topic, 0)
        return lags

    def hot_keys(self, name: str) -> HotKeys | None:
        """Return the hottest keys of a task, None: it is not busy enough to tell."""
        measures = (worker.measures for worker in self.workers if name in worker.tasks)
        return next((hot for each in measures if each is not None for hot in each.hot if hot.task == name), None)

    def hottest_share(self, task: TaskReport) -> float | None:
        """Return the share of a task's time that its hottest key has, None: it is not busy enough to tell."""
        hot = self.hot_keys(task.name)
        return None if hot is None else hot.by_time[0][1]

    @property
    def log_away(self) -> str | None:
        """The words of a process that its log does not answer; None: all are answered."""
        here = [worker.measures for worker in self.workers if worker.host in ("", self.host)]
        said = [measures.log_trouble for measures in here if measures is not None]
        return next(filter(None, (*said, self.log_trouble)), None)

    @property
    def ahead_ms(self) -> int:
        """The ms that this machine's clock is before the log's, at least; 0: they agree, or it is not known."""
        known = (worker.measures.ahead_ms for worker in self.workers if worker.measures is not None)
        return min((each for each in known if each is not None), key=abs, default=0)

    @property
    def log_ms(self) -> int:
        """The time by the log's clock, which checkpoints and timestamps go by."""
        return self.at_ms - self.ahead_ms

    def age_s(self, task: TaskReport) -> float | None:
        """Return for how long a task may have had what its last checkpoint has not; None: it has no checkpoint."""
        if (told := self.ages.get(task.name)) is not None:
            return told
        age_ms = self.log_ms - task.checkpoint_id
        if task.rests_ms is not None:  # by this machine's clock
            age_ms = min(age_ms, self.at_ms - task.rests_ms)
        return None if task.checkpoint_id <= 0 else max(0.0, age_ms / 1_000)

    def lags(self, task: TaskReport) -> dict[str, int]:
        """Return topic → records that a task has not committed yet, of the inputs whose end is known."""
        lags: dict[str, int] = {}
        for read in task.inputs:
            end = self.ends.get(str(TopicPartition(read.topic, read.partition)))
            if end is not None:
                lags[read.topic] = lags.get(read.topic, 0) + max(0, end - read.lag_from)
        return lags
