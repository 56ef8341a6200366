"""Deterministic mode: inputs are decided on and merged in logical time, and nothing waits for a commit (D1, D2)."""

from grete.core import actions as do
from grete.core import events as on
from grete.core.deterministic.task import DeterministicCore
from grete.errors import OffsetOutOfRange
from grete.execution.deterministic.decided import DecidedRows, RowsRead, digest_of
from grete.execution.deterministic.differing import explained
from grete.execution.deterministic.output_recovery import OutputRecovery
from grete.execution.deterministic.outputs import WaitingOutputs
from grete.execution.deterministic.processor import LogicalProcessor
from grete.execution.deterministic.remade import OutputsDiffer
from grete.execution.engine.pending_sends import CHANGELOG
from grete.execution.engine.task_parts import COVERED_TOKEN, TaskParts
from grete.execution.limits import INPUT_END_CHECK_MS, READ_AGAIN_MS
from grete.ports import Delivery, ExternalRecord
from grete.protocol.ids import TopicPartition


class _Due:
    """The time in ms at which a Tick can do something. A core is asked for it once between two of its steps."""

    def __init__(self) -> None:
        self._at_ms: float | None = None
        self._step = -1

    def at(self, now_ms: float, core: DeterministicCore, steps: int) -> float:
        """Return it; ``steps``: as many as the core has taken."""
        if self._at_ms is None or self._step != steps:
            self._at_ms, self._step = now_ms + core.due_in_ms(now_ms), steps
        return self._at_ms

    def forget(self) -> None:
        """Ask the core again: it was worked out from a time rounded down."""
        self._at_ms = None


class DeterministicMode:
    """The Mode of one task. Its outputs to external topics wait here until the core releases them (D5)."""

    def __init__(self, parts: TaskParts, core: DeterministicCore, runner: LogicalProcessor) -> None:
        self._parts = parts
        self._core = core
        self._code = runner
        self._rows = RowsRead()
        self._decided = DecidedRows(parts.wiring.name, parts.io.log, parts.io.settings)
        self._back = OutputRecovery(parts.io.log, parts.io.settings.batch_bytes_max, runner.logical)
        self._waiting = WaitingOutputs()
        self._told = 0  # the last time that the tasks beside this one have observed
        self.held_up = False  # by its sends or its sink: no more input is taken before the log has answered
        self._due = _Due()
        self._unfinished: int | None = None  # what ``_ran`` will take, once no record is in flight
        self._next_offset = -1  # what it took last
        if runner.due is not None:
            runner.due.by_slices(turns=not parts.wiring.channels)
        parts.when_ready = self._begin

    @property
    def awaits_answers(self) -> bool:
        """Whether something can go on only when the log has answered."""
        return self._parts.sends.pending.awaited or self._core.awaits_answers or self.held_up

    @property
    def can_go_on(self) -> bool:
        """Whether a ``tick`` can do something now that outputs are acknowledged."""
        return bool(self._parts.todo) or self.held_up

    def acknowledged(self, delivery: Delivery) -> None:
        """Note where the outputs of this task end: a successor need not look for them before that."""
        for partition, end in delivery.ends:
            self._code.logical.note_end(partition, end)

    def recover(self) -> bool | None:
        """Before anything is processed, find which outputs are visible already (D5)."""
        if self._back.step():
            return True
        return False if self._back.pending else None

    def stop(self) -> None:
        """Tell the core to stop."""
        self._parts.tell(on.Stop())

    @property
    def settled(self) -> bool:
        """Whether no record is being processed: the core is told of one when it has run, and its calls are logged.

        And whether no wall-clock timer is due.
        """
        now_us = int(self._parts.io.mono_ms() * 1_000)
        return not (self._core.processing.active or self._core.time.timer_is_due(now_us))

    def due_in_ms(self, now_ms: float) -> float:
        """Return the ms until ``on_time`` may have something to do; a progress message is due to the µs."""
        due = max(0.0, self._due_at(now_ms) - now_ms)
        if self._core.wants_input:
            due = min(due, self._parts.inputs.event_time.due_in_ms(now_ms))
        return min(due, READ_AGAIN_MS) if self._back.pending else due

    @property
    def observed(self) -> int:
        """The last logical time in µs that has reached this task."""
        return self._core.merge.latest

    def observe(self, t: int) -> None:
        """Note that a task beside this one has observed ``t``: a source passes it at once, if it can (D1).

        One that announces jointly does not: with many tasks it would do nothing else.
        """
        parts = self._parts
        if t > self._told and parts.ready and parts.wiring.is_source and parts.io.joint is None:
            self._told, now = t, parts.io.mono_ms()
            parts.tell(on.Tick(int(now), parts.io.overlay.open_bytes, int(now * 1_000), observed=t))

    observed_checkpoint = None  # checkpoints are its own (D4)
    closed_all = False  # it closes or leaves out the next one by its own timer, soon enough

    def observe_checkpoint(self, checkpoint_id: int, *, sees_next: bool) -> None:
        """Do nothing: it waits for no task's checkpoints."""

    # --- input ---

    def read(self) -> bool:
        """Give frames to the core, and rows of external inputs for their decision; False if there are none now.

        Timers that are due and left come before them, by the slice. These do not wait for consumers that are behind:
        the merge of those waits for the time behind the last slice.
        """
        parts, fires = self._parts, self._core.fires
        if not (fires or self._core.wants_input):
            return False
        full = self._waiting.bytes > parts.io.settings.sink_buffer_bytes_max
        parts.sends.held_by = "sink_buffer_bytes_max" if full else None
        self.held_up = full or parts.blocked(lag=not fires)
        if self.held_up:
            return self._nothing_more()
        if fires:
            self._code.fire_slice()
            self._ran(self._next_offset)
            return True
        try:
            batch = parts.inputs.next_batch()
        except OffsetOutOfRange as error:
            parts.tell_input_gone(error)
            return True
        if batch is None:
            return self._nothing_more() or parts.tell_ends()
        partition, rows = batch
        if partition in parts.inputs.internal:
            step = self._core.step
            for row in rows:
                parts.todo.extend(step(on.Message(partition, row.offset, row.append_time_ms, row.value or b"")))
            parts.tell(on.InputRead())
        else:
            now = parts.io.mono_ms()
            parts.inputs.holes.read(partition, self._core.external.position[partition], rows)
            self._rows.add(partition, rows)
            parts.inputs.end_due_ms = now + INPUT_END_CHECK_MS
            parts.inputs.event_time.active(partition, now)
            parts.counters["external records"] += len(rows)
            large = sum(len(row.value or b"") for row in rows) > parts.io.settings.batch_bytes_max // 2
            offsets, more = (rows[0].offset, rows[-1].offset + 1), large or parts.inputs.reader.more
            parts.tell(on.ExternalBatch(partition, *offsets, len(rows), int(now * 1_000), digest_of(rows), more))
        return True

    def _nothing_more(self) -> bool:
        """Tell a core that gathers outputs that nothing follows for now; return whether it did."""
        if not self._core.gathers:
            return False
        self._parts.tell(on.InputRead())
        return True

    def forget_read(self, partition: TopicPartition) -> None:
        """An input is to be read from elsewhere: forget what was read ahead of its decision, of all of them."""
        self._decided.clear()

    def flush(self) -> bool:
        """Do nothing: each batch is flushed when it ends."""
        return False

    def look_for_idle(self) -> bool:
        """Tell the core of an input that has brought nothing for a while (E4); True if there is one."""
        parts = self._parts
        now = parts.io.mono_ms()
        idle = parts.inputs.event_time.next_idle(now) if self._core.wants_input else None
        if idle is not None:
            partition, ended = idle
            parts.tell(on.InputIdle(partition, int(now * 1_000), ended))
        return idle is not None

    # --- time ---

    def on_time(self) -> bool:
        """Tell the core that time has passed, if that may do something; True if it did."""
        parts = self._parts
        now = parts.io.mono_ms()
        parts.sends.pending.check(now)
        if now < self._due_at(now):
            return False
        self._due.forget()
        if now < self._due_at(now):
            return False
        parts.tell(on.Tick(int(now), parts.io.overlay.open_bytes, mono_us=int(now * 1_000)))
        return bool(parts.todo)

    def _due_at(self, now: float) -> float:
        return self._due.at(now, self._core, self._parts.steps)

    # --- actions ---

    def _begin(self) -> None:
        fold = self._core.start_up.fold
        self._code.own_sinks(self._core.generation)
        self._code.recall(fold.since.calls)
        self._code.logical.go_on_after(fold.since.released, fold.since.released_digests)
        if not self._core.releases:
            self._back.begin(fold.last)

    def perform(self, action: do.Action) -> bool:
        """Do what a deterministic core asks for; False if it is an action of any mode."""
        parts = self._parts
        match action:
            case do.ProcessExternal():
                self._process_external(action)
            case do.ProcessRecords(batches, upto):
                parts.counters["merged batches"] += len(batches)
                self._code.process_merged(batches, upto)
                self._ran()
            case do.ProcessIdle(partition, t, ended):
                self._code.process_idle(partition, t, ended=ended)
                self._ran()
            case do.AppendChangelog():
                self._append_changelog(action)
            case do.Produce(token, count):
                self._produce_next(token, count)
            case do.Announce():
                assert parts.io.joint is not None, "a task with a pace announces with others"
                parts.io.joint.hold(action, self._core.time.interval_us / 1_000)
            case do.ReleaseToSinks(t):
                self._code.let_out(t)
            case do.Freeze():
                if not self._core.releases:
                    self._back.look(parts.io.mono_ms())
                self._drop_rest()
                parts.inputs.holes.froze(action.checkpoint_id)
                parts.runner.before_freeze(action.checkpoint_id)
                parts.io.overlay.freeze()  # outputs leave by output releases, not with a checkpoint (D5)
            case do.FreezePart():
                parts.io.overlay.freeze_part()
            case _:
                return False
        return True

    def waits_for_calls(self, action: do.Action) -> bool:
        """Nothing has to: the core asks for no more before it is told what these records have made."""
        return False

    def had_turns(self) -> None:
        """Tell the core once the last record has had its turn, or one has left timers."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            self._ran(unfinished)

    def _take_waiting(self, count: int) -> list[ExternalRecord]:
        self._parts.counters["released records"] += count
        return self._waiting.take(count)

    def _produce_next(self, token: int, count: int) -> None:
        parts = self._parts
        before = self._waiting.bytes
        outputs = self._take_waiting(count)
        parts.sends.pending.sent(token, before - self._waiting.bytes, parts.io.mono_ms())
        parts.io.log.produce(parts.owner, token, outputs)
        parts.sends.urgent = True

    def _append_changelog(self, action: do.AppendChangelog) -> None:
        parts = self._parts
        outputs = self._take_waiting(action.outputs)
        parts.sends.pending.sent_other(CHANGELOG, parts.io.mono_ms())
        for message in action.before:
            parts.io.log.send(parts.owner, COVERED_TOKEN, parts.wiring.changelog, message, fence=action.generation)
        parts.io.log.send(
            parts.owner,
            CHANGELOG,
            parts.wiring.changelog,
            action.value,
            fence=action.generation,
            sync=action.sync,
            outputs=outputs,
        )
        parts.sends.urgent = True

    def _process_external(self, action: do.ProcessExternal) -> None:
        next_offset = -1
        if action.replay:
            rows = self._decided.read(action)
            next_offset = rows[-1].offset + 1
            self._parts.inputs.holes.read(action.partition, self._core.external.position[action.partition], rows)
            self._parts.counters["replayed records"] += len(rows)
        else:
            rows = self._rows.take(action)
        self._code.process_decided(action.partition, rows, action.first_t, action.last_t)
        self._ran(next_offset)

    def _drop_rest(self) -> None:
        """A checkpoint closes: the rest of a decision, which waits for timers, is read again."""
        taken = self._rows.end()
        if self._code.left and taken is not None:
            (partition, count), (done, next_offset) = taken, self._code.reached
            self._parts.inputs.holes.dropped(partition, next_offset, count - done)

    def _ran(self, next_offset: int = -1) -> None:
        """Hand over what the code has sent; ``next_offset``: after a replay, where to read on."""
        parts, in_flight, left = self._parts, self._parts.runner.in_flight, self._code.left
        if in_flight is not None and in_flight.count and not left:
            self._unfinished = next_offset
            if self._core.processing.timers.left:
                parts.tell(on.Ran(parts.io.overlay.open_bytes, left=True, done=-1))
            return
        self._next_offset = next_offset
        if not left:
            self._rows.end()
        done, offset = self._code.reached if left else (0, next_offset)
        frames, held = parts.runner.take_frames(), parts.runner.external_bytes
        try:
            records, last = self._code.take_numbered()
        except OutputsDiffer as error:
            parts.tell(
                on.InputGone(explained(error, parts.wiring.name, self._code.logical.producer_name, parts.io.log))
            )
            return
        self._waiting.add(records, held - parts.runner.external_bytes)
        timer, released = self._code.next_timer, tuple(last.items())
        told = self._code.take_advances(), self._code.sink_t, self._code.take_calls(), self._code.next_wall
        parts.tell(
            on.Ran(parts.io.overlay.open_bytes, frames, len(records), released, timer, offset, *told, left, done)
        )
        self._waiting.check(self._core.outputs.held)
