"""``format("topic")``: the records of a topic that a job reads from outside or writes to it, as a table or a stream.

The offsets of a query are those of the topic. A reader sees what is committed: on Kafka no record of a transaction that
is open or was aborted, and in the embedded log outputs come with their commit.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from grete.api.topics.reader import origin_of
from grete.api.topics.topic import Topic
from grete.errors import ConfigError, OffsetOutOfRange, SerdeError
from grete.execution.records.decoding import headers_of
from grete.logs.open_transactions import told_all
from grete.logs.partition_reader import rows
from grete.ports import JobLogReader, LogRow
from grete.protocol.ids import TopicPartition
from grete.spark.format.columns import Column, column
from grete.spark.format.following import FollowingReader, OnDriver, StoredOffset
from grete.spark.format.options import LogSpec, Options, batch_limit, read_options, starting_offsets
from grete.spark.format.parts import Part, wait_for_end
from grete.state.read.shown import external_topics

_BATCH_BYTES = 8 << 20  # of keys and values in an Arrow batch
_READ_ROWS = 1_000  # looked at together
_STREAM_OPTIONS = {"topic", "startingoffsets", "maxrecordsperbatch"}
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_WAY_ON = (
    "begin again with another checkpointLocation and startingOffsets = earliest, the records that are there, latest, "
    "or offsets"
)


class _Range(NamedTuple):
    """Records of one partition: ``start`` <= offset < ``end``."""

    key: Column
    value: Column
    partition: TopicPartition
    start: int
    end: int


class TopicSource(DataSource):
    """Records of an external topic of a job: key, value, timestamp, place, headers, and who wrote it as which number.

    Options: job, topic, directory or log, kafkaConfig. A stream takes startingOffsets and maxRecordsPerBatch, too.
    ``producer`` and ``seq`` are those of a deterministic job's outputs, of a feed and of a writer; else null.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "topic"

    def schema(self) -> str:
        """Return the columns; key and value as their serdes say."""
        topic = _topic(read_options(self.options, self.name(), _STREAM_OPTIONS))
        key, value = column("key", topic.key), column("value", topic.value)
        return (
            f"{key.ddl}, {value.ddl}, timestamp timestamp, partition int, offset bigint, producer string, seq bigint, "
            "headers array<struct<key:string,value:binary>>"
        )

    def reader(self, schema: Any) -> "_TopicReader":
        """Return the reader of one query."""
        return _TopicReader(read_options(self.options, self.name(), {"topic"}))

    def streamReader(self, schema: Any) -> "_TopicFollower":  # noqa: N802  # Spark's name
        """Return the reader of a query that goes on."""
        return _TopicFollower(read_options(self.options, self.name(), _STREAM_OPTIONS))


def _topic(options: Options) -> Topic[Any, Any]:
    """Return the topic that the options name. Raises ConfigError listing all there are."""
    topics, wanted = external_topics(options.job), options.own.get("topic")
    if wanted not in topics:
        reason = "is missing" if wanted is None else f"= {wanted!r}: none is called so"
        known = ", ".join(sorted(topics)) or "none"
        raise ConfigError(f"option topic {reason}: job {options.job.name!r} reads and writes outside: {known}")
    return topics[wanted]


class _TopicReader(OnDriver, DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[Part]:
        """Plan: every partition, up to its present end."""
        topic = _topic(self._options)
        with closing(self._options.where.open()) as log:
            bounds = _bounds(log, topic.name)
            for text in told_all(log, [TopicPartition(topic.name, number) for number in bounds]):
                warnings.warn(text, stacklevel=2)  # on the driver's standard error
        where = self._options.where
        return _parts(where, topic, {n: begin for n, (begin, _) in bounds.items()}, _ends(bounds)) or [
            Part(where, -1, None)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one partition."""
        assert isinstance(partition, Part)
        if partition.what is not None:
            yield from _records(partition.where, partition.what)


class _TopicFollower(FollowingReader):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._topic = _topic(options)
        self._start = starting_offsets(options)
        self._limit = batch_limit(options, "maxRecordsPerBatch")
        self._target: dict[int, int] | None = None  # of a query that reads what is available now

    def initialOffset(self) -> StoredOffset:  # noqa: N802  # Spark's name
        """Return the offset at which a new query begins. Raises ConfigError: the topic does not reach there."""
        with self.log() as log:
            bounds = _bounds(log, self._topic.name)
        given = self._start if isinstance(self._start, dict) else {}
        for number, offset in given.items():
            begin, end = bounds.get(number, (0, -1))
            if not begin <= offset <= end:
                raise ConfigError(
                    f"option startingOffsets: offset {offset} of {self._topic.name}[{number}]: there are "
                    + (f"{begin} to {end}" if number in bounds else f"{len(bounds)} partitions")
                )
        chosen = {n: end if self._start == "latest" else begin for n, (begin, end) in bounds.items()}
        return _encode(chosen | given)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of a batch."""
        return ReadAllAvailable() if self._limit is None else ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Note where the query is to end."""
        self._target = self._newest()

    def latestOffset(self, start: StoredOffset, limit: ReadLimit) -> StoredOffset:  # noqa: N802  # Spark's name
        """Return the end of the next batch. Raises ConfigError: the topic has become shorter."""
        known, newest = _decode(start), self._newest() if self._target is None else self._target
        for number, offset in known.items():
            if newest.get(number, -1) < offset:
                raise ConfigError(
                    f"{self._topic.name}[{number}] ends at offset {newest.get(number, 0)}, and this query has read up "
                    f"to {offset}: this is another topic, or a broker has lost records; {_WAY_ON}"
                )
        if isinstance(limit, ReadMaxRows):
            newest = _limited(known, newest, limit.max_rows)
        return _encode(newest)

    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[Part]:
        """Plan a batch: every partition that has more. Raises ConfigError: trimmed, and how to go on."""
        known, last = _decode(start), _decode(end)
        parts = _parts(self.options.where, self._topic, known, last)
        with self.log() as log:
            for part in parts:
                first = log.bounds(part.what.partition)[0]
                if first > part.what.start:
                    raise _trimmed(part.what.partition, part.what.start, first)
        return parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one partition. Raises ConfigError: trimmed, and how to go on."""
        assert isinstance(partition, Part)
        yield from _records(partition.where, partition.what)

    def _newest(self) -> dict[int, int]:
        with self.log() as log:
            return _ends(_bounds(log, self._topic.name))


# --- offsets ---


def _bounds(log: JobLogReader, topic: str) -> dict[int, tuple[int, int]]:
    partitions = [TopicPartition(topic, number) for number in range(log.partitions(topic) or 0)]
    return {partition.partition: bounds for partition, bounds in log.all_bounds(partitions).items()}


def _ends(bounds: dict[int, tuple[int, int]]) -> dict[int, int]:
    return {number: end for number, (_, end) in bounds.items()}


def _encode(offsets: dict[int, int]) -> StoredOffset:
    return {"format": 1, "offsets": {str(number): offset for number, offset in sorted(offsets.items())}}


def _decode(stored: StoredOffset) -> dict[int, int]:
    """Return the parsed offset. Raises ConfigError: of a newer build."""
    if stored.get("format") != 1:
        raise ConfigError(f"an offset of format {stored.get('format')}, this build reads 1: upgrade before reading")
    return {int(number): offset for number, offset in stored["offsets"].items()}


def _limited(start: dict[int, int], end: dict[int, int], count: int) -> dict[int, int]:
    """Return the end of a batch of that many offsets at most, in equal parts; what a partition has not, others get."""
    found, left = dict(start), count
    behind = sorted((last - start.get(number, 0), number) for number, last in end.items())
    for place, (lag, number) in enumerate(behind):
        taken = min(lag, left // (len(behind) - place))
        found[number], left = start.get(number, 0) + taken, left - taken
    return found


def _parts(where: LogSpec, topic: Topic[Any, Any], start: dict[int, int], end: dict[int, int]) -> list[Part]:
    """Return a part for each partition with records between; one that came meanwhile begins with its first."""
    key, value = column("key", topic.key), column("value", topic.value)
    return [
        Part(where, number, _Range(key, value, TopicPartition(topic.name, number), start.get(number, 0), last))
        for number, last in end.items()
        if last > start.get(number, 0)
    ]


def _trimmed(partition: TopicPartition, start: int, first: int) -> ConfigError:
    return ConfigError(
        f"{partition}: records from offset {start} on are no longer retained, the first that is there has offset "
        f"{first}: {_WAY_ON}",
        partition=partition,
        offset=start,
    )


# --- records ---


def _records(where: LogSpec, part: _Range) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range. Raises ConfigError: trimmed; SerdeError: no bytes of the serde, and where."""
    partition = part.partition
    with closing(where.open()) as log:
        wait_for_end(log, partition, part.end)
        try:
            left = rows(log, partition, part.start, part.end)
            size, ready = 0, list[LogRow]()
            while more := list(islice(left, _READ_ROWS)):
                ready += more
                size += sum(len(row.key or b"") + len(row.value or b"") for row in more)
                if size >= _BATCH_BYTES:
                    yield _batch(part, ready)
                    size, ready = 0, []
            if ready:
                yield _batch(part, ready)
        except OffsetOutOfRange as error:
            raise _trimmed(partition, part.start, log.bounds(partition)[0]) from error


def _batch(part: _Range, found: list[LogRow]) -> pa.RecordBatch:
    headers = [headers_of(row.headers) for row in found]
    origins = [origin_of(of) for of in headers]
    return pa.RecordBatch.from_arrays(
        [
            _cells(part, part.key, [row.key for row in found], found),
            _cells(part, part.value, [row.value for row in found], found),
            pa.array([1000 * row.timestamp_ms for row in found], pa.timestamp("us", "UTC")),
            pa.repeat(pa.scalar(part.partition.partition, pa.int32()), len(found)),
            pa.array([row.offset for row in found], pa.int64()),
            pa.array([None if origin is None else origin.producer for origin in origins], pa.string()),
            pa.array([None if origin is None else origin.seq for origin in origins], pa.int64()),
            pa.array([[{"key": name, "value": value} for name, value in of] for of in headers], _HEADERS),
        ],
        names=["key", "value", "timestamp", "partition", "offset", "producer", "seq", "headers"],
    )


def _cells(part: _Range, wanted: Column, cells: list[bytes | None], found: list[LogRow]) -> Any:
    try:
        return wanted.array(cells)
    except SerdeError:
        for row, cell in zip(found, cells, strict=True):
            try:
                wanted.array([cell])
            except SerdeError as error:
                raise SerdeError(
                    f"{part.partition} offset {row.offset}: {error}: to leave it out, begin again with another "
                    f'checkpointLocation and startingOffsets = {{"{part.partition.partition}": {row.offset + 1}}}, or '
                    "read the topic with a job that declares it with serde bytes",
                    partition=part.partition,
                    offset=row.offset,
                ) from error
        raise
