"""``grete audit``: the state of each task, recomputed in batch from its recorded inputs, against its changelog."""

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from grete.api.jobs.job import Job
from grete.batch.check import check_calls, left_out
from grete.errors import ConfigError
from grete.ports import JobLogReader, LogReader
from grete.protocol.ids import split_producer_id
from grete.spark.backfill.account.reconciled import HistoryAccount
from grete.spark.backfill.account.recount import Recount
from grete.spark.backfill.account.seams import seams_of, sought
from grete.spark.backfill.backfill import BackfillSpec, PlanMaker, accounted, histories_of
from grete.spark.backfill.history_checks import check_starts
from grete.spark.backfill.plans import BackfilledTask, TaskInput
from grete.spark.backfill.ranges import check_placed, cover
from grete.spark.backfill.run.stages import Stages
from grete.spark.backfill.schema import STATE
from grete.spark.spark_progress import ProgressSink, SparkProgress
from grete.state.pins.pinning import output_counts
from grete.state.pins.start_pinning import know_starts
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import Snapshot, snapshots
from grete.state.write.bulk.bulk_write import check_used_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_MAX = 100  # differences that a person can look at
_UNRECORDED = (
    "the changelogs do not hold all input decisions any more (setting changelog_retention_ms): deterministic tasks "
    "take their inputs in the order of time, so state that depends on the order may differ"
)


class StateDifference(NamedTuple):
    """A key that differs: None where it is missing."""

    stage: str
    partition: int
    store: str
    key: bytes
    found: bytes | None  # in the changelog
    expected: bytes | None  # recomputed


class Audited(NamedTuple):
    """The result of an audit: the number of keys that differ, and the first of them. ``left_out``: stage → why.

    ``account``: what was taken of the history.
    """

    checkpoint_id: int
    reports: list[BackfilledTask]
    wrong: int
    differences: list[StateDifference]
    left_out: dict[str, str]
    account: HistoryAccount


def audit(
    spark: "SparkSession",
    wanted: BackfillSpec,
    log: JobLogReader,
    telling: ProgressSink,
    *,
    aligned: bool,
    makes_calls: bool = False,
) -> Audited:
    """Recompute and compare, at the newest checkpoint that every task has committed; the job may run meanwhile.

    SQL counts the files again. A stage whose state depends on what no log holds is left out. ``makes_calls`` whose
    results are not recorded. Raises ConfigError: there is no such checkpoint, or its inputs are not there any more, or
    calls, or no stage is left; TaskError; Halted: the files were misread.
    """
    job = wanted.job
    histories = histories_of(spark, wanted)
    found = snapshots(log, job, aligned=aligned)
    tasks = [(wiring, each.commit) for wiring, each in zip(all_wirings(job), found, strict=True)]
    is_recorded = True
    if "deterministic" in job.modes:  # no checkpoint spans its tasks: they are of one moment when all is used up
        check_used_up(tasks)
        is_recorded = not any(log.bounds(wiring.changelog)[0] for wiring, _ in tasks if wiring.deterministic)
    reasons = _tell_left_out(job, telling, is_recorded=is_recorded)
    compared = [stage for stage in job.live if stage.name not in reasons]
    if not makes_calls:
        check_calls(compared, is_recorded=is_recorded)
    settled = know_starts(job, log)
    check_starts(job, settled, histories)
    ends = {topic: history.ends for topic, history in histories.items()}
    covered = cover(log, tasks, ends)
    check_whole(log, wanted, {each: at for each, at in covered.begins.items() if _stage_of(job, each) not in reasons})
    check_placed(log, job, covered, ends)
    work = f"{wanted.work}/audit-{uuid.uuid4().hex}"
    files = {topic: history.until(covered.resume, topic) for topic, history in histories.items()}
    seams = seams_of(log, job, covered, ends)
    plans = PlanMaker(wanted, files, covered, output_counts(job, log), settled, sought(seams))
    try:
        stages = Stages(spark, job, plans.histories(), work)
        with SparkProgress(spark, telling):
            reports = stages.run(
                lambda stage: plans.of(
                    stage,
                    _checkpoint_of(found),
                    snapshots=tuple(found[job.tasks_of(stage.ordinal)]),
                    is_recorded=is_recorded,
                    makes_calls=makes_calls,
                ),
                lambda name: telling.say(f"stage {name} …"),
                left_out=reasons,
            )
            account = accounted(log, wanted, reports, histories, covered, settled, seams)
            Recount(spark, wanted.sources, wanted.columns, histories, covered, settled).check(compared, reports)
            differing = stages.rows(STATE, compared)
            shown = list(_shown(job, differing))
            wrong = len(shown) if len(shown) < SHOWN_MAX else differing.count()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Audited(_checkpoint_of(found), reports, wrong, shown, reasons, account)


def _checkpoint_of(found: Sequence[Snapshot]) -> int:
    """Return the newest checkpoint of the tasks."""
    return max(snapshot.commit.checkpoint_id for snapshot in found)


def _shown(job: Job, rows: "DataFrame") -> Iterator[StateDifference]:
    """Yield the first differences."""
    names = [{number: name for name, number in stage.store_ids().items()} for stage in job.stages]
    for row in rows.orderBy("stage", "task", "store", "key").limit(SHOWN_MAX).collect():
        key, value, expected = (None if row[name] is None else bytes(row[name]) for name in ("key", "value", "headers"))
        stage = row["stage"]
        yield StateDifference(
            job.stages[stage].name, row["task"], names[stage][row["store"]], key or b"", value, expected
        )


def _tell_left_out(job: Job, telling: ProgressSink, *, is_recorded: bool) -> dict[str, str]:
    """Say what is not compared, and return it: stage → why. Raises ConfigError: nothing would be."""
    if not is_recorded:
        telling.say(_UNRECORDED)
    reasons = left_out(job, is_recorded=is_recorded)
    for name, reason in reasons.items():
        telling.say(f"not compared: stage {name} {reason}")
    return reasons


def _stage_of(job: Job, read: TaskInput) -> str:
    return job.stages[split_producer_id(read[0])[0]].name


def check_whole(log: LogReader, wanted: BackfillSpec, begins: Mapping[TaskInput, int]) -> None:
    """Refuse an audit from a log that no longer has the beginning."""
    for (_, partition), begin in begins.items():
        start = log.bounds(partition)[0]
        if start > begin and partition.topic in wanted.from_log:
            raise ConfigError(
                f"{partition} starts at offset {start:,}: the records before it are not in the log any more, so the "
                "state "
                f"cannot be recomputed from it; give the archive of the topic: --from {partition.topic}=PATH",
                partition=partition,
            )
