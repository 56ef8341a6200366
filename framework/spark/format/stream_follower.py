"""``spark.readStream.format("stream")``: the records of a stream between two stages, each once it is committed.

An offset of the query is what the stream's producers have committed: by task the number of its next record in each
partition. So a batch is the same records whenever it is read, and one that has been trimmed is missed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from grete.core.graph.task_topology import TaskWiring
from grete.core.graph.topology import Stream
from grete.errors import ConfigError
from grete.logs.partition_reader import rows_left
from grete.ports import JobLogReader
from grete.protocol.ids import TopicPartition, producer_id
from grete.spark.format.columns import Column
from grete.spark.format.following import FollowingReader, StoredOffset
from grete.spark.format.options import Options, starting_offsets
from grete.spark.format.parts import Part, wait_for_end
from grete.spark.format.reader import FrameReader, Producer, StreamPlan
from grete.state.pins.pinning import check_readable
from grete.state.read.checkpoints.commit_search import last_at_most
from grete.state.read.checkpoints.commits import all_wirings, ends_of, newest_commit

NextSeqs = dict[str, dict[str, int]]  # producer id → partition → number of its next record, as JSON has it
_FIRST_SEQ = 1  # of every producer in every partition


class _FollowPlan(NamedTuple):
    """The records of one partition that a batch has."""

    plan: StreamPlan
    partition: TopicPartition
    begin: int  # none of them is before it
    end: int  # of the partition, when all of them were there


class StreamFollower(FollowingReader):
    """Plans batches on the driver, reads their parts in the executors."""

    def __init__(self, options: Options, stream: Stream, key: Column, value: Column) -> None:
        """Raise ConfigError for an option that is wrong."""
        super().__init__(options)
        self._stream, self._columns = stream, (key, value)
        self._start = starting_offsets(options)
        if isinstance(self._start, dict):
            raise ConfigError("option startingOffsets: of a stream it is earliest or latest")
        self._target: StoredOffset | None = None  # of a query that reads what is available now

    def initialOffset(self) -> StoredOffset:  # noqa: N802  # Spark's name
        """Return the offset at which a new query begins. Raises ConfigError: the job is at least once."""
        with self.log() as log:
            producers, seqs = self._committed(log)
            if self._start == "earliest":
                for number in range(self._stream.partitions):
                    self._first(log, TopicPartition(self._stream.topic, number), producers, seqs)
        return _encode({} if self._start == "earliest" else producers, seqs)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Note where the query is to end."""
        with self.log() as log:
            self._target = _encode(*self._committed(log))

    def latestOffset(self, start: StoredOffset, limit: ReadLimit) -> StoredOffset:  # noqa: N802  # Spark's name
        """Return the end of the next batch: what the producers have committed."""
        if (newest := self._target) is None:
            with self.log() as log:
                newest = _encode(*self._committed(log))
        return start if _decode(newest) == _decode(start) else newest

    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[Part]:
        """Plan a batch: every partition that has new records. Raises ConfigError: the log of another job."""
        known, last, parts = _decode(start), _decode(end), list[Part]()
        with self.log() as log:
            producers, _ = self._committed(log)
            consumers = all_wirings(self.options.job)[self.options.job.tasks_of(self._stream.consumer)]
            for number in range(self._stream.partitions):
                partition = TopicPartition(self._stream.topic, number)
                seqs = {
                    int(producer): range(known.get(producer, {}).get(str(number), _FIRST_SEQ), of[str(number)])
                    for producer, of in last.items()
                    if str(number) in of  # else the batch is of before a rescale
                }
                for producer, wanted in seqs.items():
                    if wanted.stop < wanted.start or producer not in producers:
                        raise ConfigError(
                            f"{partition}: its producer has committed less than this query has read: this is the log "
                            "of another job; begin again with another checkpointLocation",
                            partition=partition,
                        )
                seqs = {producer: wanted for producer, wanted in seqs.items() if wanted}
                if seqs:
                    plan = StreamPlan(*self._columns, producers, aligned=True, seqs=seqs)
                    begin = _begin(log, consumers[number], partition, start["checkpoint_id"], seqs)
                    follow = _FollowPlan(plan, partition, begin, log.bounds(partition)[1])
                    parts.append(Part(self.options.where, number, follow))
        return parts

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one partition. Raises ConfigError: records are trimmed; how to go on."""
        assert isinstance(partition, Part)
        plan, at, begin, end = partition.what
        with closing(partition.where.open()) as log:
            wait_for_end(log, at, end)
            frames = FrameReader(plan, at)
            for row in rows_left(log, at, begin, end):
                batch = frames.batch(row.offset, row.value or b"")
                if batch is not None:
                    yield batch
            frames.finish()

    def _committed(self, log: JobLogReader) -> tuple[dict[int, Producer], NextSeqs]:
        """Return the producers that have committed, and the numbers of what they will send next."""
        options, stream = self.options, self._stream
        check_readable(options.job, log)
        there = log.partitions(stream.topic) or 0
        if there > stream.partitions:
            raise ConfigError(
                f"{stream.topic} has {stream.partitions} partitions in the job's code, and {there} in the log: if the "
                "job was rescaled, start the query again with the code of now: it goes on where it is",
                topic=stream.topic,
            )
        if not options.is_aligned(log):
            raise ConfigError(
                f"job {options.job.name!r} runs at least once: nothing tells which records of a stream will stay: let "
                "the stage send them to an output, and follow that with format topic"
            )
        ids = {producer_id(stream.producer, n) for n in range(options.job.stages[stream.producer].partitions)}
        producers: dict[int, Producer] = {}
        seqs: NextSeqs = {}
        wirings = {wiring.changelog: wiring for wiring in all_wirings(options.job) if wiring.producer in ids}
        for changelog, bounds in ends_of(log, wirings):
            wiring = wirings[changelog]
            last = newest_commit(log, wiring, bounds)
            if last is not None:
                commit = last.commit
                producers[wiring.producer] = Producer(wiring.name, commit.checkpoint_id, commit.rollback_history)
                own = {str(o.partition): o.next_seq for o in commit.outputs if o.topic == stream.topic}
                seqs[str(wiring.producer)] = {str(n): own.get(str(n), _FIRST_SEQ) for n in range(stream.partitions)}
        return producers, seqs

    def _first(
        self, log: JobLogReader, partition: TopicPartition, producers: dict[int, Producer], seqs: NextSeqs
    ) -> None:
        """Set the numbers of a partition to those of the first committed records that are there."""
        frames, number = (
            FrameReader(StreamPlan(*self._columns, producers, aligned=True), partition),
            partition.partition,
        )
        found = dict[int, int]()
        for row in rows_left(log, partition, *log.bounds(partition)):
            first = frames.first_seq(row.offset, row.value or b"")
            if first is not None:
                found.setdefault(first[0], first[1])
        for producer, seq in found.items():
            of = seqs[str(producer)]
            of[str(number)] = min(of[str(number)], seq)


def _begin(
    log: JobLogReader,
    consumer: TaskWiring,
    partition: TopicPartition,
    checkpoint_id: int,
    seqs: Mapping[int, range],
) -> int:
    """Return an offset before which no wanted record is: a commit of the consumer says up to which it has them all."""
    first, at = log.bounds(partition)[0], last_at_most(log, consumer, checkpoint_id)
    for read in () if at is None else at.commit.inputs:
        if (read.topic, read.partition) == partition and all(
            channel.seq < seqs[channel.producer].start for channel in read.channels if channel.producer in seqs
        ):
            return max(first, read.resume)
    return first


def _encode(producers: Mapping[int, Producer], seqs: NextSeqs) -> StoredOffset:
    """Return an offset: ``checkpoint_id`` is one that all producers have, a hint where the next batch begins."""
    checkpoint_id = min((each.checkpoint_id for each in producers.values()), default=-1)
    return {"format": 1, "checkpoint_id": checkpoint_id, "next_seqs": seqs}


def _decode(stored: StoredOffset) -> NextSeqs:
    """Return the parsed offset. Raises ConfigError: of a newer build."""
    if stored.get("format") != 1:
        raise ConfigError(f"an offset of format {stored.get('format')}, this build reads 1: upgrade before reading")
    return dict(stored["next_seqs"])
