"""Moves the state of a whole job on Spark: ``grete rescale`` and ``grete fork`` with ``--spark``.

One Spark task reads each changelog, Spark brings the rows of each key to the task that gets them and sorts them, one
Spark task folds them and writes each task of the new job. All of it but the writing is done before any task is claimed,
and kept on the executors' disks: they compute what they have lost again, and get the same, as a snapshot never changes.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec

from grete.errors import ConfigError, Halted
from grete.halts import HaltCode
from grete.job.directory import JobDirectory
from grete.protocol.changelog_position import ChangelogPosition
from grete.spark.backfill.results import leave_files
from grete.spark.backfill.run.carried_errors import carried, unpacked
from grete.spark.backfill.run.stages import every_task
from grete.spark.format.options import LogSpec
from grete.spark.moving.fold import FOLDED, FoldReport, fold
from grete.spark.moving.rows import ROUTED, routed
from grete.spark.moving.write import WritePlan, WriteReport, write
from grete.spark.session import local_session
from grete.spark.spark_progress import ProgressSink, SparkProgress
from grete.state.write.bulk.bulk_write_attempt import AttemptData, BulkWrite
from grete.state.write.moving.routes import Route, check_seen, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Arrow = Iterable[Any]  # record batches


class SparkMover:
    """A Mover (grete.state.write.moving.mover). Spark starts when there is work; ``with`` frees what it holds."""

    def __init__(self, cluster: str, log: LogSpec, into: LogSpec, work: str | None, telling: ProgressSink) -> None:
        """``log`` is that of the job whose state it is, ``into`` that of the bulk write.

        ``work``: a folder that all executors see, for files; None: one below the directory of the job that is written.
        """
        self._cluster, self._log, self._into, self._telling = cluster, log, into, telling
        self._work = str(into.directory / "spark") if work is None else work
        self._built = ""
        self._routes: Sequence[Route] = ()
        self._folded: DataFrame | None = None
        self._reports: list[FoldReport] = []
        self._written: list[tuple[str, Route, WriteReport]] = []  # name of the task, a route to it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free what the executors keep, and delete the files that no worker gets."""
        self._free()
        if self._built:
            shutil.rmtree(self._built, ignore_errors=True)

    def check(self, routes: Sequence[Route], *, assume_keyed: bool) -> None:
        """As of Mover."""
        self._fold(routes)
        seen, apart = Counter[str](), set[str]()
        for report in self._reports:
            if report.wrong is not None:
                raise ConfigError.from_plain(report.wrong)
            route = _route_to(routes, report.task)
            seen += Counter({f"{route.stage}/{route.stores[store]}": keys for store, keys in report.seen.items()})
            apart |= {route.stage} if report.apart else set()
        check_seen(routes, seen, apart, assume_keyed=assume_keyed)

    def write(self, routes: Sequence[Route], bulk_write: BulkWrite) -> tuple[list[AttemptData], Counter[str]]:
        """As of Mover. Raises Fenced: another process has claimed a task."""
        self._fold(routes)
        assert self._folded is not None
        if "://" not in self._work:
            self._built = f"{self._work}/{bulk_write.bulk_write_id}"
        tasks = range(_count(routes))
        stores = {task: sorted(_route_to(routes, task).stores) for task in tasks}
        plan = WritePlan(self._into, bulk_write, stores, self._built)
        rows = self._folded.where("report is null").select("store", "key", "value")
        with self._working():
            found = rows.mapInArrow(self.writer(plan), "report binary").collect()
        written = [msgspec.json.decode(bytes(row[0]), type=WriteReport) for row in found]
        _check_all(tasks, [each.written.task for each in written])
        self._written = [
            (bulk_write.tasks[each.written.task].wiring.name, _route_to(routes, each.written.task), each)
            for each in written
        ]
        entries = Counter[str]()
        for report in self._reports:
            entries += counted(_route_to(routes, report.task), report.counts)
        return [each.written for each in written], entries

    def committed(self, changelog_positions: Sequence[ChangelogPosition]) -> None:
        """Leave the files where the tasks' workers look."""
        job_directory = JobDirectory(self._into.directory)
        for name, route, report in self._written:
            position = changelog_positions[report.written.task]
            leave_files(job_directory, name, route.stores, position, report.built, report.files, self._telling)

    def writer(self, plan: WritePlan) -> Callable[[Arrow], Iterator[Any]]:
        """Return the writer of a task in an executor; a test may let something befall it."""
        return _writer(plan)

    def _fold(self, routes: Sequence[Route]) -> None:
        """Fold the state along these routes, unless that is done."""
        if self._folded is not None and self._routes == routes:
            return
        from pyspark import StorageLevel

        self._free()
        count, tasks = len(routes), _count(routes)
        with self._working() as spark:
            numbers = spark.range(0, count, 1, count)
            rows = numbers.mapInArrow(_reader(self._log, list(routes)), ROUTED).repartitionById(tasks, "task")
            ordered = rows.sortWithinPartitions("store", "key", "source", "place")
            self._folded = ordered.mapInArrow(_folder(list(routes)), FOLDED).persist(StorageLevel.DISK_ONLY)
            found = self._folded.where("report is not null").select("report").collect()
        self._reports = [msgspec.json.decode(bytes(row[0]), type=FoldReport) for row in found]
        _check_all(range(tasks), [report.task for report in self._reports])
        self._routes = routes

    def _free(self) -> None:
        if self._folded is not None:
            self._folded.unpersist()
            self._folded = None

    @contextmanager
    def _working(self) -> Iterator["SparkSession"]:
        """Yield the session, in which each partition has a task, and raise what an executor has raised."""
        spark = local_session(self._cluster)
        with unpacked(), every_task(spark), SparkProgress(spark, self._telling):
            yield spark


def _count(routes: Sequence[Route]) -> int:
    return max(route.first + route.partitions for route in routes)


def _routes_to(routes: Sequence[Route], task: int) -> list[Route]:
    """Return the routes to the stage that has a task of the new job."""
    return [route for route in routes if route.first <= task < route.first + route.partitions]


def _route_to(routes: Sequence[Route], task: int) -> Route:
    return _routes_to(routes, task)[0]


def _check_all(tasks: range, found: Sequence[int]) -> None:
    """Hold the reports against the tasks: one of each."""
    if sorted(found) != list(tasks):
        raise Halted(
            f"Spark has reported of the tasks {sorted(found)}, need each of {tasks} once: run it again",
            code=HaltCode.BACKFILL_INCOMPLETE,
        )


# --- In executors: functions that Spark carries there ---


def _reader(where: LogSpec, routes: Sequence[Route]) -> Callable[[Arrow], Iterator[Any]]:
    def read(batches: Arrow) -> Iterator[Any]:
        with carried():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from routed(where, routes[number])

    return read


def _folder(routes: Sequence[Route]) -> Callable[[Arrow], Iterator[Any]]:
    def run(batches: Arrow) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        with carried():
            yield from fold(_routes_to(routes, task), task, batches)

    return run


def _writer(plan: WritePlan) -> Callable[[Arrow], Iterator[Any]]:
    def run(batches: Arrow) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with carried():
            report = write(plan, context.partitionId(), int(context.taskAttemptId()) + 1, batches)
        yield pa.RecordBatch.from_pydict({"report": pa.array([msgspec.json.encode(report)], pa.binary())})

    return run
