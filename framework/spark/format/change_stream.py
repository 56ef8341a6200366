"""``spark.readStream.format("changelog")``: committed changes of a store; offsets are checkpoints of the job.

The driver finds checkpoints that all tasks have, and says for each task which commits lie between two of them; Spark
tasks read these. Spark's checkpoint location keeps the offsets, so a query that is started again goes on exactly.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
)

from grete.api.jobs.graph import StageGraph
from grete.errors import ConfigError
from grete.ports import JobLogReader
from grete.spark.format.change_rows import StoreColumns, change_rows
from grete.spark.format.changes import (
    BEGINNING,
    ChangelogRange,
    ChangePoint,
    decode_position,
    earliest,
    later,
    position_at,
    ranges,
)
from grete.spark.format.columns import column
from grete.spark.format.following import FollowingReader, StoredOffset
from grete.spark.format.options import Options, batch_limit, find_store
from grete.spark.format.parts import Part
from grete.spark.format.reader import StatePlan, state
from grete.state.pins.pinning import check_readable
from grete.state.read.checkpoints.snapshots import Snapshot, snapshots_at

STREAM_OPTIONS = {"startingcheckpoint", "maxcheckpointsperbatch"}
_SNAPSHOT = "snapshot"  # in an offset: the first batch is a table, not changes
_WAY_ON = (
    "begin again with another checkpointLocation and startingCheckpoint = snapshot, the table as of now and then its "
    "changes, or earliest, the changes that are there"
)


class _Table(NamedTuple):
    """The store as of the end of the first batch."""

    plan: StatePlan
    snapshot: Snapshot


class ChangeStreamReader(FollowingReader):
    """Plans batches on the driver, reads their parts in the executors."""

    def __init__(self, options: Options) -> None:
        """Raise ConfigError for an option that is wrong."""
        super().__init__(options)
        self._start = _starting(options.own.get("startingcheckpoint", _SNAPSHOT))
        self._limit = batch_limit(options, "maxCheckpointsPerBatch")
        self._target: ChangePoint | None = None  # of a query that reads what is available now

    def initialOffset(self) -> StoredOffset:  # noqa: N802  # Spark's name
        """Return the offset at which a new query begins. Raises ConfigError: no such checkpoint."""
        if self._start == _SNAPSHOT:
            return BEGINNING.encode() | {_SNAPSHOT: True}
        with self.log() as log:
            stage, aligned = self._stage(log)
            if self._start == "earliest":
                found = earliest(log, self.options.job, stage, aligned=aligned)
            else:
                wanted = None if self._start == "latest" else int(self._start)
                found = position_at(log, self.options.job, stage, wanted, aligned=aligned)
        return found.encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of a batch. Spark knows no checkpoints, so one of them counts as a file."""
        return ReadAllAvailable() if self._limit is None else ReadMaxFiles(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Note where the query is to end."""
        with self.log() as log:
            self._target = self._newest(log)

    def latestOffset(self, start: StoredOffset, limit: ReadLimit) -> StoredOffset:  # noqa: N802  # Spark's name
        """Return the end of the next batch: a checkpoint that all tasks have committed."""
        at = decode_position(start)
        with self.log() as log:
            newest = self._target or self._newest(log)
            if newest.places == at.places or newest == BEGINNING or newest.checkpoint_id < at.checkpoint_id:
                return start
            if isinstance(limit, ReadMaxFiles) and _SNAPSHOT not in start:
                stage, aligned = self._stage(log)
                newest = later(log, self.options.job, stage, at, newest, limit.max_files, aligned=aligned)
        return newest.encode()

    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[Part]:
        """Plan a batch: every task of the store's stage. Raises ConfigError: trimmed, and how to go on."""
        options, last = self.options, decode_position(end)
        with self.log() as log:
            stage, aligned = self._stage(log)
            columns = _columns(options)
            if _SNAPSHOT in start:
                plan = StatePlan(last.checkpoint_id, *columns)
                found = snapshots_at(log, options.job, stage, {n: p.offset for n, p in last.places.items()})
                return [Part(options.where, number, _Table(plan, each)) for number, each in found]
            try:
                found_ranges = ranges(log, options.job, stage, decode_position(start), last)
            except ConfigError as error:
                first = earliest(log, options.job, stage, aligned=aligned)
                raise ConfigError(
                    f"{error}; the first checkpoint that changes can be read from is {first.checkpoint_id}: {_WAY_ON}"
                ) from error
        return [Part(options.where, number, (part, columns)) for number, part in found_ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of one part. Raises ConfigError: what is there is no list of changes; how to go on."""
        assert isinstance(partition, Part)
        if isinstance(partition.what, _Table):
            yield from state(partition.where, *partition.what)
            return
        part: ChangelogRange = partition.what[0]
        with closing(partition.where.open()) as log:
            try:
                yield from change_rows(log, part, partition.what[1])
            except ConfigError as error:
                raise ConfigError(f"{error}: {_WAY_ON}") from error

    def _stage(self, log: JobLogReader) -> tuple[StageGraph, bool]:
        check_readable(self.options.job, log)  # stores get the ids that their state has
        stage = find_store(self.options)[0]
        there = log.partitions(self.options.job.topology().changelog(stage.ordinal)) or 0
        if there > stage.partitions:
            raise ConfigError(
                f"stage {stage.name} has {stage.partitions} partitions in its code, and {there} in its changelog: if "
                "the job was rescaled, start the query again with the code of now: it goes on where it is",
                stage=stage.name,
            )
        return stage, self.options.is_aligned(log)

    def _newest(self, log: JobLogReader) -> ChangePoint:
        stage, aligned = self._stage(log)
        return position_at(log, self.options.job, stage, None, aligned=aligned)


def _columns(options: Options) -> StoreColumns:
    stage, store = find_store(options)
    key, value = column("key", store.key), column("value", store.value)
    return StoreColumns(stage.store_ids()[store.name], store.name, key, value, store.ttl_ms is not None)


def _starting(text: str) -> str:
    if text in (_SNAPSHOT, "earliest", "latest") or text.isdecimal():
        return text
    raise ConfigError(
        f"option startingCheckpoint = {text!r}: it is snapshot, earliest, latest, or a checkpoint, whose number "
        "grete checkpoints shows"
    )
