"""The way of a commit, in both modes: outputs → data → commit → verify → apply, then markers and trims (A7, C3, R1).

A core freezes a checkpoint, and hands over what it has captured. Each step waits for the answer to
the one before; lifecycle.py has their order. One commit is on its way at a time, and processing goes on meanwhile (A8).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grete.core.actions import Action, AppendChangelog, ApplyFrozen, Committed, Trim, WriteData
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.changelog.changelog_rewrite import ChangelogRewrite
from grete.core.changelog.ownership import Ownership
from grete.core.events import ChangelogAppended, DataWritten
from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import COMMIT, CommitStep
from grete.core.sender import Sender
from grete.protocol.changelog import ChangelogType
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.commit import (
    Commit,
    DeterministicCommit,
    ExternalInput,
    InputCommit,
    OutputCommit,
    ProducerRollbacks,
    encode_commit,
)
from grete.protocol.control import encode_markers
from grete.protocol.ids import RollbackEntry, TopicPartition


class FrozenCheckpoint(NamedTuple):
    """The state captured at the freeze of ``checkpoint_id``: whatever happens meanwhile, this is committed."""

    checkpoint_id: int
    last_token: int  # of the messages sent before the freeze
    rollback_history: tuple[RollbackEntry, ...]
    inputs: tuple[InputCommit, ...]
    external: tuple[ExternalInput, ...]
    outputs: tuple[OutputCommit, ...]
    known: tuple[ProducerRollbacks, ...]
    at_end: bool
    deterministic: DeterministicCommit | None = None
    genesis: bool = False  # nothing was processed: there is nothing to mark or to trim
    marks: bool = False  # markers downstream follow it (A6)
    with_outputs: bool = False  # what a sink holds back becomes visible with it (S1)
    held: int = 0  # records for the outside that were collected before the freeze and wait for an output release (D5)


@dataclass(slots=True)
class PendingCommit:
    """The progress of the commit of a frozen checkpoint."""

    frozen: FrozenCheckpoint
    step: CommitStep = COMMIT.first
    commit: Commit | None = None  # from COMMIT on: what was appended
    offset: int = -1  # from VERIFY on: of the commit message
    append_time_ms: int = 0

    @property
    def checkpoint_id(self) -> int:
        """The id of the checkpoint."""
        return self.frozen.checkpoint_id


class CommitPipeline:
    """The last commit of a task, and the next one on its way to changelog and store."""

    def __init__(self, task: TaskWiring, ownership: Ownership, sender: Sender, changelog_retention_ms: int) -> None:
        self.task = task
        self.committed: Commit | None = None  # the last valid one
        self.began: Commit | None = None  # the first one: that of a start, or of the genesis
        self.pending: PendingCommit | None = None
        self.rewrite = ChangelogRewrite()
        self._cursor: bytes | None = (
            None  # of the rewrite, after the data sent since the last commit; None: no data was
        )
        self._data_count = 0  # messages sent since the last commit
        self.writing = False  # a slice is asked for: until it is sent no other message gets a ChangelogSeq
        self._ownership = ownership
        self._sender = sender
        self._changelog_retention_ms = changelog_retention_ms

    def resume(self, fold: ChangelogFold, now_ms: int) -> None:
        """Go on from the last commit that a start has found."""
        last = self.committed = self.began = fold.last
        assert last is not None
        self.rewrite = ChangelogRewrite(last.cursor, last.round_start, last.base, last.round_started_ms, last.rounds)
        if last.checkpoint_id > 0:  # its own round, if it ended with it, is not in it yet
            self.rewrite.committed(fold.last_offset, now_ms, last.cursor, self._changelog_retention_ms)

    def begin(self, frozen: FrozenCheckpoint) -> None:
        """Take a checkpoint that was just frozen."""
        assert self.pending is None, f"{self.task.name}: {frozen.checkpoint_id} is frozen during {self.pending}"
        self.pending = PendingCommit(frozen)

    def write_data(self) -> list[Action]:
        """Ask for the data, once all outputs of the checkpoint are acknowledged (A7)."""
        pending = self.pending
        if pending is None or pending.step is not CommitStep.OUTPUTS or self._sender.acked < pending.frozen.last_token:
            return []
        self._advance(CommitStep.DATA)
        return [self.next_slice()]

    def next_slice(self) -> WriteData:
        """Ask for the next slice of what is frozen: behind its freeze, or ahead of it."""
        assert not self.writing, f"{self.task.name}: a slice is being sent"
        self.writing = True
        cursor = self.rewrite.cursor if self._cursor is None else self._cursor
        return WriteData(self._ownership.generation, self._ownership.next_seq, cursor)

    def data_written(self, event: DataWritten) -> list[Action]:
        """Ask for the next slice, or append the commit message, which counts the data and has its digest.

        Data that is sent ahead of its freeze is only counted.
        """
        self.writing = False
        self._ownership.count_data(event.count)
        self._data_count, self._cursor = self._data_count + event.count, event.cursor
        if self.pending is None:
            return []
        return [self.next_slice()] if event.more else [self._commit(event)]

    def _commit(self, event: DataWritten) -> AppendChangelog:
        pending, ownership, previous = self._advance(CommitStep.COMMIT), self._ownership, self.committed
        frozen = pending.frozen
        count, self._data_count, self._cursor = self._data_count, 0, None
        pending.commit = Commit(
            producer=self.task.producer,
            generation=ownership.generation,
            checkpoint_id=frozen.checkpoint_id,
            previous=-1 if previous is None else previous.checkpoint_id,
            rollback_history=frozen.rollback_history,
            outputs=frozen.outputs,
            data_count=count,
            data_digest=event.digest,
            attempt=0,
            cursor=event.cursor,
            round_start=self.rewrite.round_start,
            base=self.rewrite.base,
            fingerprint=self.task.fingerprint,
            at_end=frozen.at_end,
            inputs=frozen.inputs,
            known=frozen.known,
            external=frozen.external,
            deterministic=frozen.deterministic,
            nonce=ownership.nonce,
            round_started_ms=self.rewrite.started_ms,
            rounds=self.rewrite.rounds,
        )
        message = encode_commit(ownership.header(ChangelogType.COMMIT), pending.commit)
        return AppendChangelog(message, ownership.generation, with_outputs=frozen.with_outputs, outputs=frozen.held)

    def appended(self, event: ChangelogAppended) -> None:
        """The commit message is in the changelog. Until it is verified, a higher generation may be before it (C2)."""
        pending = self._advance(CommitStep.VERIFY)
        pending.offset, pending.append_time_ms = event.offset, event.append_time_ms

    def verified(self) -> list[Action]:
        """The commit is valid (C2): it is the truth from now on, so the store may have it (A9)."""
        pending = self._advance(CommitStep.APPLY)
        self.committed, generation = pending.commit, self._ownership.generation
        self.began = self.began or pending.commit
        position = ChangelogPosition(pending.offset, generation, pending.checkpoint_id, self._ownership.nonce)
        return [ApplyFrozen(position)]

    def applied(self) -> list[Action]:
        """The store has it: mark the checkpoint downstream (A6), and let go of what no restart needs (K2, K3)."""
        pending, self.pending = self.pending, None
        assert pending is not None and pending.step is COMMIT.last and pending.commit is not None
        if pending.frozen.genesis:
            return [Committed(pending.checkpoint_id)]
        return [*self._markers(pending.frozen), Committed(pending.checkpoint_id), *self._trims(pending, pending.commit)]

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        pending, last, next_seq = self.pending, self.committed, self._sender.next_seq
        for output in last.outputs if last is not None else ():  # a later seq is made, or made again
            at = output.topic, output.partition
            assert next_seq[at] >= output.next_seq, (next_seq, output)  # type: ignore[index]  # it equals its partition
        assert self._data_count >= 0, self._data_count
        if last is not None:
            assert last.previous < last.checkpoint_id, (last.previous, last.checkpoint_id)
            assert last.generation <= self._ownership.generation or not self._ownership.generation, last.generation
            assert self.began is not None and self.began.checkpoint_id <= last.checkpoint_id, (self.began, last)
        if pending is None:
            return
        if pending.commit is not None:
            named = pending.commit.checkpoint_id, pending.commit.generation
            assert named == (pending.checkpoint_id, self._ownership.generation), (named, pending.checkpoint_id)
        assert pending.frozen.last_token <= self._sender.token, pending
        assert pending.step is CommitStep.OUTPUTS or self._sender.acked >= pending.frozen.last_token, pending
        assert (pending.commit is not None) == (pending.step not in (CommitStep.OUTPUTS, CommitStep.DATA)), pending
        assert (pending.offset >= 0) == (pending.step in (CommitStep.VERIFY, CommitStep.APPLY)), pending
        if pending.step is CommitStep.APPLY:
            assert last is pending.commit, (last, pending)
        else:
            assert last is None or last.checkpoint_id < pending.checkpoint_id, (last, pending)

    def _advance(self, step: CommitStep) -> PendingCommit:
        assert self.pending is not None, f"{self.task.name}: no commit is on its way to {step}"
        self.pending.step = COMMIT.change(self.task.name, self.pending.step, step)
        return self.pending

    def _markers(self, frozen: FrozenCheckpoint) -> list[Action]:
        return self._mark(frozen.checkpoint_id, frozen.outputs, frozen.at_end) if frozen.marks else []

    def last_markers(self) -> list[Action]:
        """Say the marker of the last checkpoint again: no other comes before the next start (R6)."""
        last = self.committed
        assert last is not None
        return self._mark(last.checkpoint_id, last.outputs, last.at_end)

    def _mark(self, checkpoint_id: int, outputs: Sequence[OutputCommit], at_end: bool) -> list[Action]:
        ours = self.task.producer, self._ownership.generation, checkpoint_id
        markers = encode_markers(*ours, [each.next_seq for each in outputs], at_end)
        return [
            self._sender.send(TopicPartition(each.topic, each.partition), marker)
            for each, marker in zip(outputs, markers, strict=True)
        ]

    def _trims(self, pending: PendingCommit, commit: Commit) -> list[Action]:
        actions: list[Action] = [Trim(TopicPartition(i.topic, i.partition), i.resume) for i in pending.frozen.inputs]
        retention_ms = self._changelog_retention_ms
        self.rewrite.committed(pending.offset, pending.append_time_ms, commit.cursor, retention_ms)
        before = self.rewrite.trim(pending.append_time_ms, retention_ms)
        if before is not None:
            actions.append(Trim(self.task.changelog, before))
        return actions
