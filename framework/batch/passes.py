"""Passes of a task's code over its history: channel by channel, or by logical time as in deterministic mode."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import NamedTuple, Protocol

from grete.batch.check import has_timed_batches
from grete.batch.frames import Frame, SentFrames
from grete.batch.history_task import HistoryTask
from grete.batch.record_order import Piece
from grete.core.actions import MergedWatermarks
from grete.core.deterministic.logical_watermarks import NEVER
from grete.core.events import Advance
from grete.errors import ConfigError
from grete.execution.build import writes_outside
from grete.execution.calls.kept_results import is_kept
from grete.execution.deterministic.announced_time import by_step
from grete.execution.deterministic.outputs import LogicalOutputs, TimeAndSource, is_of_outputs
from grete.execution.deterministic.processor import LogicalProcessor
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import no_sinks
from grete.execution.task_code.processor import Processor
from grete.execution.task_code.record_times import part_of
from grete.execution.timing.event_time import BEFORE_ALL, OUTSIDE, TimeSource
from grete.execution.timing.reserved_stores import OUTBOX
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.stores.overlay.overlay import Overlay


class LiveTime(NamedTuple):
    """Event time and logical time of a live task at the end of the history; None: its clock has not decided it.

    ``event_time_ms``: its clock has decided which inputs were idle (E4). ``logical_us``: the logical time of what it
    had processed last; wall-clock timers of later times have not fired (E8). ``commit``: it is at a commit, with the
    logical time of that and whether its event time was told by then (deterministic mode).
    """

    event_time_ms: int | None = None
    logical_us: int | None = None
    commit: tuple[int, bool] | None = None


HISTORY_ALONE = LiveTime()  # no live task was there


class HistoryPass(Protocol):
    """One pass over a task's history. ``refused``: rows that were no record; ``records``: all others, by partition."""

    records: Counter[TopicPartition]
    refused: int

    @property
    def processor(self) -> Processor:
        """Return the processor that runs the code."""

    @property
    def dropped(self) -> int:
        """Return the number of outputs to topics that were not kept."""

    def take(self, piece: Piece) -> None:
        """Process a piece. Raises TaskError."""

    def end(self, live: LiveTime) -> None:
        """End the history, as ``BatchTask.finish`` says."""

    def frames(self, *, tell: bool) -> list[Frame]:
        """Return the frames sent to streams since the last call; ``tell`` event time with them."""

    def external(self) -> list[ExternalRecord]:
        """Return the records sent outside since the last call."""

    def is_state(self, key: bytes) -> bool:
        """Tell whether an entry of the task's own belongs to the state that the batch hands over."""


def _outbox(task: HistoryTask, overlay: Overlay) -> Outbox:
    """Return an outbox that hands nothing over: it waits for a live task."""
    return Outbox(task.job_task.owner, overlay.store(OUTBOX), task.settings, sinks=no_sinks)


class AlignedPass:
    """A task in aligned mode: it takes its channels as they come."""

    def __init__(self, task: HistoryTask, overlay: Overlay) -> None:
        stage, topology = task.job_task.stage, task.job_task.topology
        outputs = Outputs(stage, topology, task.settings, task.outside.get, drop_external=not task.outputs)
        self._outputs = outputs
        self.processor = Processor(task.job_task, overlay, outputs, _outbox(task, overlay), caller=task.caller)
        self.records: Counter[TopicPartition] = Counter()
        self.refused = 0
        self._sources = {channel: source for source, channel in task.channels.items()}
        self._sent = SentFrames(task.job_task.wiring)
        self._told = BEFORE_ALL, False  # the last watermark
        self._untold_bytes, self._untold_bytes_max = 0, task.settings.batch_bytes_max  # of input
        self._timed_batches, self._until_us = has_timed_batches(stage), task.order.until_us
        self._intake = {
            source: 0
            for producer, source in self._sources.values()
            if producer == OUTSIDE and stage.topics_timed().get(source.topic) == "intake"
        }

    @property
    def dropped(self) -> int:
        """Return the number of outputs to topics that were not kept."""
        return self._outputs.dropped

    def take(self, piece: Piece) -> None:
        """Process a piece."""
        source, records = self._sources[piece.channel], piece.batch
        if piece.watermark is not None:
            watermark, idle = piece.watermark
            self.processor.take_watermark(source, watermark, idle=idle)
        elif piece.refused is not None:
            self.processor.refuse(records, piece.refused)
            self.refused += 1
        else:  # of several channels, maybe, if those are of one stream partition: only their watermarks move time
            taken_in = self._taken_in(records) if records.source in self._intake else records
            for batch in _one_by_one(taken_in) if self._timed_batches else [taken_in]:
                self.processor.process_batch(source[0], batch)
            self.records[records.source] += len(records.keys)
        cells = filter(None, chain(records.keys, records.values))
        self._untold_bytes += 1 + len(records.keys) + sum(map(len, cells))

    def _taken_in(self, batch: RecordBatch) -> RecordBatch:
        """Let records of history have been taken in as deterministic tasks take them: each as it came, by timestamp."""
        times = [*accumulate((1_000 * at for at in batch.timestamps), max, initial=self._intake[batch.source])][1:]
        self._intake[batch.source] = times[-1]
        return batch._replace(logical=([min(at, self._until_us) for at in times], (0,) * len(times)))

    def end(self, live: LiveTime) -> None:
        """Inputs without any record are idle; what was idle live, a clock has decided (E4)."""
        if live.event_time_ms is not None:
            self.processor.catch_up(live.event_time_ms)
            return
        for producer, source in self._sources.values():
            if producer == OUTSIDE and not self.records[source]:
                self.processor.input_is_idle(source)

    def frames(self, *, tell: bool) -> list[Frame]:
        """Return frames; behind them event time, if ``tell`` or enough was processed since it was told (E2)."""
        frames, told = self._sent.frames(self.processor.take_frames()), self.processor.watermark
        if not tell and self._untold_bytes < self._untold_bytes_max:
            return frames
        self._untold_bytes = 0
        if told is None or told == self._told:
            return frames
        self._told = told
        return frames + self._sent.watermarks([Advance(0, *told)])

    def external(self) -> list[ExternalRecord]:
        """Return the records sent outside."""
        return self.processor.take_external()

    def is_state(self, key: bytes) -> bool:
        """Return True."""
        return True


class LogicalPass:
    """A task in deterministic mode: it takes pieces with logical times, in their order."""

    def __init__(self, task: HistoryTask, overlay: Overlay) -> None:
        stage, topology, wiring = task.job_task.stage, task.job_task.topology, task.job_task.wiring
        releases = task.outputs and task.settings.output_delivery == "transactional" and writes_outside(stage, topology)
        self._logical = LogicalOutputs(topology.job, wiring, releases=releases)
        self._outputs = Outputs(
            stage, topology, task.settings, task.outside.get, drop_external=not task.outputs, mode=self._logical
        )
        self.processor = LogicalProcessor(
            task.job_task,
            overlay,
            self._outputs,
            _outbox(task, overlay),
            logical=self._logical,
            told_at=None if task.is_recorded else _not_recorded,
            caller=task.caller,
        )
        self.processor.fires_after = NEVER  # history sets wall-clock timers, and the live task lets them fire
        self.records: Counter[TopicPartition] = Counter()
        self.refused = 0
        self._task = task
        self._sources = {channel: source for source, channel in task.channels.items()}
        self._sent, self._tells_time = SentFrames(wiring), bool(wiring.timed_outputs)
        self._in_history = task.order.until_us >= 0
        if not self._in_history:
            self._go_live()
        self._marks: list[tuple[TimeSource, int, bool]] = []  # of one logical time
        self._marked_at = -1

    @property
    def dropped(self) -> int:
        """Return the number of outputs to topics that were not kept."""
        return self._outputs.dropped

    def take(self, piece: Piece) -> None:
        """Process a piece."""
        source = self._sources[piece.channel]
        if piece.watermark is not None:
            if piece.start != self._marked_at:
                self._take_watermarks()
            if piece.start <= self._task.order.frontiers.get(source, piece.start):
                self._marks.append((source, *piece.watermark))
                self._marked_at = piece.start
            return
        self._take_watermarks()
        if piece.start > self._task.order.until_us:
            self._end_history()
        if piece.ended is not None:
            self.processor.process_idle(source[1], piece.start, ended=piece.ended)
        elif piece.refused is not None:
            self.processor.refuse_at(piece.batch, piece.refused, piece.start)
            self.refused += 1
        elif source[0] != OUTSIDE:
            self.processor.process_merged([piece.batch], -1)
            self.records[piece.batch.source] += len(piece.batch.keys)
        else:
            for batch in self._cut(piece.batch) if self._in_history else [piece.batch]:
                self.processor.process_taken(batch, piece.until)
            self.records[piece.batch.source] += len(piece.batch.keys)

    def _cut(self, batch: RecordBatch) -> Sequence[RecordBatch]:
        """Cut records of history so that nothing depends on how they came."""
        if has_timed_batches(self._task.job_task.stage):
            return _one_by_one(batch)
        return [*by_step(batch)] if self._tells_time else [batch]

    def end(self, live: LiveTime) -> None:
        """Take watermarks that wait, and end the history; tell all that is due by then."""
        self._take_watermarks()
        if live.commit is not None:
            t, has_told = live.commit
            self.processor.end_at(t, has_told=has_told)
            return
        if live.event_time_ms is None:
            self._end_history()
        else:
            self.processor.catch_up(live.event_time_ms)
        if live.logical_us is not None:
            self.processor.process_merged((), live.logical_us)
        self.processor.fires_after = NEVER
        self.processor.process_merged((), self._task.order.told_us)

    def frames(self, *, tell: bool) -> list[Frame]:  # event time is told at fixed times (E2)
        """Return frames and watermarks."""
        advances = self.processor.take_advances()
        return self._sent.frames(self.processor.take_frames()) + self._sent.watermarks(advances)

    def external(self) -> list[ExternalRecord]:
        """Return the records sent outside, numbered."""
        return self.processor.take_numbered()[0]

    def is_state(self, key: bytes) -> bool:
        """Tell whether it is no number or digest: a live task begins them; but outputs that were sent are counted.

        Nor is it a result of a call, which only a restarted task keeps.
        """
        if is_kept(key):
            return False
        return not is_of_outputs(key) or (self._task.outputs and key in self._logical.counted)

    def _take_watermarks(self) -> None:
        if self._marks:
            if self._marked_at > self._task.order.until_us:
                self._end_history()
            self.processor.process_merged([MergedWatermarks(self._marked_at, tuple(self._marks))], -1)
            self._marks = []

    def _end_history(self) -> None:
        """Take inputs of a source without any record for idle, at the last time of history: that is state (E4)."""
        if not self._in_history:
            return
        self._in_history = False
        self._go_live()
        for producer, source in self._sources.values():
            if producer == OUTSIDE and not self.records[source]:
                self.processor.process_idle(source, self._task.order.until_us)
        if "wall" in self._task.job_task.stage.timers and self._task.order.until_us < NEVER - 1:
            self.processor.be_at(self._task.order.until_us)  # its timers fire live, and consumers are at that time

    def _go_live(self) -> None:
        """From here on take what calls have returned, and let timers fire: what history did is recorded nowhere."""
        if self._task.order.is_live:
            self.processor.fires_after = self._task.order.until_us
            self.processor.recall_all(self._task.order.calls)


def _one_by_one(batch: RecordBatch) -> Sequence[RecordBatch]:
    return [part_of(batch, index, index + 1) for index in range(len(batch.keys))]


def _not_recorded() -> TimeAndSource:
    raise ConfigError(
        "ctx.now, ctx.random and ctx.uuid cannot be recomputed: they depend on logical times, and the changelog does "
        "not hold all that the job has given its records any more (setting changelog_retention_ms)",
        setting="changelog_retention_ms",
    )
