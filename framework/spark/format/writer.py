"""``df.write.format("changelog")``: state into changelogs, all of it or nothing of it.

The driver claims every task when the query is planned, Spark tasks write data as attempts, the driver commits the
attempts that Spark names, and decides. What else was written – by retries, by a speculative twin, by an executor that
was thought dead – is data of attempts that no commit names.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from grete.api.serdes.serde import placing_in_store
from grete.errors import ConfigError
from grete.job.metadata import guarantee_entry
from grete.job.topics import create_topics
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.format.columns import Column, column, key_column
from grete.spark.format.options import LogSpec, Options, find_store, know_serdes, read_options
from grete.state.pins.graph_pinning import check_graph
from grete.state.pins.pinning import check_definition, pin_definition
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.write.bulk.bulk_write import abort, begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt, AttemptData, BulkWrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_DRIVER = (1 << 31) - 1  # an attempt of the driver itself; Spark's never come so far
_ENCODED = {"stage": "string", "store": "string", "partition": "int", "key": "binary", "value": "binary"}


class Target(NamedTuple):
    """Destination of rows: one store with its serdes, or, if they are encoded, all stores by name."""

    key: Column
    value: Column
    store: tuple[range, int] | None  # (the tasks of its stage in BulkWrite.tasks, store id)
    stages: dict[str, tuple[range, dict[str, int]]]  # name → (its tasks in BulkWrite.tasks, store name → id)
    resets: tuple[tuple[int, ...], ...]  # by task: the stores that start empty


@dataclass
class TaskWrites(WriterCommitMessage):
    """The rows that one Spark task has written, by task of the job."""

    written: tuple[AttemptData, ...]


class StateWriter(DataSourceArrowWriter):
    """One bulk write. Made and ended on the driver; ``write`` runs in the executors."""

    def __init__(
        self,
        where: LogSpec,
        bulk_write: BulkWrite,
        target: Target,
        settings: Settings,
        external: dict[TopicPartition, int],
        *,
        full: bool,
    ) -> None:
        self._where, self._bulk_write, self._target, self._full = where, bulk_write, target, full
        self._settings, self._external = settings, external

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskWrites:
        """Write the rows of one Spark task as an attempt: one Spark task for each partition of the job."""
        context = TaskContext.get()
        assert context is not None
        number = context.taskAttemptId() + 1  # 0 is the driver's
        log = self._where.open_to_write()
        attempts: dict[int, Attempt] = {}
        try:
            for batch in iterator:
                for task, stores, keys, values in rows_of(self._target, batch):
                    if task not in attempts:
                        attempts[task] = Attempt(log, self._bulk_write, task, number, self._target.resets[task])
                    attempts[task].add(stores, keys, values)
            return TaskWrites(tuple(attempt.close() for attempt in attempts.values()))
        finally:
            log.close()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the data of the attempts that Spark chose, and write the outcome."""
        written = [each for message in messages if isinstance(message, TaskWrites) for each in message.written]
        log = self._where.open_to_write()
        try:
            resets = self._target.resets
            silent = {task for task, reset in enumerate(resets) if reset} - {each.task for each in written}
            attempts = (Attempt(log, self._bulk_write, task, _OF_DRIVER, resets[task]) for task in sorted(silent))
            written += [attempt.close() for attempt in attempts]  # nothing of the new state is there: that is said, too
            commit(log, self._bulk_write, written, settings=self._settings, full=self._full, external=self._external)
        finally:
            log.close()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing but an invalid tail."""
        log = self._where.open_to_write()
        try:
            abort(log, self._bulk_write)
        finally:
            log.close()


def state_writer(options: Options, schema: Any, *, overwrite: bool) -> StateWriter:
    """Check the columns, claim every task, and return the writer. Raises ConfigError, Halted, Fenced."""
    job = options.job
    log = options.where.open_to_write(create=True)
    try:
        check_definition(job, log)
        target = _target(options, schema, overwrite=overwrite)
        settings = options.settings(log)
        check_graph(job, log)
        create_topics(job, log, None if options.where.embedded else ())
        metadata = log.open_metadata(job.name)
        pin_definition(job, log, metadata, None, guarantee_entry(metadata, job.name, settings, job.modes))
        external = _offsets(options)
        for partition, offset in external.items():
            if not log.bounds(partition)[0] <= offset <= log.bounds(partition)[1]:
                raise ConfigError(
                    f"option offsets: {partition} {offset} is outside of {log.bounds(partition)}",
                    partition=partition,
                    offset=offset,
                )
        bulk_write = begin(log, job, settings)
    finally:
        log.close()
    return StateWriter(options.where, bulk_write, target, settings, external, full=overwrite and target.store is None)


def _target(options: Options, schema: Any, *, overwrite: bool) -> Target:
    job = options.job
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    tasks = range(len(job.tasks()))
    stages = {stage.name: (tasks[job.tasks_of(stage.ordinal)], stage.store_ids()) for stage in job.stages}
    key, value = Column("key", "bytes"), Column("value", "bytes")
    store, wanted = None, dict(_ENCODED)
    resets = tuple(tuple(sorted(stage.store_ids().values())) for stage, _ in job.tasks())
    if "store" in options.own:
        stage, declared = find_store(options)
        if declared.ttl_ms is not None:
            raise ConfigError(
                f"store {stage.name}/{declared.name} has ttl_ms = {declared.ttl_ms}: its entries live from the "
                "timestamp of the record that put them, and rows of a DataFrame have none: build the state from the "
                "job's inputs, with grete backfill",
                stage=stage.name,
            )
        key, value = key_column(options.own["job"], job, stage.name, declared), column("value", declared.value)
        store = stages[stage.name][0], stage.store_ids()[declared.name]
        wanted = {"partition": "int", key.name: key.type, value.name: value.type}
        own, store_id = store
        resets = tuple((store_id,) if task in own else () for task in tasks)
    if found != wanted:
        raise ConfigError(
            f"format changelog: columns {_ddl(found)}; it takes {_ddl(wanted)}: grete.spark.partitioned adds "
            "the partition, from the key"
        )
    if not overwrite:
        resets = ((),) * len(resets)
    return Target(key, value, store, stages, resets)


def _ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))


def _offsets(options: Options) -> dict[TopicPartition, int]:
    """Return option offsets, as {"topic": {"0": 12}}: the first records that are not included. Raises ConfigError."""
    known = {partition for wiring in all_wirings(options.job) for partition in wiring.external}
    try:
        given = json.loads(options.own.get("offsets", "{}"))
        found = {TopicPartition(topic, int(p)): int(o) for topic, each in given.items() for p, o in each.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f'option offsets: {error}: write {{"topic": {{"0": 12, "1": 15}}}}') from error
    if not found.keys() <= known or min(found.values(), default=0) < 0:
        raise ConfigError(f"option offsets: the job reads {', '.join(map(str, sorted(known)))} from outside: {found}")
    return found


def rows_of(
    target: Target, batch: pa.RecordBatch
) -> Iterator[tuple[int, Sequence[int], list[bytes], list[bytes | None]]]:
    """Yield (task, store ids, keys, values) of a batch, by task. Raises ConfigError for a row that fits nowhere."""
    keys = target.key.cells(batch.column("key"))
    values = target.value.cells(batch.column("value"))
    numbers = batch.column("partition").to_pylist()
    if None in keys:
        raise ConfigError("a key is null: each row of state has one")
    if target.store is not None:
        own, store_id = target.store
        tasks, stores = [_task_of(own, number) for number in numbers], [store_id] * len(keys)
    else:
        tasks, stores = [], []
        names = zip(batch.column("stage").to_pylist(), batch.column("store").to_pylist(), numbers, strict=True)
        for stage, store, number in names:
            own, ids = target.stages.get(stage, (range(0), {}))
            if store not in ids:
                raise ConfigError(f"there is no store {stage}/{store}: the job has {sorted(target.stages)}")
            tasks.append(_task_of(own, number))
            stores.append(ids[store])
    if len(set(tasks)) == 1:
        yield tasks[0], stores, [key for key in keys if key is not None], values
        return
    for task in sorted(set(tasks)):
        at = [index for index, each in enumerate(tasks) if each == task]
        yield task, [stores[i] for i in at], [keys[i] or b"" for i in at], [values[i] for i in at]


def _task_of(own: range, number: int | None) -> int:
    """Return the task of a stage's partition. ``own``: the tasks of the stage. Raises ConfigError: it has none such."""
    if number is None or not 0 <= number < len(own):
        raise ConfigError(
            f"partition {number} is not one of 0 to {len(own) - 1}: is the number of partitions another one now?"
        )
    return own[number]


def partitioned(frame: "DataFrame", **options: str) -> "DataFrame":
    """Return a table of key and value with its partition, in one Spark task for each: as ``format`` takes it.

    ``options``: those of the format, store among them. The partition is that of the key, by murmur2 as everywhere, and
    of a Key that of its first part.
    """
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.functions import arrow_udf

    read = read_options(options, "changelog", {"store", "offsets"})
    know_serdes(read)
    stage, store = find_store(read)
    key, count = key_column(read.own["job"], read.job, stage.name, store), stage.partitions
    placing = placing_in_store(store.key)

    def number(keys: pa.Array) -> pa.Array:
        cells = key.cells(keys)
        placed = cells if placing is None else [None if cell is None else placing(cell) for cell in cells]
        return pa.array([0 if cell is None else partition_of(cell, count) for cell in placed], pa.int32())

    number.__annotations__ = {"keys": pa.Array, "return": pa.Array}  # Spark looks at them, and wants no text
    place = arrow_udf(number, "int")  # type: ignore[call-overload]  # Arrow's own types
    numbered = frame.select("key", "value").withColumn("partition", place(col("key")))
    return numbered.repartitionById(count, col("partition"))
