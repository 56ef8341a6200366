"""Aligned mode, at most and at least once, no guarantee: frames come one by one, outputs leave with their commit."""

from collections import deque
from functools import partial

from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.errors import OffsetOutOfRange
from grete.execution.engine.aligned_outputs import AlignedOutputs, OpenFrames
from grete.execution.engine.checkpoint_asks import CheckpointAsks
from grete.execution.engine.input_in_flight import DueTimers, InputInFlight
from grete.execution.engine.task_parts import TaskParts
from grete.execution.inputs.early_frames import SpilledFrames
from grete.execution.inputs.held_input import HeldInput, HeldWork, input_held_back
from grete.execution.limits import INPUT_END_CHECK_MS, WALL_LOOK_MS
from grete.execution.timing.timers import NEVER
from grete.ports import Delivery, LogRow
from grete.protocol.ids import TopicPartition


class AlignedMode:
    """The Mode of one task. Once told, an external record is processed at once; a frame waits for the core.

    Without a guarantee the core is told so as well, and what it takes for processed waits until a commit covers it.
    At most once it is so in sources: what fails then is a checkpoint whose input is behind the committed positions.
    """

    awaits_answers = True  # a commit waits for the frames before it
    can_go_on = True
    observed = 0

    def __init__(self, parts: TaskParts, core: TaskCore, early: SpilledFrames) -> None:
        self._parts, self._core, self._early = parts, core, early
        self._aligned = core.aligned
        self._asks = CheckpointAsks(parts, core)
        self._batch: deque[LogRow] = deque()
        self._batch_of: TopicPartition | None = None
        self._outputs = AlignedOutputs(parts, held=core.aligned)
        self._unflushed = False  # something was processed since the outputs were flushed
        self._frames = OpenFrames(parts, gathers=parts.io.gathers and core.aligned)
        self._uncovered = input_held_back(parts.io.settings.processing_guarantee, is_source=parts.wiring.is_source)
        if self._uncovered is not None:
            parts.inputs.event_time.holds = self._uncovered.holds
        self._rest: tuple[TopicPartition, list[LogRow]] | None = None  # rows that wait for timers that are left (E10)
        self._stopping = False  # of a task that holds what it reads: nothing more is read
        self._stop_waits = False  # for what was read; then the core is told
        self._fired = False  # wall-clock timers have, since input was last looked for
        self._done_in = -1  # the checkpoint that holds what they, or input that was held, did last
        self.held_up = False
        self._in_flight = InputInFlight(parts, covered=self._uncovered is not None)
        self._due = DueTimers(parts, core, self._in_flight)

    def observe(self, t: int) -> None:
        """Do nothing: there is no logical time."""

    @property
    def observed_checkpoint(self) -> int | None:
        """The greatest checkpoint of which a marker has come; None: more may come unseen, for longer than a turn."""
        return None if self.held_up or self._waits else self._core.observed_checkpoint

    @property
    def closed_all(self) -> bool:
        """Whether the task has done nothing since it closed its last checkpoint, which need not be committed yet."""
        return not (self._in_work or self._unflushed or self._in_flight.any or self._core.idleness.news)

    @property
    def _in_work(self) -> bool:
        return self._waits or self._batch_of is not None

    @property
    def _waits(self) -> bool:
        """Whether the task has read rows that wait: for a commit, for calls, or for due timers."""
        return self._holds_rows or self._rest is not None or self._due.left

    @property
    def _holds_rows(self) -> bool:
        return self._uncovered is not None and (self._in_flight.any or not self._uncovered.empty)

    def observe_checkpoint(self, checkpoint_id: int, *, sees_next: bool) -> None:
        """Tell the core what tasks beside this one have observed (A1)."""
        self._parts.tell(on.CheckpointObserved(int(self._parts.io.mono_ms()), checkpoint_id, sees_next))

    def acknowledged(self, delivery: Delivery) -> None:
        """Do nothing: an aligned task need not know where its outputs are."""

    def recover(self) -> bool | None:
        """There is nothing to recover: outputs become visible with their commit, or may come twice."""
        return None

    def stop(self) -> None:
        """Tell the core to stop: where input is held not before all of it has run, as no successor reads it."""
        parts, self._stopping = self._parts, self._uncovered is not None
        self._frames.hurry()
        self._stop_waits = self._stopping and (self._holds_rows or not self._core.at_rest)
        if self._stop_waits:  # a commit lets it run: not by the timer, which may be minutes away
            now = int(parts.io.mono_ms())
            parts.tell(on.Tick(now, parts.io.overlay.open_bytes, asked=parts.inputs.asked, requested=True))
        else:
            parts.tell(on.Stop())

    @property
    def settled(self) -> bool:
        """Whether all that was read has been processed, and is committed or known to be in the log.

        So has what wall-clock timers did, and none is due.
        """
        parts, held = self._parts, self._uncovered
        if self._in_flight.any or self._due.left or self._rest is not None:
            return False
        if held is None or self._aligned:
            last, rests = parts.core.commits.committed, held is None or held.empty
            return rests and parts.wall_timer_in_ms > 0 and (last is None or last.checkpoint_id >= self._done_in)
        at_rest = parts.core.commits.pending is None and parts.io.overlay.open_bytes == 0 and not self._unflushed
        return held.empty and at_rest and parts.sends.pending.bytes == 0

    # --- time ---

    def on_time(self) -> bool:
        """Tell the core that time has passed, if that may do something; True if it did."""
        parts = self._parts
        if self._stop_waits and self._core.at_rest and not self._holds_rows:  # nor is about to
            self.stop()
            return True
        now = parts.io.mono_ms()
        parts.sends.pending.check(now)
        asked, parts.inputs.asked = parts.inputs.asked, self._asks.look(now)
        is_asked = parts.inputs.asked > asked and parts.wiring.is_source
        if not is_asked and parts.core.due_in_ms(int(now)) > 0:
            return False
        parts.tell(on.Tick(int(now), parts.io.overlay.open_bytes, asked=parts.inputs.asked))
        return bool(parts.todo)

    def due_in_ms(self, now_ms: float) -> float:
        """Return the ms until ``on_time``, or a look at the inputs, may have something to do."""
        parts = self._parts
        due: float = parts.core.due_in_ms(int(now_ms))
        due = min(due, int(parts.inputs.end_due_ms - now_ms) + 1) if now_ms < parts.inputs.end_due_ms else due
        due = min(due, gathers_ms) if (gathers_ms := self._frames.due_in_ms(now_ms)) else due
        if self._due.left:
            return due
        if parts.core.wants_input and self._batch_of is None and not parts.inputs.reader.more:
            due = min(due, max(parts.inputs.event_time.due_in_ms(now_ms), gathers_ms))  # event time leaves with frames
        if parts.core.wants_input and not self.held_up and parts.wall_timer_in_ms < NEVER:
            due = min(due, max(0.0, parts.wall_timer_in_ms), WALL_LOOK_MS)
        return due

    def look_for_idle(self) -> bool:
        """Tell the code of inputs that have brought nothing for a while (E4), or let wall-clock timers fire."""
        parts, now = self._parts, self._parts.io.mono_ms()
        if self._due.left or self._rest is not None:
            return False
        if parts.wall_timer_in_ms <= 0 and parts.core.wants_input and not (self.held_up or self._fired):
            self._fired, self._done_in = True, self._open_checkpoint
            parts.runner.fire_wall(parts.io.wall_ms)
            return self._unflushed_at(now)
        if not parts.core.wants_input or (idle := parts.inputs.event_time.next_idle(now)) is None:
            return False
        parts.runner.input_is_idle(idle[0], ended=idle[1])
        return self._unflushed_at(now)

    @property
    def _open_checkpoint(self) -> int:
        return self._core.idleness.closed(self._core.frozen) + 1

    def _unflushed_at(self, now: float) -> bool:
        """Tell the core that no record, but time has done something."""
        self._unflushed = True
        self._due.tell_left()
        self._parts.tell(on.Tick(int(now), self._parts.io.overlay.open_bytes))
        return True

    # --- input ---

    def read(self) -> bool:
        """Read input and give it to the core or the code; False if there is none to be had now."""
        parts, self._fired = self._parts, False
        self.held_up = parts.core.wants_input and parts.blocked()
        if self.held_up or not parts.core.wants_input or (self._in_flight.full and not self._due.left):
            return False
        if self._uncovered is not None and (ran := self._run_covered(self._uncovered)) is not None:
            return ran
        if self._due.left:
            self._due.fire()
            self._unflushed, self._done_in = True, self._open_checkpoint
            if not (self._due.left and self._due.let_markers_pass):
                return True
        if self._rest is None and self._batch_of is None:
            try:
                batch = parts.inputs.next_batch()
            except OffsetOutOfRange as error:
                parts.tell_input_gone(error)
                return True
            if batch is None:
                return self._due.left or (not (self._holds_rows or self._in_flight.any) and parts.tell_ends())
            partition, rows = batch
            if partition in parts.inputs.internal:
                self._batch_of, self._batch = partition, deque(rows)
            else:
                self._rest = partition, rows
        if self._rest is None:
            assert self._batch_of is not None
            self._tell_messages(self._batch_of)
        elif not self._due.left:
            self._external_batch(*self._rest)
        return True

    def _tell_messages(self, partition: TopicPartition) -> None:
        """Tell the core of messages, up to the first of which something comes: of most markers nothing does."""
        parts, batch, core = self._parts, self._batch, self._core
        while batch:
            if self._due.hold(batch[0].value or b""):
                break
            parts.tell(on.Messages(partition, [batch[0]] if self._due.left else batch))
            while batch and batch[0].offset < core.inputs.position[partition]:
                batch.popleft()
            if parts.todo or not core.wants_input:
                break
        if not batch:
            self._batch_of = None

    def _run_covered(self, held: HeldInput) -> bool | None:
        """Fire due timers, or run what a commit covers; None: there is nothing of either, and more may be read."""
        if self._due.left or held.may_run:
            if self._due.left:
                self._due.fire()
            else:
                held.run()
            self._unflushed = True
            self._due.tell_left()
            self._tell_run()
            return True
        full = held.uncovered_bytes > self._parts.io.settings.early_memory_bytes_max
        return False if self._stopping or full else None

    def _tell_run(self) -> None:
        """Tell the core, which knows the positions, that something was done in the open checkpoint (A9)."""
        parts, external, self._done_in = self._parts, self._core.external, self._open_checkpoint
        if not external.position:  # of a stage behind others, without a guarantee
            parts.tell(on.Tick(int(parts.io.mono_ms()), parts.io.overlay.open_bytes, asked=parts.inputs.asked))
            return
        partition, position = next(iter(external.position.items()))
        parts.tell(on.ExternalProcessed(partition, position, external.ended[partition], parts.io.overlay.open_bytes))

    def _run_rows(self, partition: TopicPartition, rows: list[LogRow]) -> HeldWork | None:
        taken = self._parts.runner.process_rows(partition, rows)
        return None if taken == len(rows) else partial(self._run_rows, partition, rows[taken:])

    def _external_batch(self, partition: TopicPartition, rows: list[LogRow]) -> None:
        parts, self._rest = self._parts, None
        parts.inputs.event_time.active(partition, parts.io.mono_ms())
        if self._uncovered is None:
            taken = parts.runner.process_rows(partition, rows)
            self._unflushed = True
            self._frames.took(rows[:taken], parts.io.mono_ms())
            self._rest, rows = None if taken == len(rows) else (partition, rows[taken:]), rows[:taken]
            self._due.tell_left()
        else:
            work = partial(self._run_rows, partition, rows)
            self._uncovered.take(partition, sum(len(row.value or b"") for row in rows), work)
        parts.counters["external records"] += len(rows)
        parts.inputs.end_due_ms = parts.io.mono_ms() + INPUT_END_CHECK_MS
        self._in_flight.took_rows(partition, rows)

    def forget_read(self, partition: TopicPartition) -> None:
        """An input is to be read from elsewhere: forget what was read of it and not processed."""
        if self._batch_of == partition:
            self._batch_of, self._batch = None, deque()
        self._rest = self._rest if self._rest is not None and self._rest[0] != partition else None
        self._in_flight.forget(partition)

    # --- outputs ---

    def flush(self) -> bool:
        """Close the output frames at the end of a batch, never by waiting."""
        parts = self._parts
        if (self._batch_of is not None or parts.inputs.reader.more) and not (self._in_flight.full or self._due.left):
            return False
        if self._frames.hold(now := parts.io.mono_ms()):
            return False
        frames = self._frames.take() if self._unflushed else []
        watermark = parts.inputs.event_time.take(now)
        if not self._unflushed and watermark is None:
            return False
        self._unflushed = False
        if frames or watermark is not None:
            parts.tell(on.OutputFrames(frames, watermark))
        if not self._aligned:
            self._outputs.produce()
        return True

    def perform(self, action: do.Action) -> bool:
        """Do what an aligned core asks for; False if it is an action of any mode."""
        parts = self._parts
        match action:
            case do.Process():
                self._process(action)
            case do.FlushOutputs() if self._due.left and self._in_flight.frames:
                self._due.tell_left()  # they are of the checkpoint that was to close: it waits
            case do.FlushOutputs():
                frames = self._frames.take()
                parts.tell(on.OutputFrames(frames, parts.inputs.event_time.take(parts.io.mono_ms(), at_once=True)))
            case do.Freeze():
                assert (self._batch_of is None) == (not self._batch), f"{len(self._batch)} messages of {self._batch_of}"
                assert self._rest is None or self._batch_of is None, "rows and messages wait at a time"
                assert self._frames.due_in_ms(0.0) == 0.0, "a frame waits beyond its checkpoint"
                parts.inputs.holes.froze(action.checkpoint_id)
                parts.runner.before_freeze(action.checkpoint_id)
                parts.io.overlay.freeze()
                if self._uncovered is not None:
                    self._uncovered.froze()
                self._outputs.froze()
            case do.Committed() if self._uncovered is not None:
                self._uncovered.committed()
                return False  # the driver counts it
            case do.AppendChangelog():
                self._outputs.append_changelog(action)
            case _:
                return False
        return True

    # --- records in flight ---

    def waits_for_calls(self, action: do.Action) -> bool:
        """Whether records in flight leave no place for a frame, or are to be in the checkpoint that closes."""
        flight = self._in_flight
        waits = flight.any if isinstance(action, do.FlushOutputs) else isinstance(action, do.Process) and flight.full
        return waits and not self._due.left

    def had_turns(self) -> None:
        """Note that there may be outputs."""
        self._unflushed = True
        self._due.tell_left()
        self._in_flight.had_turns()

    def _process(self, action: do.Process) -> None:
        parts, value = self._parts, action.value
        if value is None:
            value = self._early.take(action.key)
        work = partial(parts.runner.process_frame, action.partition, action.offset, value, action.skip)
        if self._uncovered is None:
            work()
            self._in_flight.took_frame()
            self._unflushed = True
            self._frames.took_frame(len(value), parts.io.mono_ms())
        else:
            self._uncovered.take(action.partition, len(value), work)
        parts.counters["frames"] += 1
        self._due.tell_left()
        parts.tell(on.Processed(parts.io.overlay.open_bytes))
