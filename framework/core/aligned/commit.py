"""How a checkpoint is closed and committed: freeze, changelog, store, markers, trimming, step by step (A7, A8)."""

from framework.core.actions import (
    Action,
    AppendChangelog,
    ClearSpill,
    Committed,
    FlushOutputs,
    Freeze,
    Seek,
)
from framework.core.aligned.state import TaskState, TaskStatus
from framework.core.commit import PendingCommit
from framework.core.events import DataWritten
from framework.core.lifecycle import CommitStep
from protocol.control import encode_marker, encode_rollback_marker
from protocol.ids import TopicPartition


class Committing(TaskState):
    """The part of a TaskCore that brings a checkpoint from its last record to its markers; announces generations."""

    def _go_on(self) -> list[Action]:
        return self._announce()

    def _announce(self) -> list[Action]:
        """Send the rollback marker of this generation everywhere (R2); records follow when it is acknowledged."""
        self._become(TaskStatus.ANNOUNCING)
        actions: list[Action] = [
            self._send(
                partition,
                encode_rollback_marker(
                    self.task.producer, self.generation, self.frozen, seq, self.task.fingerprint, self.rollback_history
                ),
            )
            for partition, seq in self.next_seq.items()
        ]
        return actions + self._on_acked()

    def _on_acked(self) -> list[Action]:
        if self.status is TaskStatus.ANNOUNCING and self._acked >= self._token:
            self._become(TaskStatus.RUNNING)
            return self._seek()
        if self.pending_commit is not None and self.pending_commit.step is CommitStep.OUTPUTS:
            return self._write_data(self.pending_commit)
        return []

    def _close_by_timer(self) -> list[Action]:
        open_checkpoint = self.frozen + 1
        self._stop_closed = self._stopping
        due = self._stopping or self.clock.due(open_checkpoint, self._mono_ms)
        self.seen["checkpoints closed by a full write batch"] += self._open_batch_is_full and not due
        if due or self._open_batch_is_full:
            return self._close(max(open_checkpoint, self.clock.boundary(self._mono_ms)))
        return []

    def _close(self, checkpoint_id: int) -> list[Action]:
        assert checkpoint_id > self.frozen and self.pending_commit is None
        self._closing = checkpoint_id
        return [FlushOutputs()]

    def _freeze(self, checkpoint_id: int) -> list[Action]:
        self.seen["commits over several checkpoints"] += (
            0 < self.frozen < checkpoint_id - self.limits.checkpoint_interval_ms
        )
        inputs = self.inputs.commit(checkpoint_id)
        self.frozen, self._open_bytes = checkpoint_id, 0
        external_ended = all(self.ended.values())
        self.pending_commit = PendingCommit(
            checkpoint_id=checkpoint_id,
            last_token=self._token,
            inputs=inputs,
            external=self._external_inputs(),
            outputs=self._output_seqs(),
            known=self.inputs.rollback_histories(),
            # when a deterministic producer's inputs have ended, its frontiers tell, not a flag
            at_end=external_ended and not self.task.logical and all(c.ended for c in self.inputs.channels.values()),
            deterministic=self.inputs.frontiers(),
        )
        actions: list[Action] = [Freeze(checkpoint_id)]
        if self.inputs.skipping:  # back to the positions of this commit, as after a restart (A5)
            self.seen["seeks back"] += 1
            self.inputs.rewind(inputs)
            actions += [ClearSpill(), *(Seek(partition, offset) for partition, offset in self.inputs.position.items())]
        return actions + self._write_data(self.pending_commit)

    def _data_written(self, event: DataWritten) -> list[Action]:
        return [AppendChangelog(self._commit_message(event), self.generation, with_outputs=True)]

    def _applied(self) -> list[Action]:
        pending, commit = self.pending_commit, self.committed
        assert pending is not None and pending.step is CommitStep.APPLY and commit is not None
        self.pending_commit = None
        if self.status is TaskStatus.GENESIS:
            return [Committed(pending.checkpoint_id), *self._announce()]
        actions: list[Action] = []
        if self.aligned:
            actions += [
                self._send(
                    TopicPartition(o.topic, o.partition),
                    encode_marker(
                        self.task.producer, self.generation, pending.checkpoint_id, o.next_seq, pending.at_end
                    ),
                )
                for o in pending.outputs
            ]
        actions.append(Committed(pending.checkpoint_id))
        return actions + self._trims(pending, commit)
