"""The real processors, which keep what they take for the recorder, and count how far their outbox is behind."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from grete.core.actions import MergedWatermarks
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.deterministic.processor import LogicalProcessor
from grete.execution.job_task import JobTask
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import MakeSinks, no_sinks
from grete.execution.task_code import firing
from grete.execution.task_code.ports import DueByTime
from grete.execution.task_code.processor import Processor
from grete.execution.timing.event_time import AFTER_ALL, OUTSIDE
from grete.execution.timing.reserved_stores import OUTBOX
from grete.ports import LogRow
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.protocol.notes import CallResult
from grete.protocol.record_batch import RecordBatch
from grete.stores.overlay.overlay import Overlay
from tests.verification.simulation.calls_kind import SimCaller
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.sink import DIRECTORY, SimSink, SlowSteps
from tests.verification.simulation.stage_codes import StageCode
from tests.verification.simulation.steps import (
    ALARM,
    ALL,
    NOT_TAKEN,
    NOWHERE,
    QUIET,
    SLICE,
    TIME,
    TOLD,
    LogicalStep,
    Step,
    TimeStep,
)
from tests.verification.simulation.usercode import draws_of, stage_graph


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording of a processor. ``froze`` gets the steps of each frozen checkpoint, in order."""

    froze: Callable[[int, list[Any]], None]
    draw: Callable[[], int]
    seen: Counter[str]
    suffix: bytes  # of all that goes to the outside
    took: Callable[[Step], None]  # gets each record before it is processed


class Kept(Processor):
    """A processor that keeps its steps."""

    recording: Recording
    steps: list[Any]

    def reset(self) -> None:
        """Start over from the committed state: an attempt that draws again."""
        self.steps = []
        under_way, had_ended = self.site.outbox._background._future is not None, self.has_ended
        super().reset()
        self.recording.seen["drains that a rollback takes back"] += had_ended and not self.has_ended
        task: Any = self.instance.task
        task.drawn, task.suffix = draws_of(self.recording.draw()), self.recording.suffix
        task.begun = self._begun
        self._ever_begun = set[tuple[int, bytes]]()
        waiting = len(self.site.outbox._pending.committed)
        self.recording.seen["checkpoints that wait for a sink over a restart"] += waiting > 1
        self.recording.seen["steps of a sink under way at a rollback"] += under_way

    @property
    def has_ended(self) -> bool:
        """Whether all that the task reads has ended."""
        return self.watermark == (AFTER_ALL, True)

    def _begun(self, offset: int, value: bytes) -> None:
        """Count a record with calls that begins a second time: what it has read was changed."""
        self.recording.seen["records with calls that run again"] += (offset, value) in self._ever_begun
        self._ever_begun.add((offset, value))

    def before_freeze(self, checkpoint_id: int) -> None:
        """Hand what was processed for this checkpoint to the recorder, which outlives any crash."""
        super().before_freeze(checkpoint_id)
        left = self.due is not None and self.due.left
        self.recording.seen["checkpoints closed with timers that are due"] += left
        steps, self.steps = self.steps, []
        self.recording.froze(checkpoint_id, steps)

    def after_commit(self) -> None:
        """Let the outbox go on."""
        super().after_commit()
        self.recording.seen["checkpoints that wait for a sink together"] += len(self.site.outbox._pending.committed) > 1


class AlignedKept(Kept):
    """The processor of a task in aligned mode, or at least once."""

    def process_frame(self, partition: TopicPartition, offset: int, message: bytes, skip: int = 0) -> None:
        """Keep a watermark; the records of a frame are kept as a batch."""
        begins = len(self.steps)
        if message[0] & 15 == MessageType.WATERMARK:
            header, told = decode_header(message), decode_watermark(message)
            said = b"%d;%d;%d;%d" % (told.watermarks[-1], told.idle, header.generation, header.checkpoint_id)
            self.steps.append(Step(partition, header.producer, offset, said, TOLD))
        self._sliced(partial(super().process_frame, partition, offset, message, skip), begins)

    def process_rows(self, partition: TopicPartition, rows: Sequence[LogRow]) -> int:
        """Keep only those rows that are taken."""
        taken, begins = len(rows), len(self.steps)

        def process() -> None:
            nonlocal taken
            taken = super(AlignedKept, self).process_rows(partition, rows)
            kept = len(self.steps) - (len(rows) - taken)
            while begins < kept < len(self.steps) and self.steps[kept - 1].more:
                # of a batch that has failed: then it went record by record, up to timers that are left
                self.steps[kept] = self.steps[kept]._replace(offset=NOT_TAKEN)
                kept += 1
            del self.steps[kept:]

        self._sliced(process, begins)
        return taken

    def _sliced(self, call: Callable[[], None], begins: int, *, goes_on: bool = False) -> None:
        """Keep how many timers fire in a call, before its steps, if it leaves some or if some were left."""
        due, before = self.due, self.site.reading.timers
        was_left = due is not None and due.left
        call()
        left = due is not None and due.left
        self.recording.seen["slices of timers"] += was_left
        if left or was_left:
            fired = self.site.reading.timers - before if left else ALL
            self.steps.insert(begins, Step(NOWHERE, OUTSIDE, -1, b"%d" % fired, SLICE, more=goes_on))

    def process_batch(self, producer: int, batch: RecordBatch) -> None:
        """Keep records, and what is drawn for them."""
        task: Any = self.instance.task
        last = len(batch.keys) - 1 if self.job_task.stage.batch else 0
        columns = zip(batch.keys, batch.values, batch.timestamps, strict=True)
        for index, (key, cell, timestamp) in enumerate(columns):
            offset, value = batch.offset_at(index), cell or b""
            draw, more = task.drawn(offset, value), index < last
            self.steps.append(step := Step(batch.source, producer, offset, value, draw, timestamp, key, more))
            self.recording.took(step)
        self.recording.seen["batches in one turn"] += last > 0
        super().process_batch(producer, batch)

    def input_is_idle(self, partition: TopicPartition, *, ended: bool = False) -> None:
        """Keep that nothing comes from an external partition."""
        self.steps.append(Step(partition, OUTSIDE, -1, b"", QUIET, ended=ended))
        self._sliced(partial(super().input_is_idle, partition, ended=ended), len(self.steps) - 1)

    def fire_wall(self, now: int) -> None:
        """Keep where the clock was between two records."""
        self.steps.append(Step(NOWHERE, OUTSIDE, -1, b"%d;%d" % (now, vars(firing)["FIRED_TIMERS"]), ALARM))
        self.recording.seen["wall-clock timers due"] += 1
        super().fire_wall(now)


class DueKept:
    """The due timers of a processor, which keeps each slice as a step."""

    def __init__(self, due: DueByTime, keep: Callable[[Callable[[], None]], None]) -> None:
        self._due, self._keep = due, keep
        self.by_slices = due.by_slices

    @property
    def left(self) -> bool:
        """Whether timers are left."""
        return self._due.left

    def fire_slice(self) -> None:
        """Fire some of them."""
        self._keep(self._due.fire_slice)


class LogicalKept(Kept, LogicalProcessor):
    """The processor of a deterministic task.

    A checkpoint that closes while timers are left has the steps before them, and how many have fired.
    """

    _goes_on = False  # with timers that a commit has left

    def reset(self) -> None:
        """Start over from the committed state, which may have timers that are left."""
        super().reset()
        self._goes_on, self._wall_fired = False, 0
        self._given(goes_on=self.left)

    def _given(self, *, goes_on: bool = False) -> None:
        """Note that something new is given, unless the task ``goes_on`` with the timers of a commit."""
        if self._goes_on:
            self._keep_slice(ALL)
        self._goes_on, self._first, self._ends = goes_on, len(self.steps), list[int]()
        self._before = self._fired

    @property
    def _fired(self) -> int:
        return self.site.reading.timers - self._wall_fired

    def _keep_slice(self, fired: int) -> None:
        self.steps.insert(self._first, TimeStep(NOWHERE, TIME, fired, b"", self._goes_on, (), SLICE))

    def fire_slice(self) -> None:
        """Count the slices."""
        self.recording.seen["slices of timers"] += self.left
        super().fire_slice()

    def before_freeze(self, checkpoint_id: int) -> None:
        """Keep what a checkpoint has that closes before all timers that are due have fired."""
        left = self.left
        if left:
            if self._ends:
                kept = self._ends[max(self.reached[0] - 1, 0)]
                self.recording.seen["checkpoints that leave input behind timers"] += kept < len(self.steps)
                del self.steps[kept:]
            self._keep_slice(self._fired - self._before)
        elif self._goes_on:
            self._keep_slice(ALL)
        self._goes_on = False
        super().before_freeze(checkpoint_id)
        self._given(goes_on=left)

    def recall(self, calls: Mapping[int, Sequence[CallResult]]) -> None:
        """Count records whose calls a predecessor has made."""
        self.recording.seen["records whose results are taken from the log"] += len(calls)
        super().recall(calls)

    def process_decided(
        self, partition: TopicPartition, rows: Sequence[LogRow], first_t: int, last_t: int = -1
    ) -> None:
        """Keep rows of an external input."""
        self._given()
        for t, row in enumerate(rows, first_t):
            value = row.value or b""
            step = LogicalStep(partition, OUTSIDE, row.offset, value, t, self._producer, row.timestamp_ms, row.key)
            self.steps.append(step)
            self._ends.append(len(self.steps))
        super().process_decided(partition, rows, first_t, last_t)

    def process_idle(self, partition: TopicPartition, t: int, *, ended: bool = False) -> None:
        """Keep that nothing comes from an external input."""
        self._given()
        self.steps.append(TimeStep(partition, TIME, 0, b"", t, (), ended=ended))
        self._ends.append(len(self.steps))
        super().process_idle(partition, t, ended=ended)

    def process_merged(self, batches: Sequence[RecordBatch | MergedWatermarks], upto: int) -> None:
        """Keep merged records and watermarks."""
        self._given()
        for batch in batches:
            if isinstance(batch, MergedWatermarks):
                self.steps.append(TimeStep(NOWHERE, TIME, 0, b"", batch.t, batch.marks))
                self._ends.append(len(self.steps))
                continue
            assert batch.logical is not None
            columns = zip(batch.keys, batch.values, batch.timestamps, *batch.logical, strict=True)
            for index, (key, value, timestamp, t, source) in enumerate(columns):
                at = batch.offset_at(index)
                self.steps.append(LogicalStep(batch.source, source, at, value or b"", t, source, timestamp, key))
            self._ends.append(len(self.steps))
        if self.wall is not None:
            self.steps.append(TimeStep(NOWHERE, TIME, 0, b"", upto, (), ALARM))
        super().process_merged(batches, upto)

    def _fire_wall_by(self, t: int, *, tell: bool = False) -> None:
        """Count how often timers are found due between two records, and where none comes."""
        before = self.site.reading.timers
        super()._fire_wall_by(t, tell=tell)
        self._wall_fired += self.site.reading.timers - before
        self.recording.seen["wall-clock timers by logical time"] += self.site.reading.timers > before


def aligned_processor(
    plan: Plan,
    producer: int,
    code: StageCode,
    overlay: Overlay,
    sink: SimSink,
    executor: SlowSteps | None,
    caller: SimCaller,
) -> AlignedKept:
    """Return the processor of an aligned task."""
    graph, (_, partition) = stage_graph(code), split_producer_id(producer)
    outputs = Outputs(graph, plan.topology, plan.settings, _counts(code))
    sinks: MakeSinks = (lambda _: {f"files:{DIRECTORY}": sink}) if code.files else no_sinks
    task = JobTask(graph, plan.topology, partition)
    outbox = Outbox(task.owner, overlay.store(OUTBOX), plan.settings, executor, sinks)
    kept = AlignedKept(task, overlay, outputs, outbox, caller=caller)
    if kept.due is not None:
        kept.due = DueKept(kept.due, lambda call: kept._sliced(call, len(kept.steps), goes_on=True))
    return kept


def logical_processor(
    plan: Plan,
    producer: int,
    code: StageCode,
    overlay: Overlay,
    sink: SimSink,
    executor: SlowSteps | None,
    caller: SimCaller,
) -> LogicalKept:
    """Return the processor of a deterministic task."""
    graph, (_, partition), topology = stage_graph(code), split_producer_id(producer), plan.topology
    releases = plan.settings.output_delivery == "transactional"
    logical = LogicalOutputs(topology.job, plan.wirings[producer], releases=releases)
    outputs = Outputs(graph, topology, plan.settings, _counts(code), mode=logical)
    sinks: MakeSinks = (lambda _: {f"files:{DIRECTORY}": sink}) if code.files else no_sinks
    task, early_us = JobTask(graph, topology, partition), None
    if plan.settings.sink_delivery == "early":
        early_us = logical.now_us
    outbox = Outbox(task.owner, overlay.store(OUTBOX), plan.settings, executor, sinks, early_us)
    return LogicalKept(task, overlay, outputs, outbox, logical=logical, caller=caller)


def _counts(code: StageCode) -> Callable[[str], int | None]:
    counts: Mapping[str, int] = {partition.topic: len(code.external) for partition in code.external}
    return counts.get
