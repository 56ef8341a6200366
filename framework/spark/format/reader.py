"""Spark's readers: read one partition of the log and yield Arrow batches. Nothing in here needs Spark."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from grete.api.jobs.job import Job
from grete.core.changelog.changelog_fold import is_rolled_back
from grete.core.graph.task_topology import TaskWiring
from grete.core.graph.topology import Stream
from grete.errors import ConfigError, Halted, OffsetOutOfRange
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.halts import HaltCode
from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import decode_columns
from grete.protocol.ids import RollbackEntry, TopicPartition, producer_id
from grete.spark.format.columns import Column
from grete.spark.format.latest_values import NewestEntries
from grete.spark.format.options import LogSpec
from grete.state.read.checkpoints.commits import all_wirings, ends_of, last_commit
from grete.state.read.checkpoints.snapshots import Snapshot, commits, segments
from grete.state.read.live_entries import event_time_of
from grete.stores.overlay.expiring_store import EXPIRY_BYTES, horizon

BATCH_ROWS = 65_536  # of an Arrow batch: Spark's own default is 10,000, larger ones cost less a row


class StatePlan(NamedTuple):
    """The plan to read a changelog: one store, at ``checkpoint_id``."""

    checkpoint_id: int
    store: int
    name: str
    key: Column
    value: Column
    expires: bool  # each value begins with its expiry


def state(where: LogSpec, plan: StatePlan, snapshot: Snapshot) -> Iterator[pa.RecordBatch]:
    """Yield the entries of one store of one task: key, value, store, partition, checkpoint, and who wrote it where."""
    log = where.open()
    try:
        written: list[tuple[int, int, int]] = []  # (checkpoint, generation, offset) of each commit
        parts = _noting(segments(log, snapshot), written)
        newest = NewestEntries(plan.store)
        newest.feed(parts)
        keys, values, numbers = newest.columns()
        if plan.expires:
            keys, values, numbers = _unexpired(keys, values, numbers, _event_time(log, snapshot))
    finally:
        log.close()
    checkpoint_ids, generations, offsets = (pa.array(column, pa.int64()) for column in zip(*written, strict=True))
    partition = snapshot.changelog.partition
    for start in range(0, len(keys), BATCH_ROWS):
        by = numbers.slice(start, BATCH_ROWS)
        count = len(by)
        yield pa.RecordBatch.from_arrays(
            [
                plan.key.decoded(keys.slice(start, BATCH_ROWS)),
                plan.value.decoded(values.slice(start, BATCH_ROWS)),
                pa.repeat(plan.name, count),
                pa.repeat(pa.scalar(partition, pa.int32()), count),
                pa.repeat(pa.scalar(plan.checkpoint_id, pa.int64()), count),
                checkpoint_ids.take(by),
                generations.take(by).cast(pa.int32()),
                offsets.take(by),
            ],
            names=["key", "value", "store", "partition", "checkpoint_id", "written", "generation", "offset"],
        )


def _event_time(log: LogReader, snapshot: Snapshot) -> int:
    own = NewestEntries(META)
    own.feed(segments(log, snapshot))
    keys, values, _ = own.columns()
    at = pc.index(keys, pa.scalar(STREAM_TIME, pa.large_binary())).as_py()
    return event_time_of(None if at < 0 else values[at].as_py())


def _unexpired(keys: Any, values: Any, numbers: Any, event_time: int) -> tuple[Any, Any, Any]:
    """Return the columns of what is alive, values without their expiry."""
    alive = pc.greater_equal(values, pa.scalar(horizon(event_time), pa.large_binary()))
    shown = pc.binary_replace_slice(values.filter(alive), 0, EXPIRY_BYTES, b"")
    return keys.filter(alive), shown, numbers.filter(alive)


def _noting(parts: Iterator[Any], written: list[tuple[int, int, int]]) -> Iterator[Any]:
    for segment in parts:
        written.append((segment.commit.checkpoint_id, segment.commit.generation, segment.offset))
        yield segment


# --- commits ---

COMMITS_DDL = (
    "stage string, partition int, offset bigint, append_time timestamp, generation int, checkpoint_id bigint, "
    "previous bigint, data_count int, base bigint, round_start bigint, at_end boolean, fingerprint bigint, "
    "bulk_write_id string, nonce binary, rollback_history array<struct<generation:int,checkpoint_id:bigint>>, inputs "
    "array<struct<topic:string,partition:int,resume:bigint>>, external "
    "array<struct<topic:string,partition:int,offset:bigint>>, outputs "
    "array<struct<topic:string,partition:int,next_seq:bigint>>"
)
_ROLLBACK_HISTORY = pa.list_(pa.struct([("generation", pa.int32()), ("checkpoint_id", pa.int64())]))
_PLACE = [("topic", pa.string()), ("partition", pa.int32())]
_COMMITS = pa.schema(
    [
        ("stage", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("append_time", pa.timestamp("us", "UTC")),
        ("generation", pa.int32()),
        ("checkpoint_id", pa.int64()),
        ("previous", pa.int64()),
        ("data_count", pa.int32()),
        ("base", pa.int64()),
        ("round_start", pa.int64()),
        ("at_end", pa.bool_()),
        ("fingerprint", pa.int64()),
        ("bulk_write_id", pa.string()),
        ("nonce", pa.binary()),
        ("rollback_history", _ROLLBACK_HISTORY),
        ("inputs", pa.list_(pa.struct([*_PLACE, ("resume", pa.int64())]))),
        ("external", pa.list_(pa.struct([*_PLACE, ("offset", pa.int64())]))),
        ("outputs", pa.list_(pa.struct([*_PLACE, ("next_seq", pa.int64())]))),
    ]
)


def commits_of(where: LogSpec, stage: str, wiring: TaskWiring) -> Iterator[pa.RecordBatch]:
    """Yield the valid commits of one task, oldest first."""
    log = where.open()
    try:
        found = [
            {
                "stage": stage,
                "partition": wiring.changelog.partition,
                "offset": at.offset,
                "append_time": at.append_time_ms * 1000,
            }
            | _fields(at.commit)
            for at in commits(log, wiring)
        ]
    finally:
        log.close()
    yield from pa.Table.from_pylist(found, schema=_COMMITS).to_batches(BATCH_ROWS)


def _fields(commit: Commit) -> dict[str, Any]:
    return {name: _plain(getattr(commit, name)) for name in commit.__struct_fields__ if name in _COMMITS.names}


def _plain(value: Any) -> Any:
    """Return tuples of the protocol's records as lists of dicts with the fields that the table has."""
    if not isinstance(value, tuple):
        return value
    names = "generation", "checkpoint_id", "topic", "partition", "resume", "offset", "next_seq"
    return [{name: getattr(entry, name) for name in names if hasattr(entry, name)} for entry in value]


# --- streams ---


class Producer(NamedTuple):
    """The commits of a producer of a stream."""

    name: str
    checkpoint_id: int
    rollback_history: tuple[RollbackEntry, ...]


class StreamPlan(NamedTuple):
    """The plan to read a partition of a stream."""

    key: Column
    value: Column
    producers: Mapping[int, Producer]
    aligned: bool
    seqs: Mapping[int, range] | None = None  # by producer: the records wanted; None: all that are there


def producers_of(log: LogReader, job: Job, stream: Stream) -> dict[int, Producer]:
    """Return producer id → what it has committed; those that have committed nothing are left out."""
    found = {}
    ids = {producer_id(stream.producer, number) for number in range(job.stages[stream.producer].partitions)}
    wirings = {wiring.changelog: wiring for wiring in all_wirings(job) if wiring.producer in ids}
    for changelog, bounds in ends_of(log, wirings):
        if (last := last_commit(log, changelog, bounds)) is not None:
            wiring = wirings[changelog]
            found[wiring.producer] = Producer(wiring.name, last.commit.checkpoint_id, last.commit.rollback_history)
    return found


def stream(where: LogSpec, plan: StreamPlan, partition: TopicPartition) -> Iterator[pa.RecordBatch]:
    """Yield the committed records of one partition, a batch a frame: no rolled-back ones (R3), none twice (K1)."""
    log = where.open()
    try:
        start, end = log.bounds(partition)
        reader = FrameReader(plan, partition)
        for row in rows(log, partition, start, end):
            batch = reader.batch(row.offset, row.value or b"")
            if batch is not None:
                yield batch
    except OffsetOutOfRange as error:
        raise Halted(
            f"{partition} was trimmed while it was read: its job is running; read it again",
            partition=partition,
            code=HaltCode.TRIMMED_WHILE_READ,
        ) from error
    finally:
        log.close()


class FrameReader:
    """Decides which records of a partition count: committed ones of a valid incarnation, each once.

    If seqs are wanted, a record that is missing among them is an error.
    """

    def __init__(self, plan: StreamPlan, partition: TopicPartition) -> None:
        self._plan = plan
        self._partition = partition
        self._next: dict[tuple[int, int], int] = {}  # by producer (and generation, where repeats are allowed): next seq

    def batch(self, offset: int, message: bytes) -> pa.RecordBatch | None:
        """Return the records of one message that count, None if there are none.

        Raises Halted: damaged, or a gap; ConfigError: a record that is wanted has been trimmed.
        """
        found = self._counting(offset, message)
        if found is None:
            return None
        header, producer = found
        with self._damaged(offset):
            columns = decode_columns(message)
        channel = (header.producer, 0 if self._plan.aligned else header.generation)
        seqs = None if self._plan.seqs is None else self._plan.seqs.get(header.producer, range(0))
        known = self._next.get(channel, header.seq if seqs is None else seqs.start)
        behind = header.seq + len(columns.keys)
        if seqs is not None:
            if header.seq > known and known < seqs.stop:
                raise self._trimmed(producer, known, min(header.seq, seqs.stop))
            behind = min(behind, seqs.stop)
        elif header.seq > known:
            raise Halted(
                f"{self._partition} offset {offset}: seq {header.seq} after {known - 1} of {producer.name}: "
                "records are lost",
                partition=self._partition,
                offset=offset,
                code=HaltCode.STREAM_DAMAGED,
            )
        self._next[channel] = max(known, behind)
        if behind <= known:
            return None
        here, count = slice(known - header.seq, behind - header.seq), behind - known
        plan = self._plan
        return pa.RecordBatch.from_arrays(
            [
                plan.key.array(columns.keys[here]),
                plan.value.array(columns.values[here]),
                pa.array([1000 * time_ms for time_ms in columns.timestamps[here]], pa.timestamp("us", "UTC")),
                pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count),
                pa.repeat(producer.name, count),
                pa.repeat(pa.scalar(header.checkpoint_id, pa.int64()), count),
                pa.array(range(known, known + count), pa.int64()),
            ],
            names=["key", "value", "timestamp", "partition", "producer", "checkpoint_id", "seq"],
        )

    def first_seq(self, offset: int, message: bytes) -> tuple[int, int] | None:
        """Return (producer id, number of the first record) of a message that counts."""
        found = self._counting(offset, message)
        return None if found is None else (found[0].producer, found[0].seq)

    def _counting(self, offset: int, message: bytes) -> tuple[Header, Producer] | None:
        """Return the header of a frame that is committed and not rolled back, and its producer."""
        with self._damaged(offset):
            header = decode_header(message)
        producer = self._plan.producers.get(header.producer)
        if header.type is not MessageType.FRAME or producer is None:
            return None
        if self._plan.aligned and (
            header.checkpoint_id > producer.checkpoint_id
            or is_rolled_back(producer.rollback_history, header.generation, header.checkpoint_id)
        ):
            return None
        return header, producer

    @contextmanager
    def _damaged(self, offset: int) -> Iterator[None]:
        try:
            yield
        except DecodeError as error:
            raise Halted(
                f"{self._partition} offset {offset}: {error}; the stream is damaged",
                partition=self._partition,
                offset=offset,
                code=HaltCode.STREAM_DAMAGED,
            ) from error

    def finish(self) -> None:
        """Raise ConfigError if a record that is wanted has not come."""
        for producer, seqs in (self._plan.seqs or {}).items():
            known = self._next.get((producer, 0), seqs.start)
            if known < seqs.stop:
                raise self._trimmed(self._plan.producers[producer], known, seqs.stop)

    def _trimmed(self, producer: Producer, first: int, behind: int) -> ConfigError:
        return ConfigError(
            f"{self._partition}: records {first} to {behind - 1} of {producer.name} are trimmed: the job keeps what "
            "its consumers have committed for stream_retention_ms: raise it, and begin again with another "
            "checkpointLocation and startingOffsets = earliest, the records that are there, or latest",
            partition=self._partition,
            setting="stream_retention_ms",
        )
