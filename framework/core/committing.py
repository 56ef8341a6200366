"""How a version is closed and committed: freeze, changelog, store, markers, trimming, step by step (A7, A8)."""

from framework.core.actions import (
    Action,
    AppendChangelog,
    ApplyFrozen,
    ClearSpill,
    Committed,
    FlushOutputs,
    Freeze,
    Seek,
    Trim,
    WriteData,
)
from framework.core.commit import CommitRun, Stage
from framework.core.events import DataWritten
from framework.core.state import Status, TaskState
from protocol.changelog import ChangelogType
from protocol.commit import Commit, ExternalInput, OutputCommit, encode_commit
from protocol.control import encode_marker, encode_restore
from protocol.ids import TopicPartition
from protocol.pointer import Pointer


class Committing(TaskState):
    """The part of a TaskCore that brings a version from its last record to its markers, and announces generations."""

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
            external=tuple(ExternalInput(p.topic, p.partition, offset) for p, offset in self.external.items()),
            outputs=tuple(OutputCommit(p.topic, p.partition, seq) for p, seq in self.next_seq.items()),
            known=self.inputs.lineages(),
            at_end=external_ended and all(c.ended for c in self.inputs.channels.values()),
        )
        actions: list[Action] = [Freeze(version)]
        if self.inputs.skipping:  # back to the positions of this commit, as after a restart (A5)
            self.seen["seeks back"] += 1
            self.inputs.rewind(inputs)
            actions += [ClearSpill(), *(Seek(partition, offset) for partition, offset in self.inputs.position.items())]
        return actions + self._write_data(self.commit_run)

    def _write_data(self, run: CommitRun) -> list[Action]:
        if self._acked < run.last_token:
            return []
        run.stage = Stage.DATA
        return [WriteData(self.generation, self.start_up.ownership.next_seq, self.sweep.cursor)]

    def _data_written(self, event: DataWritten) -> list[Action]:
        run, ownership = self.commit_run, self.start_up.ownership
        assert run is not None and run.stage is Stage.DATA
        run.stage = Stage.COMMIT
        ownership.count(event.count)
        previous = self.committed
        self._commit_sent = Commit(
            producer=self.task.producer,
            generation=self.generation,
            version=run.version,
            previous=-1 if previous is None else previous.version,
            lineage=self.lineage,
            outputs=run.outputs,
            data_count=event.count,
            data_digest=event.digest,
            attempt=0,
            cursor=event.cursor,
            round_start=self.sweep.round_start,
            base=self.sweep.base,
            fingerprint=self.task.fingerprint,
            at_end=run.at_end,
            inputs=run.inputs,
            known=run.known,
            external=run.external,
            nonce=ownership.claim.nonce,
            round_started_ms=self.sweep.started_ms,
            rounds=self.sweep.rounds,
        )
        message = encode_commit(ownership.header(ChangelogType.COMMIT), self._commit_sent)
        return [AppendChangelog(message, self.generation, with_outputs=True)]

    def _verified(self) -> list[Action]:
        """The commit is valid (C2): it is the truth from now on."""
        run = self.commit_run
        assert run is not None and run.stage is Stage.VERIFY
        run.stage, self.committed = Stage.APPLY, self._commit_sent
        return [ApplyFrozen(Pointer(run.offset, self.generation, run.version, self.start_up.ownership.claim.nonce))]

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
        actions += [Trim(TopicPartition(i.topic, i.partition), i.resume) for i in run.inputs]
        self.sweep.committed(run.offset, run.append_time_ms, commit.cursor, self.limits.history_ms)
        before = self.sweep.trim(run.append_time_ms, self.limits.history_ms)
        if before is not None:
            actions.append(Trim(self.task.changelog, before))
        return actions
