"""DeterministicCore: the life of one task whose output is a function of its input log alone (design 1.6, D1-D5).

Theory of operation. No checkpoints span tasks, there are no markers and no rollback: each task commits by its own
timer, and what is lost in a crash is made again, the same. A source writes to the log first: it appends which records
it takes at which logical time as an input decision, and sends their outputs once that is known to be valid (C2, C3).
All others merge their channels by logical time (merge.py). A sink sends its outputs in order, each time with an output
release in one transaction. Of these messages, commits and time leases one is on its way at a time: ``_appending``. From
a freeze on nothing is decided or released before the commit is in the changelog: a restart reads from there.
"""

from collections.abc import Mapping, Sequence

from framework.core.actions import (
    Action,
    AppendChangelog,
    Committed,
    Exit,
    Freeze,
    ProcessRecords,
    ReadChangelog,
    Seek,
)
from framework.core.commit import PendingCommit
from framework.core.deterministic.source import SourceCore
from framework.core.events import (
    Acked,
    Applied,
    ChangelogAppended,
    ChangelogEnd,
    ChangelogRow,
    DataWritten,
    Event,
    ExternalBatch,
    ExternalProcessed,
    InputGone,
    InputRead,
    Message,
    OutcomeFound,
    OutputFrames,
    Processed,
    Ran,
    Start,
    Stop,
    Tick,
)
from framework.core.lifecycle import CommitStep, TaskStatus
from framework.core.startup import StartUp
from framework.errors import ConfigError, Halted
from protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    OutputRelease,
    TimeLease,
    encode_input_decision,
    encode_output_release,
    encode_time_lease,
)
from protocol.commit import Commit, DeterministicCommit
from protocol.control import decode_progress
from protocol.envelope import MessageType, decode_header
from protocol.errors import DecodeError
from protocol.ids import TopicPartition

REST = 3  # between two commits, at least this many times as long as one took: input decisions wait for commits


class DeterministicCore(SourceCore):
    """One task. ``releases``: records for external topics wait for output releases; else they leave at once (D5)."""

    # --- what the driver may ask ---

    @property
    def released(self) -> Mapping[TopicPartition, int]:
        """The seq by external partition up to which outputs had left the job at the start: drop what is made again."""
        return self.start_up.fold.released

    @property
    def released_digests(self) -> Mapping[TopicPartition, Sequence[tuple[int, int]]]:
        """The last seq of each output release since the last commit, and the digest up to it.

        Outputs that are made again must agree with it.
        """
        return self.start_up.fold.released_digests

    @property
    def observed(self) -> int:
        """The last logical time in µs that something was received of: all sources must pass it."""
        return self.merge.latest

    def due_in_ms(self, mono_ms: float) -> float:
        """Return in how many ms a Tick can do something; a minute if nothing depends on time."""
        due = 60_000.0
        if self.status is TaskStatus.RUNNING and self._at_rest:
            if self.pending_commit is None:
                due = max(self.clock.next_due_ms(self.frozen + 1, int(mono_ms)), self._rest_until_ms - mono_ms)
            if self._emits_progress:
                due = min(due, self.time.next_emit_ms(int(mono_ms * 1000)))
        return due

    # --- dispatch ---

    def step(self, event: Event) -> Sequence[Action]:
        """Take an event, return what must be done, in order. Raises Fenced, TransientError, Halted, ConfigError."""
        actions: list[Action] = []
        match event:
            case Message():
                self._message(event)
                return []  # what it brings is taken when all that was read is here
            case InputRead():
                self._more = False
            case Ran():
                actions = self._ran(event)
            case ExternalBatch():
                actions = self._decide(event)
            case Acked():
                return self._on_acked(event)
            case Tick():
                self._mono_ms, self._open_bytes = event.mono_ms, event.open_bytes
                self._mono_us = event.mono_us or event.mono_ms * 1000
                self.time.observe(event.observed, self._mono_us)
                actions = self._emit_progress()
            case ExternalProcessed():
                self.ended[event.partition] = event.ended
            case DataWritten():
                actions = self._data_written(event)
            case ChangelogAppended():
                actions = self._changelog_appended(event)
            case Applied():
                actions = self._applied()
            case ChangelogRow() | ChangelogEnd() | OutcomeFound():
                actions = self._changelog_read(event)
            case InputGone(error):
                return [ReadChangelog(self.start_up.ownership.doubted(self.generation, error))]
            case Stop():
                self._stopping = True
            case Start():
                self._mono_ms = event.mono_ms
                self._start = StartUp(self.task.name, self.task.changelog, event, self._check)
                self._bounds = event.bounds
                return self._start.begin()
            case Processed() | OutputFrames():  # pragma: no branch  # the last of Event: mypy holds it
                raise AssertionError(f"{self.task.name}: {event} does not belong in deterministic mode")
        return actions + self._pump()

    def _on_acked(self, event: Acked) -> list[Action]:
        self._acked = event.token
        return self._pump() if self.awaits_answers else []

    def _pump(self) -> list[Action]:
        """Return what can be done now: a message for the changelog, a commit, the next records, a progress message."""
        if self.status not in (TaskStatus.RUNNING, TaskStatus.GENESIS) or self.start_up.ownership.in_doubt:
            return []
        actions = self._append_next()
        if self.status is TaskStatus.RUNNING and self._at_rest:
            if self._closes:
                if self._stop_closed:
                    return actions + self._exit()
                self._stop_closed = self._stopping
                actions += self._freeze(max(self.frozen + 1, self.clock.boundary(self._mono_ms)))
            if self.task.channels and not self._stop_closed:
                actions += self._take()
        return actions

    @property
    def _is_due(self) -> bool:
        return self.clock.due(self.frozen + 1, self._mono_ms) and self._mono_ms >= self._rest_until_ms

    # --- inputs ---

    def _message(self, event: Message) -> None:
        partition, offset, value = event.partition, event.offset, event.value
        self.merge.read(partition, offset)
        try:
            header = decode_header(value)
            if header.type is MessageType.FRAME:
                self.merge.frame(partition, offset, header, value)
                return
            if header.type is MessageType.PROGRESS:
                self.merge.progress(partition, offset, decode_progress(value))
                return
        except DecodeError as error:
            raise Halted(
                f"{self.task.name}: {partition} offset {offset}: {error}; "
                "an internal topic must hold only what Grete wrote: find the writer"
            ) from error
        found = f"a {header.type.name} message"
        raise Halted(f"{self.task.name}: {partition} offset {offset}: {found} does not belong in deterministic mode")

    def _take(self) -> list[Action]:
        """Process what may go (D1); once nothing may, tell downstream up to when nothing will come."""
        if self._open_batch_is_full and self.pending_commit is not None:
            return []
        batches, upto = self.merge.take()
        if batches or self._timer <= upto > self._upto:
            self._processing, self._upto = True, max(self._upto, upto)
            return [ProcessRecords(batches, upto)]
        self._upto = max(self._upto, upto)
        return [*self._progress_messages(self._upto), *self.merge.seeks()]

    def _ran(self, event: Ran) -> list[Action]:
        self._processing, self._open_bytes, self._timer = False, event.open_bytes, event.timer
        if self.releases:
            self._held += event.outputs
            self._releasing |= dict(event.released)
        if self._batches:
            self._batches[-1].outputs = event
            return self._batches_done()
        actions = self._frames(event)
        if self._replay:
            decision = self._replay.popleft()
            self._took(decision, event.next_offset)
            return actions + self._replay_next()
        return actions if self.task.channels else actions + self._progress_messages(self.time.floor)

    # --- the own changelog ---

    def _append_next(self) -> list[Action]:
        """Append the next message, if none is on its way."""
        if self._appending is not None:
            return []
        pending = self.pending_commit
        if pending is not None and pending.step is not CommitStep.APPLY:
            actions = self._write_data(pending)  # nothing is decided or released between a freeze and its commit
            self._appending = ChangelogType.COMMIT if actions else None
            return actions
        if self.status is not TaskStatus.RUNNING:
            return []
        before = []
        lease = self.time.next_lease(self._mono_us) if self._emits_progress else None
        if lease is not None:
            before.append(encode_time_lease(self._header(ChangelogType.TIME_LEASE), TimeLease(lease)))
        elif self.gathers:
            return []
        for batch in self._batches:
            if not batch.logged and (batch.outputs is not None or not self.releases):
                batch.logged = True
                before.append(encode_input_decision(self._header(ChangelogType.INPUT_DECISION), batch.decision))
        outputs = 0
        if self._held:  # all of it is decided by now
            outputs, self._held = self._held, 0
            before.append(encode_output_release(self._header(ChangelogType.OUTPUT_RELEASE), self._release()))
        if not before:
            return []
        *before, value = before
        self._appending = ChangelogType(value[0] & 15)
        sync = self.releases  # else what a power loss takes, it takes with all that came of it
        return [AppendChangelog(value, self.generation, before=tuple(before), outputs=outputs, sync=sync)]

    def _release(self) -> OutputRelease:
        released, self._releasing = sorted(self._releasing.items()), {}
        return OutputRelease(tuple((p, seq) for p, (seq, _) in released), tuple(digest for _, (_, digest) in released))

    def _changelog_appended(self, event: ChangelogAppended) -> list[Action]:
        self._mono_ms, self._mono_us = event.mono_ms, event.mono_us or event.mono_ms * 1000
        if not event.fenced:
            forward = max(event.append_time_ms, self.clock.now(event.mono_ms))  # no checkpoint spans tasks: none waits
            self.clock.anchor(forward, event.mono_ms)
            self.time.anchor(event.append_time_ms, self._mono_us)
        if self.status is TaskStatus.STARTING:
            return self.start_up.appended(event)
        ownership, pending = self.start_up.ownership, self.pending_commit
        if ownership.in_doubt:
            return []  # the process ends: its successor finds what is valid (C4)
        if event.fenced:
            return [ReadChangelog(ownership.refused(self.generation))]
        back = ownership.appended(event.offset, self.generation, event.trailing)
        if self._appending is ChangelogType.COMMIT:
            assert pending is not None
            self._advance(pending, CommitStep.VERIFY)
            pending.offset, pending.append_time_ms = event.offset, event.append_time_ms
            self._rest_until_ms = event.mono_ms + REST * (event.mono_ms - self._frozen_ms)
        if back is not None:
            self.seen["tails verified"] += 1
            return [ReadChangelog(back)]
        return self._valid()

    def _changelog_read(self, event: ChangelogRow | ChangelogEnd | OutcomeFound) -> list[Action]:
        if self.status is TaskStatus.STARTING:
            return self._start_read(event)
        ownership = self.start_up.ownership
        if isinstance(event, ChangelogRow):
            ownership.verify_tail(event.offset, event.value)
            return []
        ownership.tail_verified()
        return self._valid()

    def _valid(self) -> list[Action]:
        """What was appended is valid: nothing of a newer generation is before it (C3)."""
        kind, self._appending = self._appending, None
        if kind is ChangelogType.COMMIT:
            return self._verified()
        self.time.lease = self.time.lease_sent
        for batch in self._batches:
            batch.valid = batch.logged
        return self._batches_done()

    def _header(self, kind: ChangelogType) -> ChangelogHeader:
        return self.start_up.ownership.header(kind)

    # --- commit, start, stop ---

    def _freeze(self, checkpoint_id: int) -> list[Action]:
        inputs, frontiers = self.merge.commit(checkpoint_id)
        self.frozen, self._open_bytes, self._frozen_ms = checkpoint_id, 0, self._mono_ms
        self.pending_commit = PendingCommit(
            checkpoint_id=checkpoint_id,
            last_token=self._token,
            inputs=inputs,
            external=self._external_inputs(),
            outputs=self._output_seqs(),
            known=(),
            at_end=self.task.is_source and all(self.ended.values()),
            deterministic=DeterministicCommit(self._taken, self._last_t, self.time.lease_sent, frontiers),
            held=self._held,
        )
        self._held, self._releasing = 0, {}
        return [Freeze(checkpoint_id), *self._append_next()]

    def _data_written(self, event: DataWritten) -> list[Action]:
        message = self._commit_message(event)
        assert self.pending_commit is not None
        return [AppendChangelog(message, self.generation, outputs=self.pending_commit.held)]

    def _applied(self) -> list[Action]:
        pending, commit = self.pending_commit, self.committed
        assert pending is not None and pending.step is CommitStep.APPLY and commit is not None
        self.pending_commit = None
        if self.status is TaskStatus.GENESIS:
            return [Committed(pending.checkpoint_id), *self._go_on()]
        return [Committed(pending.checkpoint_id), *self._trims(pending, commit)]

    def _positions(self) -> Mapping[TopicPartition, int]:
        return self.merge.position

    def _check(self, commit: Commit) -> None:
        super()._check(commit)
        if commit.deterministic is None:
            raise ConfigError(
                f"{self.task.name}: its last commit (checkpoint {commit.checkpoint_id}) is not one of deterministic "
                "mode: a job keeps its modes: put them back, or give the job another name, under which it begins "
                "from its inputs"
            )

    def _resume(self, commit: Commit) -> None:
        super()._resume(commit)
        assert commit.deterministic is not None
        self.merge.reset(commit)
        fold = self.start_up.fold
        self._replay.extend(fold.decisions)
        self._taken, self._last_t = commit.deterministic.position, commit.deterministic.last_t
        fold.lease = max(fold.lease, commit.deterministic.lease)
        last_t = fold.decisions[-1].last_t if fold.decisions else self._last_t
        self.time.start(last_t, fold.lease)

    def _go_on(self) -> list[Action]:
        pending = (
            self.status is TaskStatus.STARTING
            and self.committed is not None
            and self.committed.bulk_write_id is not None
        )
        if pending and not self._replay:
            self._become(TaskStatus.GENESIS)  # a bulk write does not know where the outputs of this job will begin (D5)
            return self._freeze(max(self.frozen + 1, self.clock.boundary(self._mono_ms)))
        self._become(TaskStatus.RUNNING)
        return [*(Seek(partition, offset) for partition, offset in self.merge.position.items()), *self._replay_next()]

    def _exit(self) -> list[Action]:
        if self._acked < self._token or self._appending is not None or self._held:
            return []  # pragma: no cover  # the last commit has waited for all of it; an exit would lose it
        self._become(TaskStatus.STOPPED)
        return [Exit(f"stopped at checkpoint {self.frozen}")]
