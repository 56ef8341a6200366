"""The data sources of a job's own topics. The driver plans with a look into the log; each partition is one task."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

from grete.core.graph.task_topology import wire
from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from grete.spark.format.change_stream import STREAM_OPTIONS, ChangeStreamReader
from grete.spark.format.columns import Column, column
from grete.spark.format.following import OnDriver
from grete.spark.format.options import Options, checkpoint_of, find_store, read_options
from grete.spark.format.parts import Part
from grete.spark.format.reader import COMMITS_DDL, StatePlan, StreamPlan, commits_of, producers_of, state, stream
from grete.spark.format.stream_follower import StreamFollower
from grete.spark.format.writer import StateWriter, state_writer
from grete.state.pins.pinning import check_readable
from grete.state.read.checkpoints.snapshots import id_of_all, snapshots


class _Reader(OnDriver, DataSourceReader):
    """Reads what ``partitions`` planned. ``equal``: filters on columns that decide what is read at all."""

    def __init__(self, options: Options, *pushed: str) -> None:
        self.options = options
        self.pushed = ("partition", *pushed)
        self.equal: dict[str, Any] = {}

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Take the filters that choose partitions or the checkpoint; Spark applies the others."""
        for wanted in filters:
            if isinstance(wanted, EqualTo) and wanted.attribute[0] in self.pushed:
                known = self.equal.setdefault(wanted.attribute[0], wanted.value)
                if known == wanted.value:
                    continue
            yield wanted

    def chosen(self, number: int) -> bool:
        """Whether a partition is wanted."""
        return bool(self.equal.get("partition", number) == number)


# --- format("changelog") ---


class ChangelogSource(DataSource):
    """Committed state of one store, or, as a stream, its changes: key, value, and where each entry was written.

    Options: job, store (``stage/store`` where several stages have one), checkpoint (None: the newest that
    all tasks have committed), directory or log, kafkaConfig. A filter ``checkpoint_id = …`` is the same as the option.
    A stream takes startingCheckpoint and maxCheckpointsPerBatch instead.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "changelog"

    def schema(self) -> str:
        """Return the columns; key and value as their serdes say, JSON as its text."""
        options = read_options(self.options, self.name(), {"store", "checkpoint"} | STREAM_OPTIONS)
        _, store = find_store(options)
        columns = (column("key", store.key), column("value", store.value))
        return ", ".join(c.ddl for c in columns) + (
            ", store string, partition int, checkpoint_id bigint, written bigint, generation int, offset bigint"
        )

    def reader(self, schema: Any) -> "_StateReader":
        """Return the reader of one query."""
        return _StateReader(read_options(self.options, self.name(), {"store", "checkpoint"}), "checkpoint_id")

    def streamReader(self, schema: Any) -> ChangeStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of changes (grete.spark.format.change_stream)."""
        return ChangeStreamReader(read_options(self.options, self.name(), {"store"} | STREAM_OPTIONS))

    def writer(self, schema: Any, overwrite: bool) -> StateWriter:
        """Claim every task of the job, and return what writes (grete.spark.format.writer)."""
        return state_writer(read_options(self.options, self.name(), {"store", "offsets"}), schema, overwrite=overwrite)


class _StateReader(_Reader):
    def partitions(self) -> Sequence[Part]:
        """Plan: every task of the store's stage, at one checkpoint."""
        options = self.options
        wanted = self.equal.get("checkpoint_id", checkpoint_of(options.own.get("checkpoint")))
        log = options.where.open()
        try:
            check_readable(options.job, log)
            stage, store = find_store(options)  # with the ids that its state has
            found = snapshots(log, options.job, wanted, aligned=options.is_aligned(log))
        finally:
            log.close()
        plan = StatePlan(
            checkpoint_id=0,
            store=stage.store_ids()[store.name],
            name=store.name,
            key=column("key", store.key),
            value=column("value", store.value),
            expires=store.ttl_ms is not None,
        )
        parts = found[options.job.tasks_of(stage.ordinal)]
        checkpoint_id = wanted if isinstance(wanted, int) else id_of_all(found)
        return [
            Part(options.where, number, (plan._replace(checkpoint_id=checkpoint_id), snapshot))
            for number, snapshot in enumerate(parts)
            if self.chosen(number)
        ] or [Part(options.where, -1, None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one changelog partition."""
        assert isinstance(partition, Part)
        if partition.what is not None:
            plan, snapshot = partition.what
            yield from state(partition.where, plan, snapshot)


# --- format("commits") ---


class CommitsSource(DataSource):
    """Every valid commit that the changelogs still hold, with all that it says. Options: job, directory or log."""

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "commits"

    def schema(self) -> str:
        """Return the columns."""
        return COMMITS_DDL

    def reader(self, schema: Any) -> "_CommitsReader":
        """Return the reader of one query."""
        return _CommitsReader(read_options(self.options, self.name(), set()))


class _CommitsReader(_Reader):
    def partitions(self) -> Sequence[Part]:
        """Plan: every changelog partition."""
        options = self.options
        topology = options.job.topology()
        changelogs = [
            (stage.name, wire(topology, stage.ordinal, number))
            for stage in topology.stages
            for number in range(stage.partitions)
            if self.chosen(number)
        ]
        return [Part(options.where, number, what) for number, what in enumerate(changelogs)] or [
            Part(options.where, -1, None)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one changelog partition."""
        assert isinstance(partition, Part)
        if partition.what is not None:
            yield from commits_of(partition.where, *partition.what)


# --- format("stream") ---


class StreamSource(DataSource):
    """The committed records that a stream between two stages still holds. Options: job, topic, directory or log.

    What every consumer has committed is trimmed (K3), after the setting ``stream_retention_ms``, so this is the recent
    part. ``topic``: the name in the job's code, or ``producer/topic/consumer`` where several stages write or read it.
    A stream takes startingOffsets, too.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "stream"

    def schema(self) -> str:
        """Return the columns; key and value as their serdes say."""
        key, value = _topic_columns(read_options(self.options, self.name(), {"topic", "startingoffsets"}))[1:]
        return (
            f"{key.ddl}, {value.ddl}, timestamp timestamp, partition int, producer string, checkpoint_id bigint, "
            "seq bigint"
        )

    def reader(self, schema: Any) -> "_StreamReader":
        """Return the reader of one query."""
        return _StreamReader(read_options(self.options, self.name(), {"topic"}))

    def streamReader(self, schema: Any) -> StreamFollower:  # noqa: N802  # Spark's name
        """Return the reader of what is committed from now on (grete.spark.format.stream_follower)."""
        options = read_options(self.options, self.name(), {"topic", "startingoffsets"})
        return StreamFollower(options, *_topic_columns(options))


class _StreamReader(_Reader):
    def partitions(self) -> Sequence[Part]:
        """Plan: every partition of the stream, up to its present end."""
        options = self.options
        stream, key, value = _topic_columns(options)
        log = options.where.open()
        try:
            producers = producers_of(log, options.job, stream)
            aligned = options.is_aligned(log)
        finally:
            log.close()
        plan = StreamPlan(key, value, producers, aligned=aligned)
        return [
            Part(options.where, number, (plan, TopicPartition(stream.topic, number)))
            for number in range(stream.partitions)
            if self.chosen(number)
        ] or [Part(options.where, -1, None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one partition."""
        assert isinstance(partition, Part)
        if partition.what is not None:
            yield from stream(partition.where, *partition.what)


def _topic_columns(options: Options) -> tuple[Any, Column, Column]:
    """Return (stream, key column, value column) that option topic names. Raises ConfigError listing all there are."""
    job, wanted = options.job, options.own.get("topic", "")
    topology = job.topology()
    names = {s.topic: _stream_name(options, s) for s in topology.streams}
    found = [s for s in topology.streams if wanted in (s.user_topic, names[s.topic])]
    if len(found) != 1:
        reason = "is missing" if not wanted else f"= {wanted!r}: {'several are' if found else 'no stream is'} called so"
        raise ConfigError(f"option topic {reason}: job {job.name!r} has {', '.join(names.values()) or 'no streams'}")
    topic = next(t for t in job.stages[found[0].consumer].topics_read() if t.name == found[0].user_topic)
    return found[0], column("key", topic.key), column("value", topic.value)


def _stream_name(options: Options, stream: Any) -> str:
    stages = options.job.stages
    return f"{stages[stream.producer].name}/{stream.user_topic}/{stages[stream.consumer].name}"
