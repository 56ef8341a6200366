"""Reports of worker processes and standbys to their supervisor: JSON objects, one a line of the status pipe.

Within a version a field is only added, with a default. What a process does not know is refused, not passed over. Times
are in ms since 1970 where a name ends in ``at_ms``, durations in ms or s as the name says, sizes in bytes. Counts begin
with the process (docs/decisions/0117).
"""

from enum import StrEnum
from typing import Literal, TypeVar, get_args

import msgspec

from grete.protocol.errors import UnsupportedFormat
from grete.protocol.ids import TopicPartition

REPORT_VERSION = 1

Reason = Literal["halted", "task error", "disk", "log away", "hung", "killed", "aborted", "store corrupted", "other"]
REASONS: tuple[Reason, ...] = get_args(Reason)
TaskEndReason = Literal["fenced", "halted", "task error", "store corrupted"]
ReadUpTo = tuple[tuple[int, ...], tuple[int, ...]]  # offsets in external inputs, and in streams


class TaskState(StrEnum):
    """The state of a task: as its core has it, or that of one that has ended alone."""

    STARTING = "starting"
    GENESIS = "genesis"
    ANNOUNCING = "announcing"
    RUNNING = "running"
    RECLAIMING = "reclaiming"
    STOPPED = "stopped"
    FENCED = "fenced"  # another process owns the task
    HALTED = "halted"  # a person must look
    ENDED = "ended"  # by an error of its own: it will start again


ENDED_STATES = frozenset({TaskState.FENCED, TaskState.HALTED, TaskState.ENDED})  # the task is not there


class StandbyState(StrEnum):
    """The state of the standby of a task."""

    RESTORING = "restoring"
    STANDBY = "standby"  # it has caught up
    STOPPED = "stopped"


class InputPosition(msgspec.Struct, frozen=True):
    """An offset in a partition of an external input: what is before it was read."""

    topic: str
    partition: int
    offset: int


class InputReport(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of an external input. ``offset``: up to where the task has committed it.

    ``lag_from``: up to where nothing is left: ``offset``, or more if only transaction markers, or aborted records, are
    between. ``holes``: the committed offsets at which the task has found no record.
    """

    topic: str
    partition: int
    offset: int
    lag_from: int
    holes: int = 0


class Portion(msgspec.Struct, frozen=True):
    """The part that is done, of a total."""

    done: int
    total: int


class OtherTasks(msgspec.Struct, frozen=True):
    """The tasks for which a task waits, and for how many seconds it has."""

    since_s: float
    tasks: tuple[str, ...]


class OpenCommit(msgspec.Struct, frozen=True):
    """The commit that is on its way. ``step``: what it waits for."""

    checkpoint_id: int
    step: str


class DropCounts(msgspec.Struct, frozen=True):
    """Records that were dropped: late for their window, duplicates of an input, or failed."""

    late: int
    duplicate: int
    failed: int


class EarlyBytes(msgspec.Struct, frozen=True):
    """Records that have arrived before their turn."""

    memory: int
    disk: int


class ErrorPlace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of an error, as far as it is known. ``setting``: the name of the setting that decides."""

    stage: str | None = None
    partition: int | None = None  # of the stage: with it, the task
    topic: str | None = None
    topic_partition: TopicPartition | None = None
    offset: int | None = None
    checkpoint_id: int | None = None
    setting: str | None = None

    @property
    def task(self) -> str | None:
        """The name of the task, None: it is not known, or there is none."""
        return None if self.stage is None or self.partition is None else f"{self.stage}-{self.partition}"


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one task while the others of its worker went on.

    ``code``: of a halt, "" if it is none. ``restart_ms``: after how long it starts again, None: it does not.
    """

    reason: TaskEndReason
    text: str
    traceback: str
    code: str
    restart_ms: int | None
    at_ms: int
    place: ErrorPlace = ErrorPlace()


class TaskMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a task that metrics show. ``commit_counts``: commits by the bucket of their duration."""

    records_in: int
    records_out: int
    dead_letters: int
    released: int
    commits: int
    commit_counts: tuple[int, ...]
    commit_sum_s: float
    commit_steps_s: dict[str, float]
    changelog_bytes: int
    restored: int
    restore_left: int
    uncommitted_bytes: int
    unacknowledged_bytes: int
    held_bytes: int
    early_bytes: EarlyBytes
    sink_bytes: int
    held_up: bool
    held_by: str | None = None
    sent_to: dict[str, int] = {}  # topic → records
    streams: tuple[InputPosition, ...] = ()  # from other tasks: what is before is processed
    event_time_ms: int | None


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a task.

    ``checkpoint_id``: of its last commit, -1: none is known. ``covered_t``: the logical time up to which it is done.
    ``began``: from where it reads in this life, () until that is known. ``read_up_to``: from where its last commit
    reads on, None: no commit is known. ``idle_in``, ``ended_in``: the checkpoint that says that all inputs are idle,
    or have ended, None: none does. ``rests_ms``: when it last had nothing that is not committed, None: it has
    something. ``channels``: those that have reached what it waits for. ``settled``: all that is committed has gone out.
    ``waits``, ``behind``: for which tasks it waits, in words and as a list, None: for none, or not for long.
    ``end``: its last end alone, until it has committed what it read since. ``ends``: by reason. ``life``: its starts.
    """

    stage: str
    partition: int
    status: TaskState
    generation: int
    checkpoint_id: int
    covered_t: int
    inputs: tuple[InputReport, ...]
    began: tuple[InputPosition, ...]
    read_up_to: ReadUpTo | None
    restore: Portion
    counters: dict[str, int]
    rollbacks: int
    dropped: DropCounts
    last_failure: str
    idle_in: int | None
    ended_in: int | None
    timers: int
    wall_timers: int
    commit: OpenCommit | None
    rests_ms: int | None
    channels: Portion
    settled: bool
    sink_trouble: str | None
    measures: TaskMeasures
    waits: str | None = None
    behind: OtherTasks | None = None
    end: TaskEnd | None = None
    ends: dict[TaskEndReason, int] = {}
    life: int = 0
    busy_s: float = 0.0

    @property
    def name(self) -> str:
        """The name of the task: stage and partition."""
        return f"{self.stage}-{self.partition}"


class CodeAt(msgspec.Struct, frozen=True):
    """A line of a user's code, and the function that it is in."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}, in {self.function}"


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """User code in which nothing goes on: ``at`` its first line, ``inner`` its last one.

    ``task``: whose turn it is, None: it is an async function, and holds up the loop of all calls.
    """

    since_ms: int
    at: CodeAt
    inner: CodeAt
    task: str | None = None


class HotKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys, as text, with which a task spends most time, and which come most often, each with its share, 0 to 1."""

    task: str
    by_time: tuple[tuple[str, float], ...]
    by_count: tuple[tuple[str, float], ...]


class WorkerMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one worker process.

    ``log_trouble``: what it says of a log that does not answer, ``in_line``: the line of user code in which a long turn
    is, ``blocked``: the call of user code that does not end, None or "": there is none. ``hot``: keys of busy tasks.
    ``goes_on``: whether anything is done since the last report. ``ahead_ms``: of this clock before the log's.
    """

    busy_s: float
    rocksdb_memory_bytes: int
    state_disk_bytes: int
    log_trouble: str | None = None
    in_line: str = ""
    blocked: Blocked | None = None
    goes_on: bool = True
    hot: tuple[HotKeys, ...] = ()
    ahead_ms: int | None = None


class EndReport(msgspec.Struct, frozen=True, kw_only=True):
    """The error that ends a process, in its last report.

    ``text``: for a person. ``code``: of a halt, "" if it is none. ``traceback``: of the user's code, or "".
    """

    reason: Reason
    text: str
    code: str = ""
    traceback: str = ""
    place: ErrorPlace = ErrorPlace()


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a worker process: of its tasks, its ``measures``, the error that is its ``end``, its exit code."""

    version: int = REPORT_VERSION
    tasks: tuple[TaskReport, ...]
    measures: WorkerMeasures | None = None
    end: EndReport | None = None
    exit: int | None = None


class StandbyTaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a task's standby. ``checkpoint_id``: the checkpoint in its store, -1: none.

    ``position``: the offset in the changelog that the store includes, -1: none. ``read``, ``end``: offsets of the
    changelog. ``behind``: messages that a task on it would read, -1: all. ``trouble``: why it does not go on, or "".
    """

    stage: str
    partition: int
    status: StandbyState
    checkpoint_id: int
    position: int
    read: int
    end: int
    behind: int
    trouble: str
    counters: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the task: stage and partition."""
        return f"{self.stage}-{self.partition}"


class StandbyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a standby process on its tasks; on none: its stores are free. ``end``: as that of a worker."""

    version: int = REPORT_VERSION
    tasks: tuple[StandbyTaskReport, ...]
    end: EndReport | None = None


AnyReport = WorkerReport | StandbyReport
_R = TypeVar("_R", WorkerReport, StandbyReport)
_WORKER, _STANDBY = msgspec.json.Decoder(WorkerReport), msgspec.json.Decoder(StandbyReport)


def encode_report(report: AnyReport) -> bytes:
    """Return a report as a line of the pipe, without its end."""
    return msgspec.json.encode(report)


def decode_worker_report(line: bytes) -> WorkerReport | None:
    """Return the report in a line, None: it is a sign of life, or was cut short. Raises UnsupportedFormat."""
    return _decoded(_WORKER, line)


def decode_standby_report(line: bytes) -> StandbyReport | None:
    """Return the report in a line, None: it is a sign of life, or was cut short. Raises UnsupportedFormat."""
    return _decoded(_STANDBY, line)


def _decoded(decoder: "msgspec.json.Decoder[_R]", line: bytes) -> _R | None:
    try:
        report = decoder.decode(line) if line else None
    except msgspec.ValidationError as error:
        raise UnsupportedFormat(f"a report: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if report is not None and report.version != REPORT_VERSION:
        raise UnsupportedFormat(f"a report of version {report.version}, and this build knows version {REPORT_VERSION}")
    return report
