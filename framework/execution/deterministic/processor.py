"""Runs one task's code in deterministic mode: everything that it sees is a function of its input log (D3)."""

import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from framework.api.context import LogicalContext
from framework.api.graph import StageGraph
from framework.api.task import Task
from framework.core.topology import Topology
from framework.execution.deterministic.outputs import LogicalOutputs
from framework.execution.deterministic.record_clock import LogicalTime, TimedLogicalTime
from framework.execution.deterministic.remade import Check, Visible
from framework.execution.outbox import MakeSinks, sinks_of
from framework.execution.outputs import Outputs
from framework.execution.processor import Processor
from framework.execution.timers import Due
from framework.ports import ExternalRecord, LogRow
from framework.settings import Settings
from framework.stores.overlay import Overlay
from protocol.ids import TopicPartition, producer_id
from protocol.record_batch import RecordBatch

NO_TIMER = 1 << 62  # µs: after every time of a record
CALLS = b"calls"  # in META: how often ctx.random was called
_INT64 = struct.Struct(">q")


class LogicalProcessor(Processor):
    """One task. Timers and windows go by logical time: what is due fires before a later record, or as time passes."""

    def __init__(
        self,
        stage: StageGraph,
        topology: Topology,
        partition: int,
        overlay: Overlay,
        outputs: Outputs,
        settings: Settings,
        *,
        logical: LogicalOutputs,
        executor: Executor | None = None,
        sinks: MakeSinks = sinks_of,
    ) -> None:
        """``logical``: the mode of ``outputs``. ``executor`` runs what the outbox does to its ``sinks``."""
        super().__init__(stage, topology, partition, overlay, outputs, settings, executor=executor, sinks=sinks)
        self._logical = logical
        self._producer = producer_id(stage.ordinal, partition)
        name = f"{topology.job}/{stage.name}/{partition}"
        self._context = LogicalContext(name, lambda: logical.at)
        self._clock = TimedLogicalTime(logical, self._before_record) if self._fires else LogicalTime(logical)

    @property
    def producer_name(self) -> bytes:
        """The name that the outputs of this task give as their producer."""
        return self._logical.producer_name

    @property
    def places(self) -> Mapping[TopicPartition, int]:
        """The offset, by external partition, from which on there may be outputs unknown to the state (D5)."""
        return self._logical.places

    def note_end(self, partition: TopicPartition, end: int) -> None:
        """Note that all records sent to an external partition are before ``end``."""
        self._logical.note_end(partition, end)

    def go_on_after(
        self, released: Mapping[TopicPartition, int], digests: Mapping[TopicPartition, Sequence[Check]]
    ) -> None:
        """Drop records made again that were released before the restart, after comparing them (D5)."""
        self._logical.go_on_after(released, digests)

    def recover(self, partition: TopicPartition, visible: Visible) -> None:
        """Drop records made again that output recovery has read, after comparing them (D5)."""
        self._logical.recover(partition, visible)

    def reset(self) -> None:
        """Make a new task instance over the state as it is now."""
        self._logical.load(self._meta)
        raw = self._meta.get(CALLS)
        self._context.calls = 0 if raw is None else _INT64.unpack(raw)[0]
        super().reset()

    def process_decided(self, partition: TopicPartition, rows: Sequence[LogRow], first_t: int) -> None:
        """Process rows of an external topic: the i-th has the logical time ``first_t`` + i µs (D2)."""
        offsets, _, timestamps, keys, values, headers = zip(*rows, strict=True)
        if self.check_keys is not None:
            self.check_keys(partition, offsets, keys)
        cells = headers if any(headers) else None
        logical = range(first_t, first_t + len(rows)), (self._producer,) * len(rows)
        batch = RecordBatch(keys, values, timestamps, cells, logical, source=partition, offset=offsets)
        self._loops[partition.topic](batch)
        if self._fires:
            self._reach(first_t + len(rows) - 1)

    def process_merged(self, batches: Sequence[RecordBatch], upto: int) -> None:
        """Process records that were merged in logical order, then let time reach ``upto`` µs (D1)."""
        for batch in batches:
            self._loops[batch.source.topic](batch)
        if self._fires:
            self._reach(upto)

    def take_numbered(self) -> tuple[list[ExternalRecord], dict[TopicPartition, Check]]:
        """Return and forget external records with headers, and the last seq and digest of each partition (D5)."""
        return self._logical.number(self.take_external())

    @property
    def next_timer(self) -> int:
        """The logical time in µs at which a timer may be due."""
        return min(NO_TIMER, self._timers.due * 1_000) if self._fires else NO_TIMER

    def before_freeze(self, checkpoint_id: int) -> None:
        """Write the part of the checkpoint's state that is kept in memory; nothing if nothing changed."""
        super().before_freeze(checkpoint_id)
        state: dict[bytes, bytes] = {CALLS: _INT64.pack(self._context.calls)}
        self._logical.save(state)
        for key, raw in state.items():
            if self._saved.get(key) != raw:
                self._meta.put(key, raw)
                self._saved[key] = raw

    def _bind_state(self, task: Task) -> None:
        super()._bind_state(task)
        task.ctx = self._context

    def _before_record(self, time_us: int) -> None:
        """Advance time to just before a record: fire the timers due by then, and close the windows that end by then."""
        self._reach(time_us)
        timers = self._timers
        timers.now = max(timers.now, time_us // 1_000)

    def _reach(self, time_us: int) -> None:
        """Fire the timers due by a µs. Stream time stays at what has happened: how far it may go is chance."""
        timers, now = self._timers, time_us // 1_000
        while timers.due <= now:
            timers.now = max(timers.now, timers.due)
            self._fire()

    def _fire_one(self, due: Due) -> None:
        outputs = self._logical
        outputs.at = max((due.at * 1_000, self._producer), outputs.at)
        super()._fire_one(due)
