"""One task over its history in batch: the live task's own processor and overlay, without a log and without checkpoints.

All of the history is one checkpoint. What the live task keeps beside the user's stores (pins, event time, turns,
timers, the outbox) comes out of the same code, so a live task that takes over finds what it would have made itself.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from framework.api.context import Context
from framework.api.graph import RESERVED_STORES, StageGraph
from framework.api.job import Job
from framework.batch.record_order import Piece, merged
from framework.batch.temporary_store import Scratch
from framework.core.task_topology import wire
from framework.core.topology import Topology
from framework.errors import ConfigError
from framework.execution.build import store_names
from framework.execution.event_time import BEFORE_ALL, OUTSIDE
from framework.execution.outputs import Outputs
from framework.execution.processor import Processor
from framework.execution.sink_targets import no_sinks
from framework.ports import ExternalRecord
from framework.settings import Settings
from framework.stores.expiring_store import horizon
from framework.stores.overlay import Overlay
from protocol.control import encode_watermark
from protocol.envelope import Header, MessageType, encode_header
from protocol.frames import decode_columns
from protocol.ids import TopicPartition

StateRow = tuple[int, bytes, bytes]  # store id, key, value

_CHUNK_KEYS = 10_000  # read at once: bounds memory, and the calls cost little beside it


class Frame(NamedTuple):
    """Records of a task for one partition of a stream, as it would hold them, or a watermark.

    ``start``, ``first``: as of a Piece.
    """

    partition: TopicPartition
    start: int
    producer: int
    first: int
    message: bytes


class _NoContext(Context):
    """The context of a deterministic task in batch: its records have no logical time yet."""

    def now_us(self) -> int:
        """Raise ConfigError."""
        raise ConfigError("ctx.now cannot be recomputed in batch: only a live deterministic job has logical time")

    def random(self) -> random.Random:
        """Raise ConfigError."""
        raise ConfigError("ctx.random and ctx.uuid cannot be recomputed in batch: they depend on logical time")


def check_batch(job: Job) -> None:
    """Refuse a job whose state depends on what only its live tasks know. Raises ConfigError."""
    for stage in job.stages:
        if whole := stage.topics_broadcast():
            raise ConfigError(
                f"stage {stage.name} reads all of topic {min(whole)} in each task (broadcast=True), which a batch "
                "cannot do yet. Start the job under another name instead: it reads its inputs from their first records",
                stage=stage.name,
            )
        if starts := stage.starts():
            raise ConfigError(
                f"stage {stage.name} begins to read topic {min(starts)} behind its first record (start=), and a batch "
                "is made from all of the history. Start the job under another name instead; or leave start= out, and "
                "the history before it counts, too",
                stage=stage.name,
            )
        if first := stage.topics_read_first():
            raise ConfigError(
                f"stage {stage.name} reads topic {min(first)} first (bootstrap=True): where that ended when a task "
                "started is not recorded, so such a stage cannot be recomputed in batch. Start the job under another "
                "name instead: it reads its inputs from their first records",
                stage=stage.name,
            )
        if waiting := stage.priorities():
            raise ConfigError(
                f"stage {stage.name} reads topic {min(waiting)} with priority=: which of its records were at hand "
                "before those of other topics is not recorded, so such a stage cannot be recomputed in batch. Start "
                "the job under another name instead: it reads its inputs from their first records",
                stage=stage.name,
            )
        if taken := [topic for topic, time in stage.topics_timed().items() if time == "intake"]:
            raise ConfigError(
                f"stage {stage.name} gives the records of topic {taken[0]} the time at which a task takes them in "
                "(time='intake'), which is not recorded, so such a stage cannot be recomputed in batch. Let the "
                "records have their timestamps, or a time of their value, in a job of another name",
                stage=stage.name,
            )
        if stage.batch and stage.expiring_ids():
            raise ConfigError(
                f"stage {stage.name} has process_batch and a store with ttl_ms: its entries live from the latest "
                "timestamp of a batch, and a batch computation has other batches. Start the job under another name "
                "instead: it reads its inputs from their first records",
                stage=stage.name,
            )
        if stage.mode == "deterministic" and stage.goes_by_time:
            kept = [f"{each.what}s" for each in stage.stateful.values() if each.by_time]
            kept += ["timers"] * (stage.timers is not None) + ["deduplicate="] * bool(stage.seen)
            what = [*kept, "a store with ttl_ms"][0]
            raise ConfigError(
                f"stage {stage.name} is deterministic, with {what}: the order in "
                "which they meet its records is that of logical time, which records have only once a live job has "
                "taken them in; such a stage cannot be recomputed in batch (grete check-determinism replays its recent "
                "history)",
                stage=stage.name,
            )


class BatchTask:
    """Task (stage, partition) of a job. ``run`` once, then ``finish``, then ``state``, then ``close``."""

    def __init__(
        self,
        job: Job,
        stage: StageGraph,
        partition: int,
        settings: Settings,
        outside: Mapping[str, int],
        *,
        outputs: bool = True,
    ) -> None:
        """``outside``: partition counts of the topics that the job writes; without ``outputs``, only letters go there.

        ``settings.uncommitted_state_bytes_max`` bounds the state in memory; beyond, it goes to a temporary RocksDB.
        """
        topology = job.topology()
        names = store_names(stage)
        self._stage = stage
        self.records: Counter[str] = Counter()  # by topic, as the log names it
        self.refused = 0
        self._bytes_max = settings.uncommitted_state_bytes_max
        self._store = Scratch(names, settings.rocksdb_bytes)
        self._overlay = Overlay(
            self._store,
            list(names),
            uncommitted_state_bytes_max=2 * self._bytes_max,
            read_cache_bytes_max=settings.read_cache_bytes_max,
        )
        self._outputs = Outputs(stage, topology, settings, outside.get, drop_external=not outputs)
        context = _NoContext() if stage.mode == "deterministic" else None  # its state is the same, but for logical time
        self._processor = Processor(
            stage, topology, partition, self._overlay, self._outputs, settings, sinks=no_sinks, context=context
        )
        self._channels = channels_of(topology, stage.ordinal, partition)
        self._sources = {channel: source for source, channel in self._channels.items()}
        wiring = wire(topology, stage.ordinal, partition)
        self._producer, self._timed_outputs = wiring.producer, wiring.timed_outputs
        self._next: dict[TopicPartition, tuple[int, int]] = {}  # stream partition → next number, time reached
        self._told = BEFORE_ALL, False  # the last watermark
        self._untold_bytes, self._untold_bytes_max = 0, settings.batch_bytes_max  # of inputs since then
        self._done = False

    @property
    def failed(self) -> int:
        """How many records, timers and windows were dropped because processing failed."""
        return self._processor.dropped["failed"]

    def run(self, pieces: Iterable[Piece]) -> Iterator[list[Frame] | list[ExternalRecord]]:
        """Process all of the history; yield what is sent, as it comes. Raises TaskError.

        ``pieces``: of all channels, sorted; each channel from its beginning.
        """
        self._processor.reset()
        for piece in merged(pieces, len(self._channels)):
            self._take(piece)
            self._processor.requests.forget()  # all of the history is one checkpoint
            if self._overlay.open_bytes > self._bytes_max:
                self._make_room()
            yield from self._sent(tell=self._untold_bytes >= self._untold_bytes_max)

    def finish(self, live_ms: int | None = None) -> Iterator[list[Frame] | list[ExternalRecord]]:
        """End the history; yield what is still sent. Raises TaskError.

        Event time stays where the inputs are, since they go on live. Inputs without any record are idle. ``live_ms``:
        a live task was here, and that was its event time; which of its inputs were idle, its clock has decided (E4).
        """
        if live_ms is not None:
            self._processor.catch_up(live_ms)
        else:
            for producer, source in self._channels:
                if producer == OUTSIDE and not self.records[source.topic]:
                    self._processor.input_is_idle(source)
        yield from self._sent(tell=True)
        self._done = True

    def _take(self, piece: Piece) -> None:
        source, records = self._sources[piece.channel], piece.batch
        if piece.watermark is not None:
            watermark, idle = piece.watermark
            self._processor.take_watermark(source, watermark, idle=idle)
        elif piece.refused is not None:
            self._processor.refuse(records, piece.refused)
            self.refused += 1
        else:  # of several channels, maybe, if those are of one stream partition: only their watermarks move time
            self._processor.process_batch(source[0], records)
            self.records[records.source.topic] += len(records.keys)
        cells = filter(None, chain(records.keys, records.values))
        self._untold_bytes += 1 + len(records.keys) + sum(map(len, cells))

    def _sent(self, *, tell: bool) -> Iterator[list[Frame] | list[ExternalRecord]]:
        if frames := self._frames() + (self._watermarks() if tell else []):
            yield frames
        if external := self._processor.take_external():
            yield external

    @property
    def dropped(self) -> int:
        """How many outputs to topics were not kept."""
        return self._outputs.dropped

    def state(self, checkpoint_id: int, *, outbox: bool) -> Iterator[StateRow]:
        """Yield the state after all records, by store and key; ``outbox``: with what waits for files and tables."""
        assert self._done, "state: the history has not been processed to its end"
        self._processor.before_freeze(checkpoint_id)
        self._processor.close()
        self._overlay.freeze()
        expiring, least = self._stage.expiring_ids(), horizon(self._overlay.event_time)
        left_out = set() if outbox else {RESERVED_STORES["_outbox"]}
        if not self._store.used:
            rows = self._overlay.frozen_items()
            found = ((s, key, value) for s, key, value in rows if value is not None and s not in left_out)
            return (row for row in found if row[0] not in expiring or row[2] >= least)
        self._apply()
        stores = sorted(set(self._overlay.store_ids) - left_out)
        return chain.from_iterable(
            (
                (store, key, value)
                for key, value in self._store.scan(store, b"", None)
                if store not in expiring or value >= least
            )
            for store in stores
        )

    def close(self) -> None:
        """Delete what is on disk."""
        self._store.close()

    def _make_room(self) -> None:
        """Move the state out of memory, if it really is so large: ``open_bytes`` counts a key at each put."""
        self._overlay.recount()
        if self._overlay.open_bytes > self._bytes_max // 2:
            self._overlay.freeze()
            self._apply()

    def _apply(self) -> None:
        while not self._overlay.apply_chunk(b"", _CHUNK_KEYS):
            pass

    def _frames(self) -> list[Frame]:
        frames = []
        for partition, count, body in self._processor.take_frames():
            number, reached = self._next.get(partition, (1, BEFORE_ALL))
            message = encode_header(Header(MessageType.FRAME, self._producer, 0, 0, number)) + body
            timestamps = decode_columns(message).timestamps
            frames.append(Frame(partition, max(reached, timestamps[0]), self._producer, number, message))
            self._next[partition] = number + count, max(reached, *timestamps)
        return frames

    def _watermarks(self) -> list[Frame]:
        """Return what consumers are to be told of event time, behind all that was sent (E2)."""
        self._untold_bytes = 0
        told = self._processor.watermark
        if told is None or told == self._told:
            return []
        self._told, marks = told, []
        for partition in self._timed_outputs:
            number, reached = self._next.get(partition, (1, BEFORE_ALL))
            reached = max(reached, told[0])
            message = encode_watermark(self._producer, 0, 0, number, told[1], told[:1])
            marks.append(Frame(partition, reached, self._producer, number, message))
            self._next[partition] = number + 1, reached
        return marks


def channels_of(topology: Topology, stage: int, partition: int) -> dict[tuple[int, TopicPartition], int]:
    """Return (producer id, -1: none of ours; its partition) → channel, of all that a task reads."""
    wiring = wire(topology, stage, partition)
    external = {(OUTSIDE, source): -1 - index for index, source in enumerate(wiring.external)}
    return external | {channel: index for index, channel in enumerate(wiring.channels)}


def stages_in_order(job: Job) -> list[StageGraph]:
    """Return the stages, each after all that it reads from."""
    topology, ordered = job.topology(), list[StageGraph]()
    while len(ordered) < len(job.stages):
        known = {stage.ordinal for stage in ordered}
        ordered += [
            stage
            for stage in job.stages
            if stage.ordinal not in known and all(s.producer in known for s in topology.streams_into(stage.ordinal))
        ]
    return ordered
