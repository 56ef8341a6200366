"""How a version is closed and committed: freeze, changelog, store, markers, trimming, step by step (A7, A8)."""

from framework.core.actions import (
    Action,
    AppendChangelog,
    ClearSpill,
    Committed,
    FlushOutputs,
    Freeze,
    Seek,
)
from framework.core.aligned.state import Status, TaskState
from framework.core.commit import CommitRun
from framework.core.events import DataWritten
from framework.core.lifecycle import Stage
from protocol.control import encode_marker, encode_restore
from protocol.ids import TopicPartition


class Committing(TaskState):
    """The part of a TaskCore that brings a version from its last record to its markers, and announces generations."""

    def _go_on(self) -> list[Action]:
        return self._announce()

    def _announce(self) -> list[Action]:
        """Send the restore of this generation everywhere (R2); records follow when it is acknowledged."""
        self.status = Status.ANNOUNCING
        actions: list[Action] = [
            self._send(
                partition,
                encode_restore(
                    self.task.producer, self.generation, self.frozen, seq, self.task.fingerprint, self.lineage
                ),
            )
            for partition, seq in self.next_seq.items()
        ]
        return actions + self._on_acked()

    def _on_acked(self) -> list[Action]:
        if self.status is Status.ANNOUNCING and self._acked >= self._token:
            self.status = Status.RUNNING
            return self._seek()
        if self.commit_run is not None and self.commit_run.stage is Stage.OUTPUTS:
            return self._write_data(self.commit_run)
        return []

    def _close_by_timer(self) -> list[Action]:
        label = self.frozen + 1
        self._stop_closed = self._stopping
        due = self._stopping or self.clock.due(label, self._mono_ms)
        self.seen["versions closed by a full layer"] += self._layer_is_full and not due
        if due or self._layer_is_full:
            return self._close(max(label, self.clock.boundary(self._mono_ms)))
        return []

    def _close(self, version: int) -> list[Action]:
        assert version > self.frozen and self.commit_run is None
        self._closing = version
        return [FlushOutputs()]

    def _freeze(self, version: int) -> list[Action]:
        self.seen["commits over several versions"] += 0 < self.frozen < version - self.limits.interval_ms
        inputs = self.inputs.commit(version)
        self.frozen, self._open_bytes = version, 0
        external_ended = all(self.ended.values())
        self.commit_run = CommitRun(
            version=version,
            last_token=self._token,
            inputs=inputs,
            external=self._external_inputs(),
            outputs=self._output_seqs(),
            known=self.inputs.lineages(),
            # when a deterministic producer's inputs have ended, its fronts tell, not a flag
            at_end=external_ended and not self.task.logical and all(c.ended for c in self.inputs.channels.values()),
            deterministic=self.inputs.fronts(),
        )
        actions: list[Action] = [Freeze(version)]
        if self.inputs.skipping:  # back to the positions of this commit, as after a restart (A5)
            self.seen["seeks back"] += 1
            self.inputs.rewind(inputs)
            actions += [ClearSpill(), *(Seek(partition, offset) for partition, offset in self.inputs.position.items())]
        return actions + self._write_data(self.commit_run)

    def _data_written(self, event: DataWritten) -> list[Action]:
        return [AppendChangelog(self._commit_message(event), self.generation, with_outputs=True)]

    def _applied(self) -> list[Action]:
        run, commit = self.commit_run, self.committed
        assert run is not None and run.stage is Stage.APPLY and commit is not None
        self.commit_run = None
        if self.status is Status.GENESIS:
            return [Committed(run.version), *self._announce()]
        actions: list[Action] = []
        if self.aligned:
            actions += [
                self._send(
                    TopicPartition(o.topic, o.partition),
                    encode_marker(self.task.producer, self.generation, run.version, o.next_seq, run.at_end),
                )
                for o in run.outputs
            ]
        actions.append(Committed(run.version))
        return actions + self._trims(run, commit)
