"""How a task's code takes its history: as its channels come, or by logical time, like its live task in that mode."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Protocol

from msgspec.structs import replace

from framework.api.graph import StageGraph
from framework.api.job import Job
from framework.batch.channels import channels_of
from framework.batch.frames import Frame, SentFrames
from framework.batch.logical_order import LogicalOrder
from framework.batch.record_order import Piece
from framework.core.actions import MergedWatermarks
from framework.core.deterministic.logical_watermarks import NEVER, step_at
from framework.core.events import Advance
from framework.core.task_topology import wire
from framework.errors import ConfigError
from framework.execution.build import writes_outside
from framework.execution.calls.kept_results import is_kept
from framework.execution.calls.ports import Caller
from framework.execution.deterministic.outputs import LogicalOutputs, TimeAndSource, is_of_outputs
from framework.execution.deterministic.processor import LogicalProcessor
from framework.execution.event_time import BEFORE_ALL, OUTSIDE, TimeSource
from framework.execution.outputs import Outputs
from framework.execution.processor import Processor
from framework.execution.record_times import part_of
from framework.execution.sink_targets import no_sinks
from framework.ports import ExternalRecord
from framework.settings import Settings
from framework.stores.overlay import Overlay
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch


class Pass(Protocol):
    """One pass over a task's history. ``refused``: rows that were no record; ``records``: all others, by partition."""

    records: Counter[TopicPartition]
    refused: int

    @property
    def processor(self) -> Processor:
        """What runs the code."""
        ...

    def take(self, piece: Piece) -> None:
        """Process a piece. Raises TaskError."""
        ...

    def end(self, live_ms: int | None) -> None:
        """End the history, as ``BatchTask.finish`` says."""
        ...

    def frames(self, *, tell: bool) -> list[Frame]:
        """Return what was sent to streams since the last call; ``tell`` event time with it."""
        ...

    def external(self) -> list[ExternalRecord]:
        """Return what was sent outside since the last call."""
        ...

    def is_state(self, key: bytes) -> bool:
        """Tell whether an entry of the task's own belongs to the state that the batch hands over."""
        ...


class AlignedPass:
    """A task in aligned mode: it takes its channels as they come."""

    def __init__(self, job: Job, stage: StageGraph, partition: int, processor: Processor, untold_bytes: int) -> None:
        """``untold_bytes``: of input after which event time is told."""
        self.processor = processor
        self.records: Counter[TopicPartition] = Counter()
        self.refused = 0
        channels = channels_of(job.topology(), stage.ordinal, partition)
        self._sources = {channel: source for source, channel in channels.items()}
        self._sent = SentFrames(wire(job.topology(), stage.ordinal, partition))
        self._told = BEFORE_ALL, False  # the last watermark
        self._untold_bytes, self._untold_bytes_max = 0, untold_bytes

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
            self.processor.process_batch(source[0], records)
            self.records[records.source] += len(records.keys)
        cells = filter(None, chain(records.keys, records.values))
        self._untold_bytes += 1 + len(records.keys) + sum(map(len, cells))

    def end(self, live_ms: int | None) -> None:
        """Inputs without any record are idle; what was idle live, a clock has decided (E4)."""
        if live_ms is not None:
            self.processor.catch_up(live_ms)
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
        """Return what was sent outside."""
        return self.processor.take_external()

    def is_state(self, key: bytes) -> bool:
        """Return True."""
        return True


class LogicalPass:
    """A task in deterministic mode: it takes pieces with logical times, in their order."""

    def __init__(
        self,
        job: Job,
        stage: StageGraph,
        partition: int,
        overlay: Overlay,
        settings: Settings,
        outside: Mapping[str, int],
        *,
        outputs: bool,
        order: LogicalOrder,
        is_recorded: bool,
        caller: Caller | None,
    ) -> None:
        """``order`` has given the pieces their times; unless ``is_recorded``, a live task had others."""
        topology = job.topology()
        self._wiring = wire(topology, stage.ordinal, partition)
        releases = outputs and settings.output_delivery == "transactional" and writes_outside(stage, topology)
        self._logical = LogicalOutputs(topology.job, self._wiring, releases=releases)
        collected = Outputs(stage, topology, settings, outside.get, drop_external=not outputs, mode=self._logical)
        self.outputs = collected
        self.processor = LogicalProcessor(
            stage,
            topology,
            partition,
            overlay,
            collected,
            replace(settings, sink_delivery="checkpoint"),  # the outbox waits for a live task
            logical=self._logical,
            sinks=no_sinks,
            told_at=None if is_recorded else _not_recorded,
            caller=caller,
            fires_after=NEVER,  # history sets wall-clock timers, and the live task lets them fire
        )
        self.records: Counter[TopicPartition] = Counter()
        self.refused = 0
        channels = channels_of(topology, stage.ordinal, partition)
        self._sources = {channel: source for source, channel in channels.items()}
        self._sent = SentFrames(self._wiring)
        self._hands_outputs = outputs
        self._order, self._in_history = order, order.until_us >= 0
        if not self._in_history:
            self._recall()
        self._marks: list[tuple[TimeSource, int, bool]] = []  # of one logical time
        self._marked_at = -1

    def take(self, piece: Piece) -> None:
        """Process a piece."""
        source = self._sources[piece.channel]
        if piece.watermark is not None:
            if piece.start != self._marked_at:
                self._take_watermarks()
            if piece.start <= self._order.frontiers.get(source, piece.start):
                self._marks.append((source, *piece.watermark))
                self._marked_at = piece.start
            return
        self._take_watermarks()
        if piece.start > self._order.until_us:
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
            for batch in _by_step(piece.batch) if self._in_history and self._wiring.timed_outputs else [piece.batch]:
                self.processor.process_taken(batch)
            self.records[piece.batch.source] += len(piece.batch.keys)

    def end(self, live_ms: int | None) -> None:
        """Take watermarks that wait, and end the history; tell all that is due by then."""
        self._take_watermarks()
        if live_ms is None:
            self._end_history()
        else:
            self.processor.catch_up(live_ms)
        self.processor.process_merged((), self._order.told_us)

    def frames(self, *, tell: bool) -> list[Frame]:  # event time is told at fixed times (E2)
        """Return frames and watermarks."""
        advances = self.processor.take_advances()
        return self._sent.frames(self.processor.take_frames()) + self._sent.watermarks(advances)

    def external(self) -> list[ExternalRecord]:
        """Return what was sent outside, numbered."""
        return self.processor.take_numbered()[0]

    def is_state(self, key: bytes) -> bool:
        """Tell whether it is no number or digest: a live task begins them; but outputs that were sent are counted.

        Nor is it a result of a call, which only a restarted task keeps.
        """
        if is_kept(key):
            return False
        return not is_of_outputs(key) or (self._hands_outputs and key in self._logical.counted)

    def _take_watermarks(self) -> None:
        if self._marks:
            self.processor.process_merged([MergedWatermarks(self._marked_at, tuple(self._marks))], -1)
            self._marks = []

    def _end_history(self) -> None:
        """Take inputs of a source without any record for idle, at the last time of history: that is state (E4)."""
        if not self._in_history:
            return
        self._in_history = False
        self._recall()
        for producer, source in self._sources.values():
            if producer == OUTSIDE and not self.records[source]:
                self.processor.process_idle(source, self._order.until_us)

    def _recall(self) -> None:
        """Take what calls have returned live from here on: those of history are recorded nowhere."""
        if self._order.is_live:
            self.processor.recall_all(self._order.calls)


def _by_step(batch: RecordBatch) -> Sequence[RecordBatch]:
    """Cut records where their times pass a step: so what is told of event time does not depend on other cuts."""
    assert batch.logical is not None
    steps = [step_at(t) for t in batch.logical[0]]
    if steps[0] == steps[-1]:
        return [batch]
    cuts = [0, *(i for i, (before, step) in enumerate(pairwise(steps), 1) if step != before), len(steps)]
    return [part_of(batch, begin, end) for begin, end in pairwise(cuts)]


def _not_recorded() -> TimeAndSource:
    raise ConfigError(
        "ctx.now, ctx.random and ctx.uuid cannot be recomputed: they depend on logical times, and the changelog does "
        "not hold all that the job has given its records any more (setting changelog_retention_ms)",
        setting="changelog_retention_ms",
    )
