"""Performs a task core's actions on a log and a store, in their order: the same for every log and the simulator.

``tick`` does at most one thing that touches the outside, so that a simulator can crash or pause a task between any two.
"""

from grete.core import actions as do
from grete.core import events as on
from grete.core.faults import names_violations
from grete.core.lifecycle import TaskStatus
from grete.execution.changelog.changelog_writer import CheckpointWrites
from grete.execution.changelog.own_changelog import OwnChangelog
from grete.execution.changelog.restorer import Restorer, sent_before
from grete.execution.changelog.stream_trims import Trims
from grete.execution.engine.modes import TaskMode
from grete.execution.engine.pending_sends import CHANGELOG, PRODUCED
from grete.execution.engine.task_parts import COVERED_TOKEN, TaskParts
from grete.execution.inputs.early_frames import SpilledFrames
from grete.execution.limits import CALLS_LOOK_MS, READ_AGAIN_MS
from grete.ports import Delivery, StateStore
from grete.protocol.changelog_position import decode_changelog_position


class TaskDriver:
    """One task of this process: its core, its store, its user code, and the mode of all three."""

    def __init__(self, parts: TaskParts, mode: TaskMode, *, store: StateStore, early: SpilledFrames) -> None:
        """``early`` holds frames that came before their checkpoint."""
        self.parts = parts
        self.mode = mode
        self.core, self.wiring = parts.core, parts.wiring
        self.exit: do.Exit | None = None
        self._in_flight = parts.runner.in_flight
        self._store = store
        self._early = early
        self.restore = OwnChangelog(parts.io.log, self.wiring, 4 * parts.io.settings.batch_bytes_max, parts.io.mono_ms)
        self._restorer = Restorer(self.restore, parts.io.log, store, parts.io.overlay, self.wiring, parts.counters)
        self._frozen = CheckpointWrites(parts.io.overlay)
        self._trims = Trims(parts.io.log, self.wiring.changelog, parts.io.settings.stream_retention_ms)

    @names_violations
    def start(self, *, nonce: bytes, host: str, pid: int, wall_ms: int) -> None:
        """Begin: nothing is written before the claim (C1)."""
        parts = self.parts
        assert not (parts.steps or parts.todo), f"{self.wiring.name} starts twice"
        partitions = (*parts.inputs.partitions, self.wiring.changelog)
        changelog_position = self._store.changelog_position()
        bounds, sent = parts.inputs.awaited.bounds(partitions, self.wiring.bootstrap), None
        if changelog_position is None and bounds[self.wiring.changelog] == (0, 0):
            sent = sent_before(parts.io.log, self.wiring, aligned=parts.io.settings.aligned)
            bounds = parts.inputs.awaited.bounds(partitions, self.wiring.bootstrap)  # a twin may have begun meanwhile
        self._early.clear()
        parts.tell(
            on.Start(
                int(parts.io.mono_ms()),
                nonce,
                host,
                pid,
                wall_ms,
                None if changelog_position is None else decode_changelog_position(changelog_position),
                bounds,
                sent,
            )
        )

    def stop(self) -> None:
        """Ask for a graceful stop (R6); ``exit`` is set when it is done."""
        self.mode.stop()

    def end_inputs(self) -> None:
        """The job is drained: all inputs from outside have ended (E7). Again for each process until it has finished."""
        self.parts.inputs.event_time.end_inputs()

    @names_violations
    def delivered(self, *deliveries: Delivery) -> bool:
        """Take the log's answers to some of our sends; return whether a ``tick`` can do something now.

        The core is told of the last message that has arrived, not of each: a checkpoint has one for each task behind.
        """
        parts, risen, appended = self.parts, False, False
        for delivery in deliveries:
            self.mode.acknowledged(delivery)
            if delivery.token > 0:
                risen |= parts.sends.pending.delivered(delivery.token)
            elif delivery.token <= PRODUCED:
                parts.sends.pending.delivered(delivery.token)
            elif delivery.token == CHANGELOG:
                self._tell_acked(risen=risen)
                risen, appended = False, True
                self._appended(delivery)
        self._tell_acked(risen=risen)
        return appended or self.mode.can_go_on

    def _tell_acked(self, *, risen: bool) -> None:
        if risen:
            self.parts.tell(on.Acked(self.parts.sends.pending.delivered_up_to))

    def _appended(self, delivery: Delivery) -> None:
        parts = self.parts
        now = parts.io.mono_ms()
        parts.sends.pending.appended(delivery.append_time_ms, now, parts.io.wall_ms)
        self.restore.appended(delivery.offset)
        where = delivery.offset, delivery.append_time_ms, int(now), delivery.fenced, delivery.trailing
        parts.tell(on.ChangelogAppended(*where, mono_us=int(now * 1_000)))

    @names_violations
    def tick(self) -> bool:
        """Do the next thing; False if there is nothing to do before a delivery, a new message or ``due_in_ms``."""
        parts, mode = self.parts, self.mode
        if (recovering := mode.recover()) is not None or self.exit is not None:
            return bool(recovering)
        frozen = self._frozen
        if parts.ready and (self._sinks_work() or self._calls_work()):
            return True
        if parts.todo and not (frozen.had_turn and self._slice_alone):
            return not self._waits_for_calls and self._perform_next()
        if self.restore.pending:
            return self._read_changelog()
        if frozen.applying and not frozen.had_turn:
            return self._apply_chunk()
        if parts.runner.requests.waiting and self._ask():
            return True
        frozen.had_turn = False  # in turn with input: a large checkpoint does not stall the task (A8)
        if mode.on_time() or mode.look_for_idle() or mode.flush() or mode.read():
            return True
        if parts.todo:
            return self._perform_next()
        return frozen.applying and self._apply_chunk()

    def _ask(self) -> bool:
        """Tell the core that the code asks for a checkpoint, unless it did so just now; True if it was told."""
        parts, now = self.parts, self.parts.io.mono_ms()
        if not parts.ready or not parts.runner.requests.take(now):
            return False
        tick = on.Tick(
            int(now), parts.io.overlay.open_bytes, mono_us=int(now * 1_000), asked=parts.inputs.asked, requested=True
        )
        parts.tell(tick)
        return True

    def _sinks_work(self) -> bool:
        """Do the next thing for the sinks; True if there was one."""
        parts, outbox, now = self.parts, self.parts.runner.outbox, self.parts.io.mono_ms()
        if outbox is None or not (outbox.refusals.due and self.core.wants_input):
            return outbox is not None and outbox.work(now)
        outbox.refusals.set_aside()
        self.mode.had_turns()  # there may be letters, and they are news
        parts.tell(on.Tick(int(now), parts.io.overlay.open_bytes, mono_us=int(now * 1_000), asked=parts.inputs.asked))
        return True

    def _calls_work(self) -> bool:
        if self._in_flight is None or not self._in_flight.work():
            return False
        self.mode.had_turns()
        return True

    @property
    def _waits_for_calls(self) -> bool:
        return self._in_flight is not None and self.mode.waits_for_calls(self.parts.todo[0])

    @property
    def _slice_alone(self) -> bool:
        """Whether input may go first: a slice is all that is asked for. Behind anything else it would be read ahead."""
        todo = self.parts.todo
        return len(todo) == 1 and isinstance(todo[0], do.WriteData)

    def due_in_ms(self) -> float:
        """Return the time for which an idle driver may wait."""
        now = self.parts.io.mono_ms()
        requests = self.parts.runner.requests
        due = min(self.mode.due_in_ms(now), self.parts.sends.backpressure.due_in_ms, requests.due_in_ms(now))
        fetches = self.parts.core.wants_input and self.parts.inputs.reader.waits
        due = min(due, READ_AGAIN_MS) if self.restore.pending or fetches else due
        if self._in_flight is not None and self._in_flight.count:
            due = min(due, CALLS_LOOK_MS)
        outbox = self.parts.runner.outbox
        return due if outbox is None or not self.parts.ready else min(due, outbox.due_in_ms(now))

    def abandon(self) -> None:
        """Let go of what is outside of this process, as its end would."""
        if self.parts.runner.outbox is not None:
            self.parts.runner.outbox.abandon()

    @property
    def urgent(self) -> bool:
        """Whether sent messages should leave at once, because a task waits for them; the worker takes it back."""
        return self.parts.sends.urgent

    @urgent.setter
    def urgent(self, urgent: bool) -> None:
        self.parts.sends.urgent = urgent

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two turns: of the core, and of what drives it."""
        self.core.check_invariants()
        self.parts.check_invariants()
        assert self.exit is None or self.core.status is TaskStatus.STOPPED, f"ended in {self.core.status}"

    # --- actions ---

    def _perform_next(self) -> bool:
        parts, action = self.parts, self.parts.todo.popleft()
        if isinstance(action, do.AppendChangelog):
            size = len(action.value) + sum(map(len, action.before))
            self._frozen.appended(size)
            parts.counters["changelog bytes"] += size
        if self.mode.perform(action):
            return True
        match action:
            case do.Send():
                self._send(action)
            case do.WriteData():
                return self._write_data(action)
            case do.ApplyFrozen():
                self._frozen.committed(action.changelog_position)
            case do.Seek():
                self.mode.forget_read(action.partition)
                parts.inputs.reader.seek(action.partition, action.offset)
                parts.inputs.reported.forget(action.partition)
                self.parts.inputs.event_time.active(action.partition, parts.io.mono_ms())
            case do.Spill():
                self._early.put(action.key, action.value)
            case do.DropSpilled(keys):
                self._early.drop(keys)
            case do.ClearSpill():
                self._early.clear()
            case do.DropOpen():
                self.check_invariants()  # a rollback goes on with what it keeps
                parts.io.overlay.drop_open()
                parts.inputs.holes.rolled_back()
                parts.runner.reset()
                self.parts.inputs.event_time.reset()
            case do.Trim(partition, offset):
                self._trims.trim(partition, offset, parts.io.mono_ms())
            case do.Committed():
                self.parts.counters["commits"] += 1
                self.check_invariants()  # once a checkpoint: what follows would build on a broken state
            case do.Exit():
                return self._end(action)
            case _:
                self._restore(action)
        return True

    def _send(self, action: do.Send) -> None:
        """Send a message, and those that come directly behind it: a checkpoint marker goes to each task behind."""
        parts, now = self.parts, self.parts.io.mono_ms()
        while True:
            parts.sends.pending.sent(action.token, len(action.value), now)
            parts.io.log.send(parts.owner, action.token, action.partition, action.value)
            parts.sends.backpressure.sent(action.partition)
            behind = parts.todo[0] if parts.todo else None
            if not isinstance(behind, do.Send):
                break
            action = behind
            parts.todo.popleft()
        parts.sends.urgent = not parts.todo

    def _restore(self, action: do.Action) -> None:
        event = self._restorer.perform(action, restored=self.core.start_up.restored)
        if event is not None:
            self.parts.tell(event)

    def _end(self, action: do.Exit) -> bool:
        outbox = self.parts.runner.outbox
        if outbox is not None and not outbox.may_end:
            self.parts.todo.appendleft(action)  # bounded by the stop's time-out; the next start would apply it
            return False
        assert self.exit is None, f"{self.wiring.name} ends twice"
        self.parts.runner.close()
        self.exit = action
        return True

    def _write_data(self, action: do.WriteData) -> bool:
        parts = self.parts
        if parts.sends.pending.awaits_plain:  # all outputs are acknowledged before the commit (A7)
            parts.sends.pending.check(parts.io.mono_ms())
            parts.todo.appendleft(action)
            return False
        message, answer = self._frozen.next_slice(action)
        self.parts.counters["data slices with more to come"] += answer.more
        if message is not None:
            parts.io.log.send(parts.owner, COVERED_TOKEN, self.wiring.changelog, message, fence=action.generation)
            self.parts.counters["changelog bytes"] += len(message)
        parts.tell(answer)
        return True

    def _apply_chunk(self) -> bool:
        if self._frozen.apply_chunk():
            self.parts.runner.after_commit()
            self.parts.tell(on.Applied())
        return True

    def _read_changelog(self) -> bool:
        event = self.restore.read(starting=self.core.status is TaskStatus.STARTING)
        if event is not None:  # else the log has more, and does not show it yet
            self.parts.tell(event)
        if isinstance(event, on.ChangelogEnd) and self.parts.ready:
            self.parts.io.log.leave(self.wiring.changelog)  # what is appended to it now is our own
        return event is not None

    @property
    def status(self) -> TaskStatus:
        """The status of the task.

        It is its core's, but not RUNNING before the changelog position of its restore is written.
        """
        status = self.core.status
        if status is TaskStatus.RUNNING and any(
            isinstance(action, do.WriteChangelogPosition) for action in self.parts.todo
        ):
            return TaskStatus.STARTING
        return status

    @property
    def running(self) -> bool:
        """Whether the task has restored its state and takes input."""
        return self.status is TaskStatus.RUNNING

    @property
    def idle_in(self) -> int | None:
        """The checkpoint with what comes of it that all external inputs are idle (E4); None: one may bring time on."""
        return self._checkpoint_of_all if self.running and self.parts.inputs.event_time.all_idle else None

    @property
    def ended_in(self) -> int | None:
        """The checkpoint with what comes of it that all inputs have ended (E7); None: the task does not know it yet."""
        return self._checkpoint_of_all if self.running and self.parts.inputs.event_time.drained else None

    @property
    def _checkpoint_of_all(self) -> int:
        """The checkpoint with all that the task has done: the last one, if nothing was new since, else the open one.

        The open one may be long in coming: sources at rest put it off (A1).
        """
        last = self.core.idleness.closed(self.core.frozen)
        return last if self.mode.closed_all else last + 1
