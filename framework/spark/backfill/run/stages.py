"""All stages of a job over its history, on Spark: a task runs in an executor, its records go to the next stage.

What a stage gives is written down (Parquet in a working directory that all executors share) before the next one reads
it: user code may give something else when it runs again, and the state of one attempt must not meet another's output.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from grete import errors
from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.batch.channels import channels_of, stages_in_order
from grete.halts import HaltCode
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.history import TopicHistory
from grete.spark.backfill.plans import BackfilledTask, StagePlan
from grete.spark.backfill.run.carried_errors import carried, unpacked
from grete.spark.backfill.run.executor import cut_pieces, record_times, run_stage
from grete.spark.backfill.schema import DDL, FRAME, PIECE, REPORT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ADAPTIVE = "spark.sql.adaptive.enabled"
_PIECE_COLUMNS = ["topic", "partition", "start", "channel", "first", "value", "offsets", "refused"]

Histories = Mapping[int, dict[str, TopicHistory]]  # stage ordinal → topic → of its external inputs that come from files
Progress = Callable[[str, int, int], None]  # what, done, total


class Stages(NamedTuple):
    """A job's history, ready to be run."""

    spark: "SparkSession"
    job: Job
    histories: Histories
    work: str  # a directory that all executors share

    def run(
        self,
        plan_of: Callable[[StageGraph], StagePlan],
        done: Callable[[str], None],
        *,
        left_out: Collection[str] = (),
    ) -> list[BackfilledTask]:
        """Run stage by stage; return every task's report. Raises what a task raises.

        ``done`` is told of each stage. ``left_out``: stages that do not run; none of the others reads of them.
        """
        ran = [stage for stage in stages_in_order(self.job) if stage.name not in left_out]
        for stage in ran:
            plan = plan_of(stage)
            done(stage.name)
            with unpacked(), every_task(self.spark):
                self._input(stage, plan).mapInArrow(_runner(plan), DDL).write.partitionBy("kind").parquet(
                    self._path(stage), mode="overwrite"
                )
        return self._reports(ran)

    def rows(self, kind: int, stages: Sequence[StageGraph]) -> "DataFrame":
        """Return the rows of one kind that the stages have given; ``stage`` is an ordinal."""
        read = self.spark.read.schema(f"{DDL}, stage int").option("basePath", self.work)
        return read.parquet(*map(self._path, stages)).where(f"kind = {kind}")

    def _path(self, stage: StageGraph) -> str:
        return f"{self.work}/stage={stage.ordinal}"

    def _reports(self, stages: Sequence[StageGraph]) -> list[BackfilledTask]:
        reports: list[BackfilledTask] = []
        found = self.rows(REPORT, stages).select("stage", "value").collect()
        for stage in stages:
            own = [msgspec.json.decode(bytes(row[1]), type=BackfilledTask) for row in found if row[0] == stage.ordinal]
            missing = set(range(stage.partitions)) - {report.task for report in own}
            if missing or len(own) != stage.partitions:
                raise errors.Halted(
                    f"stage {stage.name}: {len(own)} reports of {stage.partitions} tasks: {missing}",
                    code=HaltCode.BACKFILL_INCOMPLETE,
                )
            reports += own
        return reports

    def _input(self, stage: StageGraph, plan: StagePlan) -> "DataFrame":
        """Return the rows that the tasks of a stage read from Spark: a partition each, in order."""
        from pyspark.sql import functions as f

        job, histories, number = self.job, self.histories.get(stage.ordinal, {}), stage.partitions
        if plan.from_rows and not histories:
            return self.spark.range(0, number, 1, number).where(
                "id < 0"
            )  # the log's records are read where they are used
        if plan.from_rows:
            ((topic, history),) = histories.items()
            return history.by_partition(number, record_times(plan, job, topic))
        whole = job.topology().broadcast.get(stage.ordinal, {})
        parts = [
            history.by_partition(whole.get(topic) or job.count_of(topic), record_times(plan, job, topic))
            .mapInArrow(_cutter(plan, topic, task, number), DDL)
            .where(f"kind = {PIECE}")
            .select(*_PIECE_COLUMNS)
            for topic, history in histories.items()
            for task in (range(number) if topic in whole else [None])  # a broadcast one is cut for each task
        ]
        if len(parts) > 1:  # in a union Spark numbers the partitions of all its parts: each is cut before it
            parts = [part.repartitionById(number, f.col("partition")) for part in parts]
        for stream in job.topology().streams_into(stage.ordinal):
            frames = self.rows(FRAME, [job.stages[stream.producer]]).where(f.col("topic") == stream.topic)
            parts.append(frames.select(*_PIECE_COLUMNS))
        if not parts:
            return self.spark.range(0, number, 1, number).where("id < 0").select(*_no_pieces())
        pieces = parts[0]
        for part in parts[1:]:
            pieces = pieces.unionByName(part)
        return pieces.repartitionById(number, f.col("partition")).sortWithinPartitions("start", "channel", "first")


@contextmanager
def every_task(spark: "SparkSession") -> Iterator[None]:
    """Keep Spark from leaving out tasks whose input is empty (adaptive execution does): each must write its state."""
    before = spark.conf.get(_ADAPTIVE)
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before or "true")


def has_one_channel(job: Job, stage: StageGraph) -> bool:
    """Tell whether each task of a stage reads its partition of one external input and nothing else."""
    channels = channels_of(job.topology(), stage.ordinal, 0)
    return len(channels) == 1 and next(iter(channels.values())) < 0 and not stage.topics_broadcast()


def _no_pieces() -> list[str]:
    kinds = dict(field.split() for field in DDL.split(", "))
    return [f"cast(null as {kinds[name]}) {name}" for name in _PIECE_COLUMNS]


def _runner(plan: StagePlan) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with carried():
            yield from run_stage(plan, context.partitionId(), int(context.taskAttemptId()) + 1, batches)

    return run


def _cutter(plan: StagePlan, topic: str, task: int | None, tasks: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the cut of a partition's rows for a task; None: the one of ``tasks`` that reads it live (A2f)."""

    def cut(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        with carried():
            number = context.partitionId()
            reader = number % tasks if task is None else task
            yield from cut_pieces(plan, TopicPartition(topic, number), reader, batches)

    return cut
