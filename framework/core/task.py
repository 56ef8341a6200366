"""TaskCore: the life of one task, aligned or at least once. Events in, actions out; every decision of design 1.3-1.5 is made here or below.

Theory of operation. A task is STARTING (start.py), then announces its generation (R2), then RUNNING: the driver feeds messages while
``wants_input``; the core answers with Process, at most one at a time, and closes versions. Closing goes in two steps, so that the outputs of
a version carry its label: FlushOutputs → OutputFrames → Freeze. From the freeze on a CommitRun goes its way (commit.py) while processing goes
on. A restore that voids something in the open layer makes the task roll back: it finishes the commit in flight, drops the layer, claims a
new generation (C6), announces it and reads again from the commit.
"""

from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto

from framework.core.actions import (
    Action,
    AppendChangelog,
    ApplyFrozen,
    ClearSpill,
    Committed,
    DropOpen,
    Exit,
    FlushOutputs,
    Freeze,
    Process,
    ReadChangelog,
    Seek,
    Send,
    Spill,
    Trim,
    WriteData,
)
from framework.core.changelog import extend_lineage
from framework.core.commit import CommitRun, Stage, Sweep
from framework.core.early import EarlyBuffer
from framework.core.events import (
    Acked,
    Applied,
    ChangelogAppended,
    ChangelogEnd,
    ChangelogRow,
    DataWritten,
    Event,
    ExternalProcessed,
    Message,
    OutputFrames,
    Processed,
    Start,
    Stop,
    Tick,
)
from framework.core.inputs import Inputs
from framework.core.limits import Limits
from framework.core.source import VersionClock
from framework.core.start import Phase, StartUp
from framework.core.wiring import TaskWiring
from framework.errors import ConfigError, Fenced, Halted
from protocol.changelog import ChangelogType
from protocol.commit import Commit, ExternalInput, OutputCommit, encode_commit
from protocol.control import decode_marker, decode_restore, encode_marker, encode_restore
from protocol.envelope import Header, MessageType, decode_header, encode_header
from protocol.errors import DecodeError
from protocol.ids import LineageEntry, TopicPartition
from protocol.pointer import Pointer


class Status(Enum):
    """Where a task stands."""

    STARTING = auto()  # start.py is at work
    GENESIS = auto()  # the first commit of all is on its way (A2)
    ANNOUNCING = auto()  # restore messages are not yet acknowledged (R2)
    RUNNING = auto()
    RECLAIMING = auto()  # rolling back: the claim of the next generation is on its way (C6)
    STOPPED = auto()


class TaskCore:
    """One task. ``aligned`` is exactly once; otherwise at least once (1.5): commits by timer, no alignment, no rollback."""

    def __init__(self, task: TaskWiring, limits: Limits, *, aligned: bool) -> None:
        self.task = task
        self.limits = limits
        self.aligned = aligned
        self.status = Status.STARTING
        self.clock = VersionClock(limits.interval_ms)
        self.inputs = Inputs(
            task.name, task.channels, EarlyBuffer(limits.early_memory_bytes_max, limits.early_bytes_max), task.fingerprint, aligned=aligned
        )
        self.external: dict[TopicPartition, int] = {}
        self.ended: dict[TopicPartition, bool] = dict.fromkeys(task.external, False)
        self.next_seq: dict[TopicPartition, int] = dict.fromkeys(task.outputs, 1)
        self.lineage: tuple[LineageEntry, ...] = ()
        self.committed: Commit | None = None  # the last valid commit
        self.frozen = 0  # last version frozen; everything up to it is closed. The open version is frozen + 1: that is the label
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
        self._trims: list[tuple[int, int]] = []

    # --- what the driver may ask ----------------------------------------------------------------------------------------------

    @property
    def wants_input(self) -> bool:
        """Whether the next message or external batch may be fed."""
        return (
            self.status is Status.RUNNING
            and not (self._processing or self._roll_back)
            and self._closing is None
            and not (self.task.is_source and (self._stopping or (self._layer_is_full and self.commit_run is not None)))
        )

    @property
    def generation(self) -> int:
        """Return the generation that this process has claimed."""
        return 0 if self._start is None else self._start.ownership.generation

    @property
    def start_up(self) -> StartUp:
        """Return the start, for what it counted. Raises AssertionError before Start."""
        assert self._start is not None
        return self._start

    def due_in_ms(self, mono_ms: int) -> int:
        """Return in how many ms a Tick can close a version; a minute if this task closes by its barrier only."""
        if self.status is Status.RUNNING and self._by_timer and self.commit_run is None:
            return self.clock.next_due_ms(self.frozen + 1, mono_ms)
        return 60_000

    @property
    def _layer_is_full(self) -> bool:
        """Whether the open layer is near its bound, so that its version must be closed (A9); a source can wait for that."""
        return self._open_bytes > self.limits.layer_bytes_max // 2

    @property
    def _by_timer(self) -> bool:
        return self.task.is_source or not self.aligned

    # --- dispatch -------------------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> Sequence[Action]:
        """Take an event, return what must be done, in order. Raises Fenced (C5), Halted, ConfigError."""
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
            case ChangelogRow() | ChangelogEnd():
                actions = self._changelog_read(event)
            case Stop():
                self._stopping = True
            case Start():
                self._mono_ms = event.mono_ms
                self._start = StartUp(self.task.name, self.task.changelog, event)
                self._bounds = event.bounds
                return self._start.begin()
        if self.status is Status.RUNNING:
            actions += self._pump()
        return actions

    def _pump(self) -> list[Action]:
        """Return what can be done without another message: buffered frames first (A4), then a barrier or timer, then a roll back."""
        if self._processing or self._closing is not None:
            return []
        if self._roll_back:
            return self._begin_roll_back() if self.commit_run is None else []
        early = self.inputs.early
        frame = early.pop(self.frozen + 1)
        if frame is not None:
            return self._process(self.inputs.include(frame))
        if self.commit_run is not None:
            return []
        if self._stopping and self._nothing_open():
            return self._exit()
        if self._by_timer:
            return self._close_by_timer()
        least = self.inputs.least_marker()
        if least <= self.frozen:
            return []
        waiting = early.least_version()
        if waiting is not None and waiting <= least:  # drain version by version (1.8 A6)
            if self._layer_is_full and max(self.frozen + 1, self.inputs.greatest_label) < waiting:
                self.seen["versions closed by a full layer"] += 1
                return self._close(waiting - 1)  # nothing of ``waiting`` is in the layer yet (A9)
            frame = early.pop(waiting)
            assert frame is not None
            return self._process(self.inputs.include(frame))
        return self._close(least)

    # --- input ----------------------------------------------------------------------------------------------------------------

    def _message(self, event: Message) -> list[Action]:
        assert self.wants_input, f"{self.task.name}: a message was fed in {self.status}"
        partition, offset, value = event.partition, event.offset, event.value
        self.inputs.read(partition, offset)
        try:
            header = decode_header(value)
            if header.type is MessageType.FRAME:
                if header.version > event.append_time_ms + self.limits.label_ahead_ms:
                    self.seen["labels ahead of the log's clock"] += 1
                action = self.inputs.frame(partition, offset, header, value, self.frozen)
                if isinstance(action, Process):
                    return self._process(action)
                return [action] if isinstance(action, Spill) else []
            if header.type is MessageType.MARKER:
                if self.aligned:
                    self.inputs.marker(partition, offset, decode_marker(value), self.frozen)
                return []
            if header.type is MessageType.RESTORE:
                self._roll_back = self.inputs.restore(partition, offset, decode_restore(value), self.frozen)
                self.seen["roll backs during a commit"] += self._roll_back and self.commit_run is not None
                return []
        except DecodeError as error:
            raise Halted(
                f"{self.task.name}: {partition} offset {offset}: {error}; an internal topic must hold only what Grete wrote: find the writer"
            ) from error
        raise Halted(f"{self.task.name}: {partition} offset {offset}: a {header.type.name} message has no place in this mode")

    def _process(self, action: Process) -> list[Action]:
        self._processing = True
        return [action]

    # --- output ---------------------------------------------------------------------------------------------------------------

    def _output_frames(self, event: OutputFrames) -> list[Action]:
        actions: list[Action] = []
        label = self.frozen + 1
        for partition, count, body in event.frames:
            header = encode_header(Header(MessageType.FRAME, self.task.producer, self.generation, label, self.next_seq[partition]))
            self.next_seq[partition] += count
            actions.append(self._send(partition, header + body))
        if self._closing is not None:
            version, self._closing = self._closing, None
            actions += self._freeze(version)
        return actions

    def _send(self, partition: TopicPartition, value: bytes) -> Send:
        self._token += 1
        return Send(self._token, partition, value)

    def _announce(self) -> list[Action]:
        """Send the restore of this generation everywhere (R2); records follow when it is acknowledged."""
        self.status = Status.ANNOUNCING
        actions: list[Action] = [
            self._send(
                partition,
                encode_restore(self.task.producer, self.generation, self.frozen, seq, self.task.fingerprint, self.lineage),
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

    def _seek(self) -> list[Action]:
        return [Seek(partition, offset) for partition, offset in (*self.inputs.position.items(), *self.external.items())]

    # --- closing a version ----------------------------------------------------------------------------------------------------

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
        )
        message = encode_commit(ownership.header(ChangelogType.COMMIT), self._commit_sent)
        return [AppendChangelog(message, self.generation, with_outputs=True)]

    def _changelog_appended(self, event: ChangelogAppended) -> list[Action]:
        self._mono_ms = event.mono_ms
        if not event.fenced:
            self.clock.anchor(event.append_time_ms, event.mono_ms)
        if self.status is Status.STARTING:
            return self.start_up.appended(event)
        if event.fenced:
            raise Fenced(f"{self.task.name}: a newer generation than {self.generation} has claimed this task")
        run, reclaiming = self.commit_run, self.status is Status.RECLAIMING
        # a roll back's claim is n + 1 after n: anything above n before it is another's (1.8 C1)
        back = self.start_up.ownership.appended(event.offset, self.generation - 1 if reclaiming else self.generation)
        if not reclaiming:
            assert run is not None and run.stage is Stage.COMMIT
            run.offset, run.append_time_ms, run.stage = event.offset, event.append_time_ms, Stage.VERIFY
        if back is not None:
            self.seen["read back"] += 1
            return [ReadChangelog(back)]
        return self._rolled_back() if reclaiming else self._verified()

    def _changelog_read(self, event: ChangelogRow | ChangelogEnd) -> list[Action]:
        start = self.start_up
        if self.status is Status.STARTING:
            actions = start.row(event) if isinstance(event, ChangelogRow) else start.end(event)
            return actions + self._started() if start.phase is Phase.DONE else actions
        if isinstance(event, ChangelogRow):
            start.ownership.read_back(event.offset, event.value)
            return []
        start.ownership.read_back_done()
        return self._rolled_back() if self.status is Status.RECLAIMING else self._verified()

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
            self.sweep.committed(commit.cursor, run.offset, run.append_time_ms, round_done=False)
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
        obsolete = self.sweep.committed(commit.cursor, run.offset, run.append_time_ms, round_done=not commit.cursor)
        if obsolete is not None:
            self._trims.append(obsolete)
        return actions + self._trim_changelog(run.append_time_ms)

    def _trim_changelog(self, now_ms: int) -> list[Action]:
        """Trim what stands before a round start that is older than the history kept (K2); the commit there stays."""
        due = [offset for at, offset in self._trims if at + self.limits.history_ms <= now_ms]
        self._trims = [entry for entry in self._trims if entry[1] not in due]
        return [Trim(self.task.changelog, max(due))] if due else []

    # --- start, roll back, stop -----------------------------------------------------------------------------------------------

    def _started(self) -> list[Action]:
        """Ownership is settled and the store agrees with the last commit: go on from it, or make the genesis commit (A2)."""
        fold = self.start_up.fold
        self.lineage = fold.lineage
        bounds = self._bounds
        if fold.last is None:
            late = [f"{p} starts at {bounds[p][0]}" for p in self.inputs.position if bounds[p][0] > 0]
            if late:
                raise Halted(f"{self.task.name} has no commit, but {', '.join(late)}: its changelog was deleted; delete the whole job's topics")
            self.external = {p: bounds[p][0] for p in self.task.external}
            self.status, self.frozen = Status.GENESIS, -1
            return self._freeze(0)
        last = fold.last
        self.sweep = Sweep(last.cursor, last.round_start, last.base, self.clock.now(self._mono_ms))
        if not last.cursor:  # its round ended with it
            self.sweep.committed(b"", fold.last_offset, self.sweep.started_ms, round_done=last.version > 0)
        self._resume(last)
        for partition, position in (*self.inputs.position.items(), *self.external.items()):
            # the end of the log may have been passed since Start, by an instance that has committed meanwhile: the driver looks when it seeks
            if position < bounds[partition][0]:
                raise Halted(
                    f"{self.task.name} resumes at {partition} offset {position}, but the log starts at {bounds[partition][0]} (K3): "
                    "its retention is too short"
                )
        return self._announce()

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
                f"{self.task.name}: the job's graph is not the one of its last commit (version {commit.version}): {', '.join(gone[:5])} differ. "
                "Add stages after the others only; to change partition counts, rescale"
            )

    def _begin_roll_back(self) -> list[Action]:
        """Drop the open layer and claim the next generation (R4, C6)."""
        self.seen["roll backs"] += 1
        self.status = Status.RECLAIMING
        generation = self.generation + 1
        return [DropOpen(), ClearSpill(), AppendChangelog(self.start_up.ownership.claim_message(generation), generation)]

    def _rolled_back(self) -> list[Action]:
        assert self.committed is not None
        self.lineage = extend_lineage(self.lineage, LineageEntry(self.generation, self.committed.version))
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
        self.status = Status.STOPPED
        return [Exit(0, f"stopped at version {self.frozen}")]
