"""TaskCore: the life of one task, aligned or at least once. Events in, actions out (design 1.3-1.5).

Theory of operation. A task is STARTING (startup.py), then announces its generation (R2), then RUNNING: the driver feeds
messages while ``wants_input``; the core answers with Process, at most one at a time, and closes checkpoints. Closing
goes in two steps, so that the outputs of a checkpoint carry its checkpoint id: FlushOutputs → OutputFrames → Freeze.
From the freeze on a PendingCommit goes its way (commit.py) while processing goes on. A rollback marker that rolls
back something in the open write batch makes the task roll back: it finishes the commit in flight, drops the write
batch, claims a new generation (C6), announces it and reads again from the commit.
"""

from collections.abc import Sequence

from framework.core.actions import (
    Action,
    AppendChangelog,
    ClearSpill,
    DropOpen,
    DropSpilled,
    Exit,
    Process,
    ReadChangelog,
    Spill,
)
from framework.core.aligned.commit import Committing
from framework.core.aligned.state import TaskStatus
from framework.core.changelog_fold import extend_rollback_history
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
from framework.core.lifecycle import CommitStep
from framework.core.startup import StartUp
from framework.errors import Halted
from protocol.control import decode_marker, decode_progress, decode_rollback_marker, encode_watermark
from protocol.envelope import Header, MessageType, decode_header, encode_header
from protocol.errors import DecodeError
from protocol.ids import RollbackEntry


class TaskCore(Committing):
    """One task. ``aligned`` is exactly once; otherwise at least once (1.5): by timer, no alignment, no rollback."""

    # --- what the driver may ask ---

    @property
    def wants_input(self) -> bool:
        """Whether the next message or external batch may be fed."""
        return (
            self.status is TaskStatus.RUNNING
            and not (self._processing or self._rollback)
            and self._closing is None
            and not (self._stopping and self.task.is_source)
            and not (self._by_timer and self._open_batch_is_full and self.pending_commit is not None)
        )

    def due_in_ms(self, mono_ms: int) -> int:
        """Return in how many ms a Tick can close a checkpoint; a minute if this task closes by its alignment only."""
        if self.status is TaskStatus.RUNNING and self._by_timer and self.pending_commit is None:
            return self.clock.next_due_ms(self.frozen + 1, mono_ms)
        return 60_000

    # --- dispatch ---

    def step(self, event: Event) -> Sequence[Action]:
        """Take an event, return what must be done, in order. Raises Fenced, TransientError, Halted, ConfigError."""
        actions: list[Action] = []
        match event:
            case Message():
                actions = self._message(event)
            case Processed():
                self._processing, self._open_bytes = False, event.open_bytes
            case OutputFrames():
                actions = self._output_frames(event)
            case Acked():
                self._acked = event.token
                actions = self._on_acked()
            case ExternalProcessed():
                self.external[event.partition], self.ended[event.partition] = event.next_offset, event.ended
                self._open_bytes = event.open_bytes
            case Tick():
                self._mono_ms, self._open_bytes = event.mono_ms, event.open_bytes
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
            case InputRead() | ExternalBatch() | Ran():  # pragma: no branch  # the last of Event: mypy holds it
                raise AssertionError(f"{self.task.name}: {event} belongs to deterministic mode")
        if self.status is TaskStatus.RUNNING:
            actions += self._pump()
        return actions

    def _pump(self) -> list[Action]:
        """Return what can be done without another message: buffered frames (A4), an alignment or timer, a rollback."""
        if self._processing or self._closing is not None:
            return []
        if self._rollback:
            return self._begin_rollback() if self.pending_commit is None else []
        early = self.inputs.early
        frame = early.pop(self.frozen + 1)
        if frame is not None:
            return self._process(self.inputs.include(frame))
        if self.pending_commit is not None:
            return []
        if self._stopping and self._nothing_open():
            return self._exit()
        if self._by_timer:
            return self._close_by_timer()
        least = self.inputs.least_marker()
        if least <= self.frozen:
            return []
        waiting = early.least_checkpoint()
        if waiting is not None and waiting <= least:  # drain, checkpoint by checkpoint (1.8 A6)
            if self._open_batch_is_full and max(self.frozen + 1, self.inputs.greatest_checkpoint) < waiting:
                self.seen["checkpoints closed by a full write batch"] += 1
                return self._close(waiting - 1)  # nothing of ``waiting`` is in the write batch yet (A9)
            frame = early.pop(waiting)
            assert frame is not None
            return self._process(self.inputs.include(frame))
        return self._close(least)

    # --- input and output ---

    def _message(self, event: Message) -> list[Action]:
        assert self.wants_input, f"{self.task.name}: a message was fed in {self.status}"
        partition, offset, value = event.partition, event.offset, event.value
        self.inputs.read(partition, offset)
        try:
            header = decode_header(value)
            if header.type is MessageType.FRAME:
                if header.checkpoint_id > event.append_time_ms + self.limits.checkpoint_ahead_ms:
                    self.seen["checkpoint ids ahead of the log's clock"] += 1
                action = self.inputs.frame(partition, offset, header, value, self.frozen)
                if isinstance(action, Process):
                    return self._process(action)
                return [action] if isinstance(action, Spill) else []
            if header.type is MessageType.WATERMARK:
                action = self.inputs.watermark(partition, offset, header, value, self.frozen)
                if isinstance(action, Process):
                    return self._process(action)
                return [action] if isinstance(action, Spill) else []
            if header.type is MessageType.MARKER:
                if self.aligned:
                    self.inputs.marker(partition, offset, decode_marker(value), self.frozen)
                return []
            if header.type is MessageType.PROGRESS:
                self.inputs.progress(partition, offset, decode_progress(value))
                return []
            self._rollback = self.inputs.rollback_marker(partition, offset, decode_rollback_marker(value), self.frozen)
            self.seen["rollbacks during a commit"] += self._rollback and self.pending_commit is not None
            dropped = self.inputs.early.take_dropped()
            return [DropSpilled(dropped)] if dropped else []
        except DecodeError as error:
            raise Halted(
                f"{self.task.name}: {partition} offset {offset}: {error}; "
                "an internal topic must hold only what Grete wrote: find the writer"
            ) from error

    def _process(self, action: Process) -> list[Action]:
        self._processing = True
        return [action]

    def _output_frames(self, event: OutputFrames) -> list[Action]:
        actions: list[Action] = []
        ours = (MessageType.FRAME, self.task.producer, self.generation, self.frozen + 1)
        for partition, count, body in event.frames:
            header = encode_header(Header(*ours, self.next_seq[partition]))
            self.next_seq[partition] += count
            actions.append(self._send(partition, header + body))
        if event.watermark is not None and self.status is TaskStatus.RUNNING:
            actions += self._watermarks(*event.watermark)
        if self._closing is not None:
            checkpoint_id, self._closing = self._closing, None
            actions += self._freeze(checkpoint_id)
        return actions

    def _watermarks(self, watermark: int, idle: bool) -> list[Action]:
        """Send event time behind the frames, with their generation and checkpoint id; it takes no number (E2)."""
        ours = (self.task.producer, self.generation, self.frozen + 1)
        return [
            self._send(partition, encode_watermark(*ours, self.next_seq[partition], idle, (watermark,)))
            for partition in self.task.timed_outputs
        ]

    # --- the own changelog ---

    def _changelog_appended(self, event: ChangelogAppended) -> list[Action]:
        self._mono_ms = event.mono_ms
        if not event.fenced:
            self.clock.anchor(event.append_time_ms, event.mono_ms)
        if self.status is TaskStatus.STARTING:
            return self.start_up.appended(event)
        if self.start_up.ownership.in_doubt:
            return []  # the process ends: its successor finds what is valid (C4)
        pending, reclaiming = self.pending_commit, self.status is TaskStatus.RECLAIMING
        # a rollback's claim is n + 1 after n: anything above n before it is another's (1.8 C1)
        highest_own = self.generation - 1 if reclaiming else self.generation
        if event.fenced:
            return [ReadChangelog(self.start_up.ownership.refused(highest_own))]
        back = self.start_up.ownership.appended(event.offset, highest_own, event.trailing)
        if not reclaiming:
            assert pending is not None
            self._advance(pending, CommitStep.VERIFY)
            pending.offset, pending.append_time_ms = event.offset, event.append_time_ms
        if back is not None:
            self.seen["tails verified"] += 1
            return [ReadChangelog(back)]
        return self._rolled_back() if reclaiming else self._verified()

    def _changelog_read(self, event: ChangelogRow | ChangelogEnd | OutcomeFound) -> list[Action]:
        start = self.start_up
        if self.status is TaskStatus.STARTING:
            return self._start_read(event)
        if isinstance(event, ChangelogRow):
            start.ownership.verify_tail(event.offset, event.value)
            return []
        start.ownership.tail_verified()
        return self._rolled_back() if self.status is TaskStatus.RECLAIMING else self._verified()

    # --- rollback, stop ---

    def _begin_rollback(self) -> list[Action]:
        """Drop the open write batch and claim the next generation (R4, C6)."""
        self.seen["rollbacks"] += 1
        self._become(TaskStatus.RECLAIMING)
        generation = self.generation + 1
        return [
            DropOpen(),
            ClearSpill(),
            AppendChangelog(self.start_up.ownership.claim_message(generation), generation),
        ]

    def _rolled_back(self) -> list[Action]:
        assert self.committed is not None
        self.rollback_history = extend_rollback_history(
            self.rollback_history, RollbackEntry(self.generation, self.committed.checkpoint_id)
        )
        self._resume(self.committed)
        return self._announce()

    def _nothing_open(self) -> bool:
        """Whether a graceful stop has nothing left to commit (R6)."""
        if self._by_timer:
            return self._stop_closed
        return not self.inputs.included and not self.inputs.early.bytes

    def _exit(self) -> list[Action]:
        if self._acked < self._token:
            return []
        self._become(TaskStatus.STOPPED)
        return [Exit(f"stopped at checkpoint {self.frozen}")]
