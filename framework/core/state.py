"""What a task knows: mostly a function of its last commit and of what it has read and sent since."""

from collections import Counter
from enum import Enum, auto

from framework.core.actions import Action, Seek, Send
from framework.core.commit import CommitRun, Sweep
from framework.core.early import EarlyBuffer
from framework.core.inputs import Inputs
from framework.core.limits import Limits
from framework.core.source import VersionClock
from framework.core.start import StartUp
from framework.core.wiring import TaskWiring
from framework.errors import ConfigError
from protocol.commit import Commit
from protocol.ids import LineageEntry, TopicPartition


class Status(Enum):
    """Where a task stands."""

    STARTING = auto()  # start.py is at work
    GENESIS = auto()  # the first commit of all is on its way (A2)
    ANNOUNCING = auto()  # restore messages are not yet acknowledged (R2)
    RUNNING = auto()
    RECLAIMING = auto()  # rolling back: the claim of the next generation is on its way (C6)
    STOPPED = auto()


class TaskState:
    """The state of a TaskCore, and what only reads or resets it."""

    def __init__(self, task: TaskWiring, limits: Limits, *, aligned: bool) -> None:
        self.task = task
        self.limits = limits
        self.aligned = aligned
        self.status = Status.STARTING
        self.clock = VersionClock(limits.interval_ms)
        early = EarlyBuffer(limits.early_memory_bytes_max, limits.early_bytes_max)
        self.inputs = Inputs(task.name, task.channels, early, task.fingerprint, aligned=aligned)
        self.external: dict[TopicPartition, int] = {}
        self.ended: dict[TopicPartition, bool] = dict.fromkeys(task.external, False)
        self.next_seq: dict[TopicPartition, int] = dict.fromkeys(task.outputs, 1)
        self.lineage: tuple[LineageEntry, ...] = ()
        self.committed: Commit | None = None  # the last valid commit
        self.frozen = (
            0  # last version frozen: everything up to it is closed; the open version, the label, is frozen + 1
        )
        self.commit_run: CommitRun | None = None
        self.sweep = Sweep()
        self.seen: Counter[str] = self.inputs.seen
        self._start: StartUp | None = None
        self._token = 0
        self._acked = 0
        self._closing: int | None = None  # version to freeze when the outputs are flushed
        self._processing = False
        self._roll_back = False
        self._stopping = False
        self._stop_closed = False  # the last version of a graceful stop was closed
        self._mono_ms = 0
        self._open_bytes = 0
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}  # of the partitions, as of Start

    @property
    def generation(self) -> int:
        """Return the generation that this process has claimed."""
        return 0 if self._start is None else self._start.ownership.generation

    @property
    def start_up(self) -> StartUp:
        """Return the start, for what it counted. Raises AssertionError before Start."""
        assert self._start is not None
        return self._start

    @property
    def _layer_is_full(self) -> bool:
        """Whether the open layer is near its bound: its version must be closed (A9); a source can wait for that."""
        return self._open_bytes > self.limits.layer_bytes_max // 2

    @property
    def _by_timer(self) -> bool:
        return self.task.is_source or not self.aligned

    def _send(self, partition: TopicPartition, value: bytes) -> Send:
        self._token += 1
        return Send(self._token, partition, value)

    def _seek(self) -> list[Action]:
        return [
            Seek(partition, offset) for partition, offset in (*self.inputs.position.items(), *self.external.items())
        ]

    def _resume(self, commit: Commit) -> None:
        """Set everything that is a function of the last commit."""
        self._check_wiring(commit)
        self.committed, self.frozen, self.commit_run = commit, commit.version, None
        self.inputs.reset(commit)
        committed = {TopicPartition(e.topic, e.partition): e.offset for e in commit.external}
        self.external = {p: committed.get(p, self._bounds[p][0]) for p in self.task.external}
        self.next_seq |= {TopicPartition(o.topic, o.partition): o.next_seq for o in commit.outputs}
        self._closing, self._processing, self._roll_back = None, False, False
        self.ended, self._open_bytes = dict.fromkeys(self.external, False), 0

    def _check_wiring(self, commit: Commit) -> None:
        """Refuse a commit of another topology (1.2): stages may be added after the others, nothing else."""
        channels = {(c.producer, TopicPartition(i.topic, i.partition)) for i in commit.inputs for c in i.channels}
        outputs = {TopicPartition(o.topic, o.partition) for o in commit.outputs}
        external = {TopicPartition(e.topic, e.partition) for e in commit.external}
        gone = [
            *(f"input {p} from producer {u}" for u, p in sorted(channels ^ set(self.task.channels))),
            *(f"output {p}" for p in sorted(outputs - set(self.task.outputs))),
            *(f"external input {p}" for p in sorted(external - set(self.task.external))),
        ]
        if gone:
            raise ConfigError(
                f"{self.task.name}: the job's graph is not the one of its last commit (version {commit.version}): "
                f"{', '.join(gone[:5])} differ. Add stages after the others only; to change partition counts, rescale"
            )
