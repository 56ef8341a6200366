"""One task's step from a commit to a later one, made again by its own code over a copy of its state, and compared."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from framework.api.graph import StageGraph
from framework.api.job import Job
from framework.batch.channels import channels_of
from framework.batch.frames import Frame
from framework.batch.passes import AlignedPass, LiveTime
from framework.batch.record_order import Piece, merged, piece_of_message, pieces_of_rows
from framework.core.deterministic.logical_watermarks import NEVER
from framework.core.task_topology import wire
from framework.errors import ConfigError
from framework.execution.build import store_names
from framework.execution.event_time import OUTSIDE
from framework.execution.outputs import Outputs
from framework.execution.processor import Processor
from framework.execution.record_times import order_of
from framework.execution.reserved_stores import EVENT_TIME, META, OUTBOX, STREAM_TIME
from framework.execution.sink_targets import no_sinks
from framework.logs.partition_reader import rows
from framework.ports import LogReader
from framework.replay.audit.sample import Sample
from framework.replay.audit.state_copy import EntryPlace, StateCopy, StepWrites, writes_between
from framework.settings import Settings
from framework.state.live_entries import event_time_of
from framework.state.snapshots import Snapshot
from framework.stores.expiring_store import horizon
from framework.stores.overlay import Overlay
from framework.stores.rocksdb_memory import RocksMemory
from protocol.commit import Commit
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch


class WrongEntry(NamedTuple):
    """An entry that differs. None: it is not there."""

    stage: str
    partition: int
    store: str
    key: bytes
    found: bytes | None  # in the changelog
    expected: bytes | None  # made again


class ComparedStep(NamedTuple):
    """What the step of one task has shown: records made again, entries compared, and those that differ."""

    records: int
    keys: int
    differences: list[WrongEntry]


class AuditedTask:
    """Task (stage, partition). When all tasks have made a step, their owner brings ``copy`` to its end."""

    def __init__(  # noqa: PLR0917  # as they come in
        self,
        job: Job,
        stage: StageGraph,
        partition: int,
        settings: Settings,
        outside: Mapping[str, int],
        directory: Path,
        memory: RocksMemory,
        sample: Sample,
    ) -> None:
        """``outside``: partition counts of the topics that the job writes. ``directory``: of the copy of its state."""
        self._job, self._stage, self._partition, self._settings = job, stage, partition, settings
        topology = job.topology()
        self.wiring = wire(topology, stage.ordinal, partition)
        self.copy = StateCopy(directory, stage, memory)
        self._overlay = Overlay(
            self.copy.store,
            list(store_names(stage)),
            uncommitted_state_bytes_max=2 * settings.uncommitted_state_bytes_max,  # steps may be of several checkpoints
            read_cache_bytes_max=settings.read_cache_bytes_max,
        )
        outputs = Outputs(stage, topology, settings, outside.get, drop_external=True)
        own = stage, topology, partition, self._overlay, outputs, settings
        self._processor = Processor(*own, sinks=no_sinks)
        self._sample = sample if sample.draws and not self.wiring.outputs else None  # others need all of its outputs
        self._channels = channels_of(topology, stage.ordinal, partition)

    def step(
        self, log: LogReader, before: Commit, after: Snapshot, frames: Iterable[Frame]
    ) -> tuple[list[Frame], ComparedStep]:
        """Make the step from the commit of the copy to a later one; return what the task sends, and what differs.

        ``frames``: from the tasks before it. Raises TaskError, and as ``writes_between``.
        """
        at = self.copy.at
        assert at is not None, f"{self.wiring.name}: a step begins at a state"
        found = writes_between(log, at.offset, after)
        stream_time = self._value(found, META, STREAM_TIME)
        live_ms = None if stream_time is None else event_time_of(stream_time)
        set_by_init = self._reset()
        records, sent = self._run(self._pieces(log, before, after.commit, frames), live_ms)
        self._processor.before_freeze(after.commit.checkpoint_id)
        self._overlay.freeze()
        made = {(store, key): value for store, key, value in self._overlay.frozen_items()}
        self._check_keyed(made)
        keys, differences = self._differences(found, made, set_by_init, horizon(event_time_of(stream_time)))
        self._overlay.drop_all()
        return sent, ComparedStep(records, keys, differences)

    def _reset(self) -> frozenset[EntryPlace]:
        """Begin over the copy; return what ``init`` sets, as it has at each start of the live task, whenever that was.

        Such an entry is not compared.
        """
        self._overlay.drop_all()
        self._processor.reset()
        self._overlay.freeze_part()
        return frozenset((store, key) for store, key, _ in self._overlay.frozen_items())

    def _run(self, pieces: Iterable[Piece], live_ms: int | None) -> tuple[int, list[Frame]]:
        """Process; return how many records, and what was sent. ``live_ms``: event time at the end."""
        own = self._job, self._stage, self._partition
        made = AlignedPass(*own, self._processor, self._settings.batch_bytes_max, NEVER)
        sent: list[Frame] = []
        for piece in merged(pieces, len(self._channels)):
            drawn = self._drawn(piece)
            if drawn is None:
                continue
            made.take(drawn)
            sent += made.frames(tell=False)
            made.external()
            self._processor.requests.forget()
        made.end(LiveTime(live_ms))
        sent += made.frames(tell=True)
        made.external()
        return made.records.total(), sent

    def _differences(
        self, found: StepWrites, made: StepWrites, set_by_init: frozenset[EntryPlace], least: bytes
    ) -> tuple[int, list[WrongEntry]]:
        """Return how many entries were compared, and those that differ; ``least``: as ``horizon`` gives it."""
        names, expiring = store_names(self._stage), self._stage.expiring_ids()
        keys, differences = 0, list[WrongEntry]()
        for store, key in sorted(made.keys() | found.keys()):
            if (store, key) in set_by_init or not self._is_compared(store, key):
                continue
            keys += 1
            live, again = self._value(found, store, key), self._value(made, store, key)
            if store in expiring:  # when it is deleted depends on commits
                live, again = (None if cell is None or cell < least else cell for cell in (live, again))
            if live != again:
                differences.append(WrongEntry(self._stage.name, self._partition, names[store], key, live, again))
        return keys, differences

    def close(self) -> None:
        """Close the copy."""
        self._overlay.drop_all()
        self.copy.close()

    def _value(self, writes: StepWrites, store: int, key: bytes) -> bytes | None:
        """Return an entry as it is after some writes over the copy."""
        return writes[store, key] if (store, key) in writes else self.copy.store.get(store, key)

    def _is_compared(self, store: int, key: bytes) -> bool:
        if store == OUTBOX:  # it is emptied when its sink takes it
            return False
        if store == META:  # which inputs were idle, a clock has decided; what came of it, event time, is compared
            return self._sample is None and not key.startswith(EVENT_TIME)
        return self._sample is None or self._sample.has_entry(store, key)

    def _check_keyed(self, made: StepWrites) -> None:
        """Refuse a sample if the records of its keys write entries of others, which those write, too."""
        if self._sample is None:
            return
        for store, key in made:
            if store not in (META, OUTBOX) and not self._sample.has_entry(store, key):
                name = store_names(self._stage)[store]
                raise ConfigError(
                    f"stage {self._stage.name}: its store {name} is not keyed as its records are: records of drawn "
                    f"keys have written the entry {key!r}, whose own key is not drawn, so other records may write it, "
                    "too: leave --share out",
                    stage=self._stage.name,
                )

    # --- Input ---

    def _pieces(self, log: LogReader, before: Commit, after: Commit, frames: Iterable[Frame]) -> Iterator[Piece]:
        """Yield what came in between two commits, in an order that its channels allow."""
        found = [self._frame_piece(frame) for frame in frames]
        declared = self._stage.inputs_by_log_topic(self._job.topology())
        begins = offsets(before)
        for partition, end in offsets(after).items():
            begin = begins.get(partition, self.wiring.starts.get(partition, 0))
            if begin >= end:
                continue
            taken = rows(log, partition, begin, end, acknowledged=end)
            number, time_of = self._channels[OUTSIDE, partition], order_of(declared[partition.topic])
            pieces = pieces_of_rows(partition, number, taken, self._settings.batch_bytes_max, time_of)
            if len(self._channels) == 1:
                yield from pieces
            else:
                found += pieces
        yield from sorted(found, key=lambda piece: piece[:3])

    def _frame_piece(self, frame: Frame) -> Piece:
        place = frame.partition
        channel = self._channels[frame.producer, place]
        return piece_of_message(place, frame.start, channel, frame.first, frame.message)

    def _drawn(self, piece: Piece) -> Piece | None:
        """Return the part of a piece that is of drawn keys; None: nothing."""
        if self._sample is None or not piece.batch.keys:
            return piece
        records = piece.batch
        drawn = [i for i, key in enumerate(records.keys) if self._sample.has(key)]
        return piece._replace(batch=_only(records, drawn)) if drawn else None


def offsets(commit: Commit) -> dict[TopicPartition, int]:
    """Return the offset of the first record not included in a commit, by partition from outside."""
    return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in commit.external}


def _only(records: RecordBatch, places: Sequence[int]) -> RecordBatch:
    """Return some records of a batch."""
    return records._replace(
        keys=[records.keys[i] for i in places],
        values=[records.values[i] for i in places],
        timestamps=[records.timestamps[i] for i in places],
        headers=None if records.headers is None else [records.headers[i] for i in places],
        offset=[records.offset_at(i) for i in places],
    )
