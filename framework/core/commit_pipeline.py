"""The part that the cores of both modes share: start, ownership, and a checkpoint on its way to changelog and store.

Each mode decides when it closes a checkpoint and what that holds; from there on both go the same way (A7, C3, R1).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping

from framework.core.actions import Action, ApplyFrozen, Send, Trim, WriteData
from framework.core.changelog_rewrite import ChangelogRewrite
from framework.core.checkpoint_clock import CheckpointClock
from framework.core.commit import PendingCommit
from framework.core.events import ChangelogEnd, ChangelogRow, DataWritten, OutcomeFound
from framework.core.graph_check import check_commit
from framework.core.lifecycle import COMMIT, CommitStep, Lifecycle, StartupPhase, TaskStatus
from framework.core.limits import Limits
from framework.core.startup import StartUp
from framework.core.task_topology import TaskWiring
from framework.errors import Halted
from protocol.changelog import ChangelogType
from protocol.changelog_position import ChangelogPosition
from protocol.commit import Commit, ExternalInput, OutputCommit, encode_commit
from protocol.ids import RollbackEntry, TopicPartition


class BaseCore(ABC):
    """The state of a core, and the steps that do not depend on its mode."""

    lifecycle: Lifecycle[TaskStatus]  # of the mode

    def __init__(self, task: TaskWiring, limits: Limits) -> None:
        self.task = task
        self.limits = limits
        self.status = self.lifecycle.first
        self.clock = CheckpointClock(limits.checkpoint_interval_ms)
        self.external: dict[TopicPartition, int] = {}
        self.ended: dict[TopicPartition, bool] = dict.fromkeys(task.external, False)
        self.next_seq: dict[TopicPartition, int] = dict.fromkeys(task.outputs, 1)
        self.rollback_history: tuple[RollbackEntry, ...] = ()
        self.committed: Commit | None = None  # the last valid commit
        self.frozen = (
            # last checkpoint frozen: everything up to it is closed; the open checkpoint, the checkpoint id, is frozen +
            # 1
            0
        )
        self.pending_commit: PendingCommit | None = None
        self.rewrite = ChangelogRewrite()
        self.seen: Counter[str] = Counter()
        self._start: StartUp | None = None
        self._token = 0
        self._acked = 0
        self._stopping = False
        self._stop_closed = False  # the last checkpoint of a graceful stop was closed
        self._mono_ms = 0
        self._open_bytes = 0
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}  # of the partitions, as of Start

    @abstractmethod
    def _positions(self) -> Mapping[TopicPartition, int]:
        """Return what is to be read next of each internal input partition."""

    @abstractmethod
    def _freeze(self, checkpoint_id: int) -> list[Action]:
        """Close a checkpoint: a PendingCommit begins."""

    @abstractmethod
    def _go_on(self) -> list[Action]:
        """Take up the work from the last commit."""

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
    def _open_batch_is_full(self) -> bool:
        """Whether the open write batch is near its bound.

        Its checkpoint must then be closed (A9); a source can wait for that.
        """
        return self._open_bytes > self.limits.uncommitted_state_bytes_max // 2

    def _send(self, partition: TopicPartition, value: bytes) -> Send:
        self._token += 1
        return Send(self._token, partition, value)

    def _become(self, status: TaskStatus) -> None:
        self.status = self.lifecycle.change(self.task.name, self.status, status)

    def _advance(self, pending: PendingCommit, step: CommitStep) -> None:
        pending.step = COMMIT.change(self.task.name, pending.step, step)

    # --- start ---

    def _start_read(self, event: ChangelogRow | ChangelogEnd | OutcomeFound) -> list[Action]:
        """Take what a start reads of its changelog."""
        start = self.start_up
        if isinstance(event, OutcomeFound):
            actions = start.outcome(event)
        else:
            actions = start.row(event) if isinstance(event, ChangelogRow) else start.end(event)
        return actions + self._started() if start.phase is StartupPhase.DONE else actions

    def _started(self) -> list[Action]:
        """Ownership is settled, the store agrees with the last commit: go on from it, or make the genesis (A2)."""
        fold = self.start_up.fold
        self.rollback_history = fold.rollback_history
        bounds = self._bounds
        if fold.last is None:
            late = [f"{p} starts at {bounds[p][0]}" for p in self._positions() if bounds[p][0] > 0]
            if late:
                raise Halted(
                    f"{self.task.name} has no commit, but {', '.join(late)}: its changelog was deleted; "
                    "delete the whole job's topics"
                )
            self.external = {p: bounds[p][0] for p in self.task.external}
            self._become(TaskStatus.GENESIS)
            self.frozen = -1
            return self._freeze(0)
        last = fold.last
        self.rewrite = ChangelogRewrite(last.cursor, last.round_start, last.base, last.round_started_ms, last.rounds)
        if last.checkpoint_id > 0:  # its own round, if it ended with it, is not in it yet
            now = self.clock.now(self._mono_ms)
            self.rewrite.committed(fold.last_offset, now, last.cursor, self.limits.changelog_retention_ms)
        self._resume(last)
        for partition, position in (*self._positions().items(), *self.external.items()):
            # an instance that has committed since may have passed the end seen at Start: the driver looks when it seeks
            if position < bounds[partition][0]:
                raise Halted(
                    f"{self.task.name} resumes at {partition} offset {position}, but the log starts at "
                    f"{bounds[partition][0]} (K3): its retention is too short"
                )
        return self._go_on()

    def _resume(self, commit: Commit) -> None:
        """Set everything that is a function of the last commit."""
        self._check(commit)  # what was read before the claim may not have been the last one
        self.committed, self.frozen, self.pending_commit = commit, commit.checkpoint_id, None
        committed = {TopicPartition(e.topic, e.partition): e.offset for e in commit.external}
        self.external = {p: committed.get(p, self._bounds[p][0]) for p in self.task.external}
        self.next_seq |= {TopicPartition(o.topic, o.partition): o.next_seq for o in commit.outputs}
        self.ended, self._open_bytes = dict.fromkeys(self.external, False), 0

    def _check(self, commit: Commit) -> None:
        """Refuse a last commit that this task cannot go on from: before the claim, so that nothing is written (C1)."""
        check_commit(self.task, commit)

    # --- a commit on its way ---

    def _external_inputs(self) -> tuple[ExternalInput, ...]:
        return tuple(ExternalInput(p.topic, p.partition, offset) for p, offset in self.external.items())

    def _output_seqs(self) -> tuple[OutputCommit, ...]:
        return tuple(OutputCommit(p.topic, p.partition, seq) for p, seq in self.next_seq.items())

    def _write_data(self, pending: PendingCommit) -> list[Action]:
        if self._acked < pending.last_token:
            return []
        self._advance(pending, CommitStep.DATA)
        return [WriteData(self.generation, self.start_up.ownership.next_seq, self.rewrite.cursor)]

    def _commit_message(self, event: DataWritten) -> bytes:
        """Return the commit of the checkpoint that is frozen, now that its data is sent."""
        pending, ownership = self.pending_commit, self.start_up.ownership
        assert pending is not None and pending.step is CommitStep.DATA
        self._advance(pending, CommitStep.COMMIT)
        ownership.count(event.count)
        previous = self.committed
        self._commit_sent = Commit(
            producer=self.task.producer,
            generation=self.generation,
            checkpoint_id=pending.checkpoint_id,
            previous=-1 if previous is None else previous.checkpoint_id,
            rollback_history=self.rollback_history,
            outputs=pending.outputs,
            data_count=event.count,
            data_digest=event.digest,
            attempt=0,
            cursor=event.cursor,
            round_start=self.rewrite.round_start,
            base=self.rewrite.base,
            fingerprint=self.task.fingerprint,
            at_end=pending.at_end,
            inputs=pending.inputs,
            known=pending.known,
            external=pending.external,
            deterministic=pending.deterministic,
            nonce=ownership.claim.nonce,
            round_started_ms=self.rewrite.started_ms,
            rounds=self.rewrite.rounds,
        )
        return encode_commit(ownership.header(ChangelogType.COMMIT), self._commit_sent)

    def _verified(self) -> list[Action]:
        """The commit is valid (C2): it is the truth from now on."""
        pending = self.pending_commit
        assert pending is not None and pending.step is CommitStep.VERIFY
        self._advance(pending, CommitStep.APPLY)
        self.committed = self._commit_sent
        return [
            ApplyFrozen(
                ChangelogPosition(
                    pending.offset, self.generation, pending.checkpoint_id, self.start_up.ownership.claim.nonce
                )
            )
        ]

    def _trims(self, pending: PendingCommit, commit: Commit) -> list[Action]:
        """Return what a commit that is applied lets go of (K2, K3)."""
        actions: list[Action] = [Trim(TopicPartition(i.topic, i.partition), i.resume) for i in pending.inputs]
        self.rewrite.committed(
            pending.offset, pending.append_time_ms, commit.cursor, self.limits.changelog_retention_ms
        )
        before = self.rewrite.trim(pending.append_time_ms, self.limits.changelog_retention_ms)
        if before is not None:
            actions.append(Trim(self.task.changelog, before))
        return actions
