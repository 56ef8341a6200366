"""Runs one task's code in deterministic mode: everything that it sees is a function of its input log (D3)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from grete.api.tasks.context import LogicalContext
from grete.core.actions import MergedWatermarks
from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.events import Advance
from grete.execution.calls.kept_results import KeptResults
from grete.execution.calls.ports import Caller
from grete.execution.deterministic.announced_time import AnnouncedTime, LogicalTime
from grete.execution.deterministic.behind_timers import BehindTimers
from grete.execution.deterministic.outputs import LogicalOutputs, TimeAndSource
from grete.execution.deterministic.remade import Check
from grete.execution.job_task import JobTask
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.task_code.processor import Processor
from grete.execution.task_code.record_times import part_of
from grete.execution.task_code.task_time import TaskTime
from grete.execution.timing.event_time import OUTSIDE
from grete.execution.timing.reserved_stores import META
from grete.execution.timing.timers import NEVER as NEVER_SET
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition, producer_id
from grete.protocol.notes import CallResult, CallsNote
from grete.protocol.record_batch import RecordBatch
from grete.stores.overlay.overlay import Overlay

CALLS = b"calls"  # in META: how often ctx.random was called
RECORDS = b"records"  # in META, with an async process: how many it has had, by which the results of calls are found


class LogicalProcessor(Processor):
    """One task. Timers and windows go by event time, which moves at places of the input log only (E1)."""

    def __init__(
        self,
        task: JobTask,
        overlay: Overlay,
        outputs: Outputs,
        outbox: Outbox,
        *,
        logical: LogicalOutputs,
        told_at: Callable[[], TimeAndSource] | None = None,
        caller: Caller | None = None,
    ) -> None:
        """``logical``: the mode of ``outputs``. ``told_at`` gives ``ctx`` the logical time, by default that of it."""
        stage, wiring = task.stage, task.wiring
        name = f"{task.topology.job}/{stage.name}/{task.partition}"
        self._ctx = LogicalContext(name, told_at or (lambda: logical.at))
        clock = LogicalTime(logical, self._fire_wall_by if "wall" in stage.timers else None)
        super().__init__(task, overlay, outputs, outbox, clock=clock, context=self._ctx, caller=caller)
        self.fires_after = -1  # the logical time in µs from which on wall-clock timers fire (E8)
        self._behind = BehindTimers(self.time, self.records, self.site.reading)
        self.logical = logical  # what it has sent, and may make again
        self._kept = KeptResults(overlay.store(META))
        self._producer = producer_id(stage.ordinal, task.partition)
        timed = wiring.timed_outputs
        self._announced = AnnouncedTime(list(dict.fromkeys(p.topic for p in timed)), lambda: self.watermark)

    def recall(self, calls: Mapping[int, Sequence[CallResult]]) -> None:
        """Take recorded results in place of calls (D8): those since the last commit; others are in the state."""
        if self.records is not None:
            self.records.recall({**self._kept.load(), **calls})

    def recall_all(self, calls: Mapping[int, Sequence[CallResult]]) -> None:
        """Take recorded results in place of all calls of the records from here on, as an audit does."""
        if self.records is not None:
            self.records.recall(calls, all_from_here=True)

    def take_calls(self) -> Sequence[CallsNote]:
        """Return and forget the results of calls since the last time."""
        return () if self.records is None else self.records.take_results()

    def own_sinks(self, generation: int) -> None:
        """Release early as this generation of the task."""
        if self.site.outbox.early is not None:
            self.site.outbox.early.generation = generation

    def let_out(self, t: int) -> None:
        """Let outputs up to logical time ``t`` µs go to files and tables."""
        if self.site.outbox.early is not None:
            self.site.outbox.early.queue.let_out(t)

    @property
    def sink_t(self) -> int:
        """The logical time in µs of the last output that may not go to its file or table yet; -1: there is none."""
        return -1 if self.site.outbox.early is None else self.site.outbox.early.queue.last_t

    def reset(self) -> None:
        """Make a new task instance over the state as it is now."""
        self.logical.load(self.site.overlay.store(META))
        self._ctx.calls = self.entries.number(CALLS, 0)
        super().reset()
        if self.records is not None:
            self.records.number = self.entries.number(RECORDS, 0)
        self._announced.load(self.entries.get)
        self._behind.reset()

    @property
    def left(self) -> bool:
        """Whether timers are left for the next slice: the rest of what was given waits for them (E10)."""
        return self._behind.left

    @property
    def reached(self) -> tuple[int, int]:
        """The number of rows, or batches, that are processed of what was given last, and the offset behind them."""
        return self._behind.reached

    def fire_slice(self) -> None:
        """Let the next slice of due timers fire; behind the last one go on with what was given."""
        if self.due is not None and self.due.left:
            self.due.fire_slice()
            self._behind.go_on(self._tell_alone)

    def _tell_alone(self) -> None:
        due = self._announced.due
        self._announced.changed(self.logical.at[0] if due == NEVER else due)

    def then(self, step: Callable[[], None]) -> None:
        """Do a step behind all before it, and behind timers that are left."""
        self._behind.then(step)

    def _begin(self, rows: RecordBatch | None = None, last_t: int = -1) -> None:
        if not self.firing.slices:
            self.fire_slice()  # all that a commit has left
        self._behind.begin(rows, last_t)

    def process_decided(
        self, partition: TopicPartition, rows: Sequence[LogRow], first_t: int, last_t: int = -1
    ) -> None:
        """Process rows of an external topic: the i-th has the logical time ``first_t`` + i µs (D2)."""
        assert last_t < 0 or last_t >= first_t + len(rows) - 1, f"a decision ends at {last_t}, before its rows"
        offsets, _, timestamps, keys, values, headers = zip(*rows, strict=True)
        if self.check_keys is not None:
            self.check_keys(partition, offsets, keys)
        cells = headers if any(headers) else None
        logical = range(first_t, first_t + len(rows)), (self._producer,) * len(rows)
        batch = RecordBatch(keys, values, timestamps, cells, logical, source=partition, offset=offsets)
        self.process_taken(batch, last_t)

    def process_taken(self, batch: RecordBatch, last_t: int = -1) -> None:
        """Process records of one external partition, whose logical times are known and end in one step (E2).

        ``last_t``: when their decision ends, if that is later.
        """
        assert batch.logical is not None
        first_t, last_t = batch.logical[0][0], max(last_t, batch.logical[0][-1])
        self._begin(batch, last_t)
        self.then(partial(self._before_taken, first_t, last_t))
        if self.records is None:
            self.then(partial(self._take_rows, batch))
        else:
            self.process_batch(OUTSIDE, batch)
        self.then(partial(self._announced.changed, last_t))
        self.then(partial(self._announced.pass_to, last_t))

    def _before_taken(self, first_t: int, last_t: int) -> None:
        self._tell_before(first_t)
        if self.time is not None:
            self._announced.opens(first_t, last_t, self.time.watermark_behind_a_record)
        self._announced.acted(last_t)

    def _take_rows(self, batch: RecordBatch) -> None:
        """Process rows up to the first one that leaves timers; the others come behind those (E10)."""
        reading, count = self.site.reading, len(batch.keys)
        reading.left = 0
        self.process_batch(OUTSIDE, batch)
        if reading.left:
            self._behind.first(partial(self._take_rows, part_of(batch, count - reading.left, count)))

    def refuse_at(self, batch: RecordBatch, reason: str, t: int) -> None:
        """Let the input's error policy have one row of history that is no record, as of logical time ``t`` µs."""
        self.then(partial(self.be_at, t))
        self.refuse(batch, reason)

    def process_idle(self, partition: TopicPartition, t: int, *, ended: bool = False) -> None:
        """Take an external partition for idle from logical time ``t`` µs on (E4), or for ended (E7)."""
        self._begin()
        self.then(partial(self._pass_before, t))
        self.then(partial(self.input_is_idle, partition, ended=ended))
        self.then(partial(self._announced.changed, t))
        self.then(partial(self._announced.pass_to, t))

    def process_merged(self, batches: Sequence[RecordBatch | MergedWatermarks], upto: int) -> None:
        """Process records and watermarks that were merged in logical order; nothing up to ``upto`` µs follows (D1)."""
        self._begin()
        for done, batch in enumerate(batches, 1):
            if isinstance(batch, MergedWatermarks):
                self._take_watermarks(batch, done)
            elif self.records is None:
                self.then(partial(self._take_merged, batch))
            else:
                self._take_merged(batch)
        self.then(partial(self._tell_before, upto + 1))

    def _take_merged(self, batch: RecordBatch) -> None:
        loop = self.instance.loops[batch.source.topic]
        if self.time is None:
            loop(batch)
            return
        self.firing.begin_slice(whole=True)  # a channel's records do not move time: such timers they have set
        for part in self._announced.parts(batch):
            assert part.logical is not None
            self.then(partial(self._before_merged, part.logical[0][0]))
            loop(part)

    def _before_merged(self, t: int) -> None:
        assert self.time is not None
        self._tell_before(t)
        self.time.goes_on()
        self._announced.acted(t)

    def _take_watermarks(self, merged: MergedWatermarks, done: int) -> None:
        if self.time is not None:
            self.then(partial(self._pass_before, merged.t))
            self.then(partial(self._pass_watermarks, self.time, merged, done))
            self.then(partial(self._announced.changed, merged.t))

    def _pass_watermarks(self, time: TaskTime, merged: MergedWatermarks, done: int) -> None:
        self._behind.done = done
        time.watermarks(merged.marks)

    def _pass_before(self, t: int) -> None:
        """Tell what is due before logical time ``t``; what timers send from now on has this time."""
        self._fire_wall_by(t, tell=True)
        self._announced.pass_to(t - 1)
        self.be_at(t)

    def _tell_before(self, t: int) -> None:
        """Let wall-clock timers fire, and tell event time, as far as that is due before logical time ``t``."""
        self._fire_wall_by(t - 1, tell=True)
        self._announced.pass_to(t - 1)

    def _fire_wall_by(self, t: int, *, tell: bool = False) -> None:
        """Let wall-clock timers fire up to logical time ``t``, in turns of a ms; none is later than ``t`` to come (E8).

        A timer that is set in a turn, or at a time that it has passed, waits for the next one. So where each fires
        depends on the records and timers before it alone, not on when it is known that time has passed. ``tell`` what
        is due of event time before each; not between the records of a decision, behind which it is told.
        """
        wall = self.wall
        while wall is not None and t > self.fires_after and wall.move_to_next(t // 1_000):
            turn = self.next_wall
            if turn > t:
                return
            if tell:
                self._announced.pass_to(turn - 1)
            self.be_at(turn)
            self.firing.fire_wall_once(turn // 1_000)
            self._announced.acted(turn)

    def end_at(self, t: int, *, has_told: bool) -> None:
        """Come to where a live task was, all of whose input is processed: its clock stood at ``t`` µs.

        ``has_told``: it had told what was due of event time. A commit does not say when its task learnt that time has
        passed, but its state tells what came of it.
        """
        self.then(partial(self._fire_wall_by, t))
        if has_told:
            self.then(partial(self._announced.pass_to, NEVER - 1))

    def be_at(self, t: int) -> None:
        """Move to logical time ``t`` µs: later records, and turns of timers, are behind it."""
        self.logical.at = max((t, self._producer), self.logical.at)

    def take_advances(self) -> list[Advance]:
        """Return and forget the advances of event time for consumers (E2)."""
        return self._announced.take()

    def take_numbered(self) -> tuple[list[ExternalRecord], dict[TopicPartition, Check]]:
        """Return and forget external records with headers, and the last seq and digest of each partition (D5)."""
        return self.logical.number(self.take_external())

    @property
    def next_timer(self) -> int:
        """The logical time in µs at which event time is to be told, whatever comes."""
        return self._announced.due

    @property
    def next_wall(self) -> int:
        """The logical time in µs at which wall-clock timers have their next turn: a whole ms, after what was last."""
        if self.wall is None or self.wall.due == NEVER_SET:
            return NEVER
        return max(self.wall.due, self.logical.at[0] // 1_000 + 1) * 1_000

    def before_freeze(self, checkpoint_id: int) -> None:
        """Write the part of the checkpoint's state that is kept in memory; nothing if nothing changed."""
        self._behind.check_invariants()
        if self.left and (last_t := self._behind.cut()) is not None:
            self._announced.waits(last_t)
        super().before_freeze(checkpoint_id)
        state = self._announced.save()
        self.logical.save(state)
        numbers = [(CALLS, self._ctx.calls)]
        if self.records is not None:
            numbers.append((RECORDS, self.records.number))
            self._kept.save(self.records.unused())
        self.entries.save([*numbers, *state.items()])
