"""Performs a deterministic core's actions: as the driver of aligned tasks does, but nothing waits for a commit."""

from collections import deque
from collections.abc import Callable

from framework.core import actions as do
from framework.core import events as on
from framework.core.deterministic.task import DeterministicCore
from framework.errors import OffsetOutOfRange
from framework.execution.deterministic.decided import DecidedRows, digest_of
from framework.execution.deterministic.differing import explained
from framework.execution.deterministic.output_recovery import OutputRecovery
from framework.execution.deterministic.ports import LogicalRunner
from framework.execution.deterministic.remade import OutputsDiffer
from framework.execution.driver import COVERED, TaskDriver
from framework.execution.limits import END_CHECK_MS, LATE_MS
from framework.execution.pending_sends import CHANGELOG
from framework.ports import Delivery, ExternalRecord, Log, LogRow, SpillStore, StateStore
from framework.settings import Settings
from framework.stores.overlay import Overlay
from protocol.ids import TopicPartition


class DeterministicDriver(TaskDriver):
    """One task. Its outputs to external topics wait here, in order, until the core releases them (D5)."""

    def __init__(
        self,
        owner: int,
        core: DeterministicCore,
        *,
        log: Log,
        store: StateStore,
        overlay: Overlay,
        spill: SpillStore,
        runner: LogicalRunner,
        settings: Settings,
        mono_ms: Callable[[], float],
    ) -> None:
        super().__init__(
            owner,
            core,
            log=log,
            store=store,
            overlay=overlay,
            spill=spill,
            runner=runner,
            settings=settings,
            mono_ms=mono_ms,
        )
        self._logical = core
        self._code = runner
        self._batches_read: deque[tuple[TopicPartition, list[LogRow]]] = deque()  # read, their decision not yet made
        self._decided = DecidedRows(self.wiring.name, log, settings)
        self._back = OutputRecovery(log, settings.batch_bytes_max, runner)
        self._waiting: list[ExternalRecord] = []  # outputs that are not released yet
        self._waiting_bytes = 0
        self._told = 0  # the last time that the tasks beside this one have observed
        self._held_up = False  # no more input is taken before the log has answered
        self._due_at_ms: float | None = None  # when a Tick can do something, as of the core's last step

    @property
    def awaits_answers(self) -> bool:
        """Whether something can go on only when the log has answered."""
        return self._pending_sends.awaited or self._logical.awaits_answers or self._held_up

    def delivered(self, delivery: Delivery) -> bool:
        """Take the log's answer to one of our sends; return whether a ``tick`` can do something now."""
        for partition, end in delivery.ends:
            self._code.note_end(partition, end)
        if delivery.token != CHANGELOG:
            super().delivered(delivery)
            return bool(self._todo) or self._held_up
        self._pending_sends.delivered(CHANGELOG)
        self.restore.appended(delivery.offset)
        now = self._mono_ms()
        self._do(on.ChangelogAppended(*delivery[2:4], int(now), *delivery[4:6], mono_us=int(now * 1_000)))
        return True

    def tick(self) -> bool:
        """Do the next thing. Before it processes anything, the task knows which outputs are visible already (D5)."""
        return self._back.step() or (not self._back.pending and super().tick())

    def due_in_ms(self) -> float:
        """Return how long a driver with nothing to do may wait; a progress message is due to the µs."""
        now = self._mono_ms()
        due = max(0.0, self._due_at(now) - now)
        if self.core.wants_input:
            due = min(due, self.event_time.due_in_ms(now))
        if self.restore.pending or self._back.pending:
            return min(due, LATE_MS)
        return due if self.outbox is None or not self._ready else min(due, self.outbox.due_in_ms(now))

    @property
    def observed(self) -> int:
        """The last logical time in µs that has reached this task."""
        return self._logical.merge.latest

    def observe(self, t: int) -> None:
        """Note that a task beside this one has observed ``t``: a source passes it at once, if it can (D1)."""
        if t > self._told and self._ready and self.wiring.is_source:
            self._told, now = t, self._mono_ms()
            self._do(on.Tick(int(now), self._overlay.open_bytes, int(now * 1_000), observed=t))

    # --- input ---

    def _read_input(self) -> bool:
        if not self.core.wants_input:
            return False
        self._held_up = self._blocked()
        if self._held_up:
            return self._nothing_more()
        try:
            batch = self._input_reader.next_batch()
        except OffsetOutOfRange as error:
            self._do(on.InputGone(error))
            return True
        if batch is None:
            return self._nothing_more() or self._note_ends()
        partition, rows = batch
        if partition in self._internal:
            step = self.core.step
            for row in rows:
                self._todo.extend(step(on.Message(partition, row.offset, row.append_time_ms, row.value or b"")))
            self._do(on.InputRead())
        else:
            now = self._mono_ms()
            self._batches_read.append(batch)
            self._end_due_ms = now + END_CHECK_MS
            self.event_time.active(partition, now)
            self.counters["external records"] += len(rows)
            large = sum(len(row.value or b"") for row in rows) > self._settings.batch_bytes_max // 2
            offsets, more = (rows[0].offset, rows[-1].offset + 1), large or self._input_reader.more
            self._do(on.ExternalBatch(partition, *offsets, len(rows), int(now * 1_000), digest_of(rows), more))
        return True

    def _look_for_idle(self) -> bool:
        """Tell the core of an input that has brought nothing for a while (E4); return whether there is one."""
        now = self._mono_ms()
        idle = self.event_time.next_idle(now) if self.core.wants_input else None
        if idle is not None:
            self._do(on.InputIdle(idle, int(now * 1_000)))
        return idle is not None

    def _nothing_more(self) -> bool:
        """Tell a core that gathers outputs that nothing follows for now; return whether it did."""
        if not self._logical.gathers:
            return False
        self._do(on.InputRead())
        return True

    def _flush_batch(self) -> bool:
        return False  # each batch is flushed when it ends

    def _blocked(self) -> bool:
        return self._waiting_bytes > self._settings.sink_buffer_bytes_max or super()._blocked()

    def _time(self) -> bool:
        now = self._mono_ms()
        self._pending_sends.check(now)
        if now < self._due_at(now):
            return False
        self._due_at_ms = None
        if now < self._due_at(now):  # it was worked out from a time rounded down
            return False
        self._do(on.Tick(int(now), self._overlay.open_bytes, mono_us=int(now * 1_000)))
        return bool(self._todo)

    def _due_at(self, now: float) -> float:
        if self._due_at_ms is None:
            self._due_at_ms = now + self._logical.due_in_ms(now)
        return self._due_at_ms

    # --- actions ---

    def _do(self, event: on.Event) -> None:
        was_ready, self._due_at_ms = self._ready, None
        super()._do(event)
        if self._ready and not was_ready:
            fold = self._logical.start_up.fold
            self._code.go_on_after(fold.released, fold.released_digests)
            if not self._logical.releases:
                self._back.begin(self._logical.start_up.fold.last)

    def _perform_next(self) -> bool:
        match action := self._todo[0]:
            case do.ProcessExternal():
                self._todo.popleft()
                self._process_external(action)
            case do.ProcessRecords(batches, upto):
                self._todo.popleft()
                self.counters["merged batches"] += len(batches)
                self._code.process_merged(batches, upto)
                self._ran()
            case do.ProcessIdle(partition, t):
                self._todo.popleft()
                self._code.process_idle(partition, t)
                self._ran()
            case do.AppendChangelog():
                self._todo.popleft()
                self._append_changelog(action)
            case do.Produce(token, count):
                self._todo.popleft()
                self._produce_next(token, count)
            case do.Seek():
                self._decided.clear()
                return super()._perform_next()
            case do.Freeze() if not self._logical.releases:
                self._back.look(self._mono_ms())
                return super()._perform_next()
            case _:
                sends = isinstance(action, do.Send)
                done = super()._perform_next()
                self.urgent |= sends and not self._todo
                return done
        return True

    def _take_waiting(self, count: int) -> list[ExternalRecord]:
        outputs = self._waiting[:count]
        if outputs:
            self._waiting_bytes -= self._waiting_bytes * len(outputs) // len(self._waiting)
            del self._waiting[:count]
        self.counters["released records"] += len(outputs)
        return outputs

    def _produce_next(self, token: int, count: int) -> None:
        before = self._waiting_bytes
        outputs = self._take_waiting(count)
        self._pending_sends.sent(token, before - self._waiting_bytes, self._mono_ms())
        self._log.produce(self.owner, token, outputs)
        self.urgent = True

    def _append_changelog(self, action: do.AppendChangelog) -> None:
        outputs = self._take_waiting(action.outputs)
        self._pending_sends.sent_other(CHANGELOG, self._mono_ms())
        for message in action.before:
            self._log.send(self.owner, COVERED, self.wiring.changelog, message, fence=action.generation)
        self._log.send(
            self.owner,
            CHANGELOG,
            self.wiring.changelog,
            action.value,
            fence=action.generation,
            sync=action.sync,
            outputs=outputs,
        )
        self.urgent = True

    def _process_external(self, action: do.ProcessExternal) -> None:
        next_offset = -1
        if action.replay:
            rows = self._decided.read(action)
            next_offset = rows[-1].offset + 1
            self.counters["replayed records"] += len(rows)
        else:
            partition, rows = self._batches_read.popleft()
            assert (partition, rows[0].offset, len(rows)) == (action.partition, action.first_offset, action.count)
        self._code.process_decided(action.partition, rows, action.first_t)
        self._ran(next_offset)

    def _ran(self, next_offset: int = -1) -> None:
        """Hand over what the code has sent; ``next_offset``: after a replay, where to read on."""
        frames, held = self._runner.take_frames(), self._runner.external_bytes
        try:
            records, last = self._code.take_numbered()
        except OutputsDiffer as error:
            self._do(on.InputGone(explained(error, self.wiring.name, self._code.producer_name, self._log)))
            return
        self._waiting.extend(records)
        if records:  # outputs that were visible before the restart are dropped: they do not wait
            self._waiting_bytes += held - self._runner.external_bytes
        timer, released = self._code.next_timer, tuple(last.items())
        advances = self._code.take_advances()
        self._do(on.Ran(self._overlay.open_bytes, frames, len(records), released, timer, next_offset, advances))

    def _hold_back(self) -> None:
        """Nothing: outputs leave by output releases, not with a checkpoint (D5)."""
