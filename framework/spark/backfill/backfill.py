"""``grete backfill``: a job's state from its history, by its own task classes, in Spark; live tasks go on from there.

The driver looks whether the history fits the log; then it claims every task, so nothing moves any more, and decides how
far the history goes. Executors run the tasks and write their state as attempts of a bulk write
(``grete.state.write.bulk.bulk_write``); the driver commits and decides. Before that nothing counts: a backfill that
dies is run again.
"""

import contextlib
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grete.api.jobs.definition import define, encode_definition
from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.serdes.serde import placing_of
from grete.batch.check import check_no_calls
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.execution.build import store_names, writes_outside
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord, JobLog, JobLogReader, LogReader
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.spark.backfill.account.file_rows import by_partition
from grete.spark.backfill.account.reconciled import HistoryAccount, reconciled
from grete.spark.backfill.account.seams import Seams, seams_of, sought
from grete.spark.backfill.history import TopicHistory, read_history
from grete.spark.backfill.history_checks import (
    Accepted,
    HistoryCounts,
    check_fewer,
    check_log_whole,
    check_reports,
    check_starts,
    covered_by,
    read_covered,
    taken_of,
    write_covered,
)
from grete.spark.backfill.plans import BackfilledTask, StagePlan
from grete.spark.backfill.ranges import BackfillEnd, Ends, InputRanges, check_placed, cover
from grete.spark.backfill.results import leave_files
from grete.spark.backfill.run.stages import Stages, has_one_channel
from grete.spark.backfill.schema import OUTPUT
from grete.spark.backfill.sources import LOG
from grete.spark.format.options import LogSpec
from grete.spark.spark_progress import ProgressSink, SparkProgress
from grete.state.pins.pinning import output_counts
from grete.state.pins.start_pinning import SettledStarts, know_starts
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import Snapshot
from grete.state.write.bulk.bulk_write import begin, check_begin, commit
from grete.state.write.bulk.bulk_write_attempt import BulkWrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class BackfillSpec(NamedTuple):
    """The request of a backfill. ``sources``: external topic → as ``source_of`` reads it, a data frame, or ``kafka``.

    ``columns``: topic → column of a history → its name in the source. ``work``: shared by all executors.
    """

    job: Job
    reference: str  # how executors find the code
    where: LogSpec
    settings: Settings
    sources: "Mapping[str, str | DataFrame]"
    work: str
    outputs: bool = False  # of the history are sent, too
    accepted: Accepted = Accepted()
    columns: Mapping[str, Mapping[str, str]] = {}

    @property
    def from_log(self) -> frozenset[str]:
        """The topics whose history is in the log."""
        return frozenset(topic for topic, source in self.sources.items() if isinstance(source, str) and source == LOG)


class BackfillResult(NamedTuple):
    """The result of a backfill. ``replaced``: the newest checkpoint of the state that it takes the place of."""

    checkpoint_id: int
    replaced: int | None
    cover: InputRanges
    reports: list[BackfilledTask]
    account: HistoryAccount


def backfill(
    spark: "SparkSession", wanted: BackfillSpec, until: BackfillEnd, log: JobLog, telling: ProgressSink
) -> BackfillResult:
    """Do it. The topics must be there. Raises ConfigError, TaskError, Fenced, Halted; then nothing has changed."""
    history = _history(spark, wanted, log)
    history.covered(_last_commits(log, wanted.job), until)  # a refusal fences no worker
    bulk_write = begin(log, wanted.job, wanted.settings, outputs=wanted.outputs)
    telling.say(f"every task of {wanted.job.name} is claimed: workers that were running are fenced")
    covered = history.covered([(task.wiring, task.base) for task in bulk_write.tasks], until)
    with history.work(bulk_write.bulk_write_id) as work:
        ran = history.run(covered, bulk_write.checkpoint_id, work, telling, bulk_write)
        written = [report.written for report in ran.reports if report.written is not None]
        sent = list(outputs_of(ran.stages, wanted)) if wanted.outputs else []
        changelog_positions = commit(
            log, bulk_write, written, settings=wanted.settings, full=True, external=covered.resume, outputs=sent
        )
        write_covered(JobDirectory(wanted.where.directory).history(), ran.now)
        _publish(wanted, bulk_write, changelog_positions, ran.reports, telling)
    replaced = _newest(task.base for task in bulk_write.tasks)
    return BackfillResult(bulk_write.checkpoint_id, replaced, covered, ran.reports, ran.account)


def dry_run(
    spark: "SparkSession", wanted: BackfillSpec, until: BackfillEnd, log: JobLogReader, telling: ProgressSink
) -> BackfillResult:
    """Read the history and run the tasks as ``backfill`` does, and write nothing: workers may go on meanwhile.

    Raises what a backfill would raise now; ConfigError: a stage makes calls.
    """
    check_no_calls(wanted.job.live)
    history = _history(spark, wanted, log)
    tasks = check_begin(log, wanted.job)
    covered = history.covered(tasks, until)
    replaced = _newest(base for _, base in tasks)
    checkpoint_id = max(int(time.time() * 1000), 0 if replaced is None else replaced + 1)
    with history.work(f"dry-run-{uuid.uuid4().hex}") as work:
        ran = history.run(covered, checkpoint_id, work, telling)
    return BackfillResult(checkpoint_id, replaced, covered, ran.reports, ran.account)


def _newest(bases: Iterable[Commit | None]) -> int | None:
    return max((base.checkpoint_id for base in bases if base is not None), default=None)


class _Ran(NamedTuple):
    """The results of all stages. ``now``: what the history has covered."""

    stages: Stages
    reports: list[BackfilledTask]
    account: HistoryAccount
    now: HistoryCounts


class _History(NamedTuple):
    """The history of a job, opened: what a backfill reads."""

    spark: "SparkSession"
    wanted: BackfillSpec
    log: JobLogReader
    histories: dict[str, TopicHistory]
    settled: SettledStarts

    @property
    def ends(self) -> Ends:
        """The offsets behind what files have, by topic."""
        return {topic: history.ends for topic, history in self.histories.items()}

    def covered(self, tasks: Sequence[tuple[TaskWiring, Commit | None]], until: BackfillEnd) -> InputRanges:
        """Decide how far it goes, for tasks with their last commits. Raises ConfigError: it does not fit."""
        covered = cover(self.log, tasks, self.ends, until)
        check_placed(self.log, self.wanted.job, covered, self.ends)
        check_log_whole(self.log, tasks, self.ends, self.wanted.accepted)
        return covered

    @contextlib.contextmanager
    def work(self, name: str) -> Iterator[str]:
        """Yield the folder for the records between stages; it is removed behind the block."""
        folder = f"{self.wanted.work}/{name}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(
        self,
        covered: InputRanges,
        checkpoint_id: int,
        work: str,
        telling: ProgressSink,
        bulk_write: BulkWrite | None = None,
    ) -> _Ran:
        """Run the tasks, which write as attempts of a bulk write, or nothing, and check what they have taken."""
        wanted = self.wanted
        for remark in covered.remarks:
            telling.say(remark)
        files = {topic: history.until(covered.resume, topic) for topic, history in self.histories.items()}
        seams = seams_of(self.log, wanted.job, covered, self.ends)
        outside = output_counts(wanted.job, self.log)
        plans = PlanMaker(wanted, files, covered, outside, self.settled, sought(seams))
        stages = Stages(self.spark, wanted.job, plans.histories(), work)
        with SparkProgress(self.spark, telling):
            reports = stages.run(
                lambda stage: plans.of(stage, checkpoint_id, bulk_write=bulk_write),
                lambda name: telling.say(f"stage {name} …"),
            )
        account = accounted(self.log, wanted, reports, self.histories, covered, self.settled, seams)
        now = covered_by(wanted.job, taken_of(reports), covered, self.ends)
        check_fewer(read_covered(JobDirectory(wanted.where.directory).history()), now, wanted.accepted)
        return _Ran(stages, reports, account, now)


def _history(spark: "SparkSession", wanted: BackfillSpec, log: JobLogReader) -> _History:
    """Open the history. Raises ConfigError."""
    histories = histories_of(spark, wanted)
    settled = know_starts(wanted.job, log)
    check_starts(wanted.job, settled, histories)
    return _History(spark, wanted, log, histories, settled)


def accounted(
    log: LogReader,
    wanted: BackfillSpec,
    reports: Sequence[BackfilledTask],
    histories: Mapping[str, TopicHistory],
    covered: InputRanges,
    settled: SettledStarts,
    seams: Seams,
) -> HistoryAccount:
    """Check what the tasks have taken, and return the account. Raises ConfigError, Halted."""
    ends = {topic: history.ends for topic, history in histories.items()}
    check_reports(log, wanted.job, reports, ends, seams, wanted.accepted)
    taken = by_partition(taken_of(reports))
    return reconciled(taken, histories, covered, {topic for _, topic in settled.times_ms}, seams)


def _last_commits(log: JobLog, job: Job) -> list[tuple[TaskWiring, Commit | None]]:
    """Return the tasks with their last commits of now: workers may go on."""
    found = ((wiring, last_commit(log, wiring.changelog)) for wiring in all_wirings(job))
    return [(wiring, None if last is None else last.commit) for wiring, last in found]


def _publish(
    wanted: BackfillSpec,
    bulk_write: BulkWrite,
    changelog_positions: list[ChangelogPosition],
    reports: list[BackfilledTask],
    telling: ProgressSink,
) -> None:
    """Leave the tasks' files where workers look; a failure here does not harm the bulk write."""
    job_directory = JobDirectory(wanted.where.directory)
    for report in reports:
        if report.written is not None:
            number = report.written.task
            name, stores = bulk_write.tasks[number].wiring.name, store_names(wanted.job.tasks()[number][0])
            leave_files(job_directory, name, stores, changelog_positions[number], report.built, report.files, telling)


def outputs_of(stages: Stages, wanted: BackfillSpec) -> Iterator[ExternalRecord]:
    """Yield the outputs of the tasks to the outside, task by task, in their order. Raises ConfigError: too much."""
    topology, size = stages.job.topology(), 0
    writing = [stage for stage in stages.job.live if writes_outside(stage, topology)]
    if not writing:
        return
    rows = stages.rows(OUTPUT, writing).coalesce(1).sortWithinPartitions("stage", "task", "first")
    for row in rows.select("topic", "partition", "key", "value", "timestamp", "headers").toLocalIterator():
        key, value, headers = (None if row[name] is None else bytes(row[name]) for name in ("key", "value", "headers"))
        size += len(key or b"") + len(value or b"") + len(headers or b"")
        if size > wanted.settings.uncommitted_state_bytes_max:
            raise ConfigError(
                f"--outputs: more than uncommitted_state_bytes_max = {wanted.settings.uncommitted_state_bytes_max} "
                "bytes, which go out in one transaction: raise it, or leave the outputs of the history out"
            )
        yield ExternalRecord(TopicPartition(row["topic"], row["partition"]), key, value, row["timestamp"], headers)


class PlanMaker(NamedTuple):
    """Makes the plans of the stages."""

    wanted: BackfillSpec
    files: dict[str, TopicHistory]  # by topic
    covered: InputRanges
    outside: dict[str, int]
    settled: SettledStarts
    sought: Mapping[str, frozenset[bytes]]

    def of(
        self,
        stage: StageGraph,
        checkpoint_id: int,
        *,
        bulk_write: BulkWrite | None = None,
        snapshots: tuple[Snapshot, ...] | None = None,
        is_recorded: bool = True,
        makes_calls: bool = True,
    ) -> StagePlan:
        """Return the plan of a stage whose state a bulk write writes, or compared with snapshots."""
        wanted, covered, number = self.wanted, self.covered, stage.ordinal
        topology = wanted.job.topology()
        return StagePlan(
            job=wanted.reference,
            stage=stage.ordinal,
            settings=wanted.settings,
            outside=self.outside,
            checkpoint_id=checkpoint_id,
            outputs=wanted.outputs,
            bulk_write=bulk_write,
            snapshots=snapshots,
            where=wanted.where,
            tails=covered.tails,
            begins=covered.begins,
            ends=covered.ends,
            begins_ms={topic: at for (of, topic), at in self.settled.times_ms.items() if of == number},
            tables={place: end for (of, place), end in self.settled.tables.items() if of == number},
            broadcast={topic: count for each in topology.broadcast.values() for topic, count in each.items()},
            files=frozenset(self.files),
            placed=frozenset(topic for topic, history in self.files.items() if history.ends is not None),
            from_rows=has_one_channel(wanted.job, stage),
            is_recorded=is_recorded,
            makes_calls=makes_calls,
            sought=self.sought,
            counts_alone=bulk_write is None and snapshots is None,
            definition=encode_definition(define(wanted.job, self.outside)),
            built=""
            if bulk_write is None or "://" in wanted.work
            else f"{wanted.work}/{bulk_write.bulk_write_id}/_files",
        )

    def histories(self) -> dict[int, dict[str, TopicHistory]]:
        """Return stage → topic → what its external inputs have in files."""
        topology = self.wanted.job.topology()
        return {
            stage.ordinal: {t: self.files[t] for t in topology.externals_of(stage.ordinal) if t in self.files}
            for stage in self.wanted.job.stages
        }


def histories_of(spark: "SparkSession", wanted: BackfillSpec) -> dict[str, TopicHistory]:
    """Return the history of each topic that does not come from the log. Raises ConfigError."""
    topology = wanted.job.topology()
    whole = {topic: count for counts in topology.broadcast.values() for topic, count in counts.items()}
    inputs = (each.topic for stage in wanted.job.stages for each in stage.inputs.values())
    placing = {topic.name: placing_of(topic.key) for topic in inputs}
    return {
        topic: read_history(
            spark, source, topic, whole.get(topic) or wanted.job.count_of(topic), wanted.columns.get(topic, {})
        )._replace(placing=placing.get(topic))
        for topic, source in wanted.sources.items()
        if topic not in wanted.from_log
    }
