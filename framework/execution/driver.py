"""Performs a task core's actions on a log and a store, in their order: the same for every log and the simulator.

``tick`` does at most one thing that touches the outside, so that a simulator can crash or pause a task between any two.
"""

from collections import Counter, deque
from collections.abc import Callable

from framework.core import actions as do
from framework.core import events as on
from framework.core.aligned.task import TaskCore
from framework.core.deterministic.task import DeterministicCore
from framework.core.lifecycle import StartupPhase, TaskStatus
from framework.errors import Halted, OffsetOutOfRange
from framework.execution.backpressure import Backpressure
from framework.execution.changelog_writer import Encoded
from framework.execution.early_frames import SpilledFrames
from framework.execution.input_reader import InputReader
from framework.execution.limits import END_CHECK_MS, LATE_MS
from framework.execution.own_changelog import OwnChangelog
from framework.execution.pending_sends import CHANGELOG, PRODUCED, PendingSends
from framework.execution.ports import Runner
from framework.execution.restorer import Restorer
from framework.execution.watermarks import EventTimeOut
from framework.ports import Delivery, ExternalRecord, Log, LogRow, SpillStore, StateStore
from framework.settings import Settings
from framework.stores.overlay import Overlay
from protocol.changelog_position import decode_changelog_position, encode_changelog_position
from protocol.ids import TopicPartition

COVERED = -2  # token of data messages: their commit's delivery covers them (port contract 1)


class TaskDriver:
    """One task of this process: its core, its store, its user code. ``owner`` marks its deliveries."""

    def __init__(
        self,
        owner: int,
        core: TaskCore | DeterministicCore,
        *,
        log: Log,
        store: StateStore,
        overlay: Overlay,
        spill: SpillStore,
        runner: Runner,
        settings: Settings,
        mono_ms: Callable[[], float],
    ) -> None:
        self.owner = owner
        self.core = core
        self._aligned = isinstance(core, TaskCore) and core.aligned
        self.wiring = core.task
        self.exit: do.Exit | None = None
        self.counters: Counter[str] = Counter()
        self.urgent = False  # sent messages should leave at once: a task waits for them
        self._log = log
        self._store = store
        self._overlay = overlay
        self._early = SpilledFrames(spill)
        self._runner = runner
        self.outbox = runner.outbox
        self._settings = settings
        self._mono_ms = mono_ms
        self._pending_sends = PendingSends(self.wiring.name, settings.send_timeout_ms)
        ordered = self.wiring.external if isinstance(core, TaskCore) or self.wiring.keeps_time else ()
        self._input_reader = InputReader(log, self._input_partitions(), settings.batch_bytes_max, ordered=ordered)
        self.event_time = EventTimeOut(core, runner, self._input_reader, settings)
        self._todo: deque[do.Action] = deque()
        self._batch: deque[LogRow] = deque()
        self._batch_of: TopicPartition | None = None
        self._internal = {partition for _, partition in self.wiring.channels}
        self.restore = OwnChangelog(log, self.wiring, 4 * settings.batch_bytes_max, mono_ms)
        self._restorer = Restorer(self.restore, log, store, overlay, self.wiring, self.counters)
        self._changelog_position: bytes | None = None  # of the frozen write batch that is being applied
        self._applied_last = False
        self._held: list[ExternalRecord] = []  # records that a sink holds back for the checkpoint being committed (S1)
        self._trimmed: dict[TopicPartition, int] = {}
        self._unflushed = False  # something was processed since the outputs were flushed
        self._ready = False
        self._backpressure = Backpressure(log, self.wiring.outputs, settings.downstream_lag_messages_max)
        self._end_due_ms = 0.0  # when to look whether the external inputs have ended

    def start(self, *, nonce: bytes, host: str, pid: int, wall_ms: int) -> None:
        """Begin: nothing is written before the claim (C1)."""
        partitions = (*self._input_partitions(), self.wiring.changelog)
        changelog_position = self._store.changelog_position()
        self._early.clear()
        self._do(
            on.Start(
                int(self._mono_ms()),
                nonce,
                host,
                pid,
                wall_ms,
                None if changelog_position is None else decode_changelog_position(changelog_position),
                {partition: self._log.bounds(partition) for partition in partitions},
            )
        )

    def stop(self) -> None:
        """Ask for a graceful stop (R6); ``exit`` is set when it is done."""
        self._do(on.Stop())

    def delivered(self, delivery: Delivery) -> bool:
        """Take the log's answer to one of our sends; return whether a ``tick`` can do something now."""
        if delivery.token == CHANGELOG:
            self._pending_sends.delivered(CHANGELOG)
            self.restore.appended(delivery.offset)
            self._do(on.ChangelogAppended(*delivery[2:4], int(self._mono_ms()), *delivery[4:6]))
        elif delivery.token == PRODUCED:
            self._pending_sends.delivered(PRODUCED)
        elif delivery.token > 0 and self._pending_sends.delivered(delivery.token):
            self._do(on.Acked(self._pending_sends.delivered_up_to))
        return True

    def tick(self) -> bool:
        """Do the next thing; False if there is nothing to do before a delivery, a new message or ``due_in_ms``."""
        if self.exit is not None:
            return False
        if self.outbox is not None and self._ready and self.outbox.work(self._mono_ms()):
            return True
        if self._todo:
            return self._perform_next()
        if self.restore.pending:
            return self._read_changelog()
        if self._changelog_position is not None and not self._applied_last:
            # in turn with input: a large checkpoint is applied without stalling the task (A8)
            self._applied_last = True
            return self._apply_chunk(self._changelog_position)
        self._applied_last = False
        if self._time() or self._look_for_idle() or self._flush_batch() or self._read_input():
            return True
        return self._changelog_position is not None and self._apply_chunk(self._changelog_position)

    def due_in_ms(self) -> float:
        """Return how long a driver with nothing to do may wait."""
        now = self._mono_ms()
        due = self.core.due_in_ms(int(now))
        due = min(due, int(self._end_due_ms - now) + 1) if now < self._end_due_ms else due
        if self.core.wants_input and self._batch_of is None and not self._input_reader.more:
            due = min(due, self.event_time.due_in_ms(now))
        due = min(due, LATE_MS) if self.restore.pending else due
        return due if self.outbox is None or not self._ready else min(due, self.outbox.due_in_ms(now))

    def abandon(self) -> None:
        """Let go of what is outside of this process, as its end would."""
        if self.outbox is not None:
            self.outbox.abandon()

    # --- input ---

    def _input_partitions(self) -> tuple[TopicPartition, ...]:
        return (*dict.fromkeys(partition for _, partition in self.wiring.channels), *self.wiring.external)

    def _read_input(self) -> bool:
        if not self.core.wants_input or self._blocked():
            return False
        if self._batch_of is None:
            try:
                batch = self._input_reader.next_batch()
            except OffsetOutOfRange as error:
                self._do(on.InputGone(error))
                return True
            if batch is None:
                return self._note_ends()
            partition, rows = batch
            if partition not in self._internal:
                self.event_time.active(partition, self._mono_ms())
                return self._external_batch(partition, rows)
            self._batch_of, self._batch = partition, deque(rows)
        row = self._batch.popleft()
        partition = self._batch_of
        if not self._batch:
            self._batch_of = None
        self._do(on.Message(partition, row.offset, row.append_time_ms, row.value or b""))
        return True

    def _external_batch(self, partition: TopicPartition, rows: list[LogRow]) -> bool:
        self._runner.process_rows(partition, rows)
        self._unflushed = True
        self.counters["external records"] += len(rows)
        self._end_due_ms = self._mono_ms() + END_CHECK_MS
        self._do(on.ExternalProcessed(partition, rows[-1].offset + 1, False, self._overlay.open_bytes))
        return True

    def _note_ends(self) -> bool:
        """Tell the core of external inputs that have nothing left (A2b); True if that is news."""
        news, due = False, self._mono_ms() >= self._end_due_ms
        for partition in self.wiring.external if due else ():
            if not self.core.external.ended[partition] and self._input_reader.drained(partition):
                position = self.core.external.position[partition]
                self._do(on.ExternalProcessed(partition, position, True, self._overlay.open_bytes))
                news = True
        return news

    def _look_for_idle(self) -> bool:
        """Tell the code of inputs that have brought nothing for a while (E4); True if that is news."""
        now = self._mono_ms()
        idle = self.event_time.next_idle(now) if self.core.wants_input else None
        if idle is None:
            return False
        self._runner.input_is_idle(idle)
        self._unflushed = True  # timers may have fired
        self._do(on.Tick(int(now), self._overlay.open_bytes))
        return True

    def _flush_batch(self) -> bool:
        """Close the output frames at the end of a batch, never by waiting (design 1.2)."""
        if self._batch_of is not None or self._input_reader.more:
            return False
        watermark = self.event_time.take(self._mono_ms())
        if not self._unflushed and watermark is None:
            return False
        frames = self._runner.take_frames() if self._unflushed else []
        self._unflushed = False
        if frames or watermark is not None:
            self._do(on.OutputFrames(frames, watermark))
        if not self._aligned:
            self._produce(self._runner.take_external())
        return True

    def _blocked(self) -> bool:
        """Whether to stop consuming: too much unacknowledged or held back, or consumers too far behind (A8, B1)."""
        settings, held = self._settings, self._runner.external_bytes
        if self._pending_sends.bytes > settings.unacked_bytes_max:
            return True
        if self.outbox is not None and not (
            self.outbox.ready and self.outbox.waiting_bytes <= settings.sink_buffer_bytes_max
        ):
            return True  # a sink that was not seen yet, or does not take what it should (1.8 S2)
        if held > settings.sink_buffer_bytes_max and self.core.commits.pending is not None:
            return True  # only until its transaction has ended: the open checkpoint's marker is still to be read
        if held > settings.uncommitted_state_bytes_max:
            raise Halted(
                f"{self.wiring.name}: {held} bytes of output in one checkpoint (setting uncommitted_state_bytes_max = "
                f"{settings.uncommitted_state_bytes_max}): raise it, or shorten checkpoint_interval_ms = "
                f"{settings.checkpoint_interval_ms}",
                task=self.wiring.name,
                setting="uncommitted_state_bytes_max",
            )
        return self.wiring.is_source and self._backpressure.behind(self._mono_ms())

    def _time(self) -> bool:
        now = self._mono_ms()
        self._pending_sends.check(now)
        if self.core.due_in_ms(int(now)) > 0:
            return False
        self._do(on.Tick(int(now), self._overlay.open_bytes))
        return bool(self._todo)

    # --- actions ---

    def _do(self, event: on.Event) -> None:
        self._todo.extend(self.core.step(event))
        if not self._ready and self.core.start_up.phase is StartupPhase.DONE:
            self._ready = True
            self._runner.reset()

    def _perform_next(self) -> bool:
        action = self._todo.popleft()
        match action:
            case do.Process():
                self._process(action)
            case do.Send():
                self._pending_sends.sent(action.token, len(action.value), self._mono_ms())
                self._log.send(self.owner, action.token, action.partition, action.value)
                self._backpressure.sent()
                self.urgent = not self._todo
            case do.FlushOutputs():
                watermark = self.event_time.take(self._mono_ms(), at_once=True)
                self._do(on.OutputFrames(self._runner.take_frames(), watermark))
            case do.Freeze():
                self._runner.before_freeze(action.checkpoint_id)
                self._overlay.freeze()
                self._hold_back()
            case do.WriteData():
                return self._write_data(action)
            case do.AppendChangelog():
                outputs, self._held = (self._held, []) if action.with_outputs else ((), self._held)
                self._pending_sends.sent_other(CHANGELOG, self._mono_ms())
                self._log.send(
                    self.owner,
                    CHANGELOG,
                    self.wiring.changelog,
                    action.value,
                    fence=action.generation,
                    sync=True,
                    outputs=outputs,
                )
            case do.ApplyFrozen():
                self._changelog_position = encode_changelog_position(action.changelog_position)
            case do.Seek():
                self._batch_of, self._batch = None, deque()
                self._input_reader.seek(action.partition, action.offset)
                self.event_time.active(action.partition, self._mono_ms())
            case do.Spill():
                self._early.put(action.key, action.value)
            case do.DropSpilled(keys):
                self._early.drop(keys)
            case do.ClearSpill():
                self._early.clear()
            case do.DropOpen():
                self._overlay.drop_open()
                self._runner.reset()
                self.event_time.reset()
            case do.Trim():
                self._trim(action)
            case do.Committed():
                self.counters["commits"] += 1
            case do.Exit():
                return self._end(action)
            case _:
                self._restore(action)
        return True

    def _restore(self, action: do.Action) -> None:
        event = self._restorer.perform(action, restored=self.core.start_up.restored)
        if event is not None:
            self._do(event)

    def _end(self, action: do.Exit) -> bool:
        if self.outbox is not None and not self.outbox.settled:
            self._todo.appendleft(action)  # bounded by the stop's time-out; the next start would apply it
            return False
        self._runner.close()
        self.exit = action
        return True

    def _process(self, action: do.Process) -> None:
        value = action.value
        if value is None:
            value = self._early.take(action.key)
        self._runner.process_frame(action.partition, action.offset, value, action.skip)
        self._unflushed = True
        self.counters["frames"] += 1
        self._do(on.Processed(self._overlay.open_bytes))

    def _hold_back(self) -> None:
        """Assign the records that a sink has collected so far to the checkpoint just frozen (A8)."""
        external = self._runner.take_external()
        if self._aligned:
            self._held = external
        else:
            self._produce(external)

    def _produce(self, records: list[ExternalRecord]) -> None:
        if records:
            self._pending_sends.sent_other(PRODUCED, self._mono_ms())
            self._log.produce(self.owner, PRODUCED, records)
            self.urgent = True

    def _write_data(self, action: do.WriteData) -> bool:
        if self._pending_sends.waits_for(PRODUCED):  # all outputs are acknowledged before the commit (A7)
            self._pending_sends.check(self._mono_ms())
            self._todo.appendleft(action)
            return False
        encoded = Encoded(self._overlay, action.generation, action.first_seq, action.cursor)
        for message in encoded.messages:
            self._log.send(self.owner, COVERED, self.wiring.changelog, message, fence=action.generation)
        self._do(on.DataWritten(len(encoded.messages), encoded.digest, encoded.cursor, encoded.round_done))
        return True

    def _apply_chunk(self, changelog_position: bytes) -> bool:
        if self._overlay.apply_chunk(changelog_position):
            self._changelog_position = None
            self._runner.after_commit()
            self._do(on.Applied())
        return True

    def _trim(self, action: do.Trim) -> None:
        if self._trimmed.get(action.partition, 0) < action.offset:
            self._log.trim(action.partition, action.offset)
            self._trimmed[action.partition] = action.offset

    def _read_changelog(self) -> bool:
        event = self.restore.read(starting=self.core.status is TaskStatus.STARTING)
        if event is not None:  # else the log has more, and does not show it yet
            self._do(event)
        if isinstance(event, on.ChangelogEnd) and self._ready:
            self._log.leave(self.wiring.changelog)  # what is appended to it now is our own
        return event is not None

    @property
    def status(self) -> TaskStatus:
        """The status of the task.

        It is its core's, but not RUNNING before the changelog position of its restore is written.
        """
        status = self.core.status
        if status is TaskStatus.RUNNING and any(isinstance(action, do.WriteChangelogPosition) for action in self._todo):
            return TaskStatus.STARTING
        return status

    @property
    def running(self) -> bool:
        """Whether the task has restored its state and takes input."""
        return self.status is TaskStatus.RUNNING
