"""``grete audit``: the state of each task, recomputed in batch from its recorded inputs, against its changelog."""

import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from framework.api.graph import StageGraph
from framework.api.job import Job
from framework.batch.check import check_calls
from framework.errors import ConfigError
from framework.ports import JobLogReader, LogReader
from framework.spark.backfill.backfill import Plans, Telling, Wanted, Watching, check_starts, histories_of
from framework.spark.backfill.plans import TaskInput, TaskReport
from framework.spark.backfill.ranges import LOG, check_placed, cover
from framework.spark.backfill.schema import STATE
from framework.spark.backfill.stages import Stages
from framework.state.bulk_write import check_used_up
from framework.state.commits import all_wirings
from framework.state.pinning import output_counts
from framework.state.snapshots import snapshots
from framework.state.start_pinning import know_starts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_MAX = 100  # differences that a person can look at


class StateDifference(NamedTuple):
    """A key that differs: None where it is missing."""

    stage: str
    partition: int
    store: str
    key: bytes
    found: bytes | None  # in the changelog
    expected: bytes | None  # recomputed


class Audited(NamedTuple):
    """What was compared, and what differs: how many keys, and the first of them."""

    checkpoint_id: int
    reports: list[TaskReport]
    wrong: int
    differences: list[StateDifference]


def audit(
    spark: "SparkSession",
    wanted: Wanted,
    log: JobLogReader,
    telling: Telling,
    *,
    aligned: bool,
    makes_calls: bool = False,
) -> Audited:
    """Recompute and compare, at the newest checkpoint that every task has committed; the job may run meanwhile.

    ``makes_calls`` whose results are not recorded. Raises ConfigError: there is no such checkpoint, or its inputs are
    not there any more, or calls; TaskError.
    """
    job = wanted.job
    histories = histories_of(spark, job, wanted.sources)
    found = snapshots(log, job, aligned=aligned)
    is_recorded = True
    if "deterministic" in job.modes:  # no checkpoint spans its tasks: they are of one moment when all is used up
        check_used_up([(wiring, each.commit) for wiring, each in zip(all_wirings(job), found, strict=True)])
        is_recorded = not any(log.bounds(wiring.changelog)[0] for wiring in all_wirings(job) if wiring.deterministic)
    if not is_recorded:
        telling.say(_check_unrecorded(job))
    if not makes_calls:
        check_calls(job, is_recorded=is_recorded)
    settled = know_starts(job, log)
    check_starts(job, settled, histories)
    ends = {topic: history.ends for topic, history in histories.items()}
    covered = cover(log, [(wiring, each.commit) for wiring, each in zip(all_wirings(job), found, strict=True)], ends)
    check_whole(log, wanted, covered.begins)
    check_placed(log, job, covered, ends)
    checkpoint_id = max(snapshot.commit.checkpoint_id for snapshot in found)
    work = f"{wanted.work}/audit-{uuid.uuid4().hex}"
    files = {topic: history.until(covered.resume, topic) for topic, history in histories.items()}
    plans = Plans(wanted, files, covered, output_counts(job, log), settled)
    differences: list[StateDifference] = []
    wrong = 0
    try:
        stages = Stages(spark, job, plans.histories(), work)
        with Watching(spark, telling):
            reports = stages.run(
                lambda stage: plans.of(
                    stage,
                    checkpoint_id,
                    snapshots=tuple(found[job.tasks_of(stage.ordinal)]),
                    is_recorded=is_recorded,
                    makes_calls=makes_calls,
                ),
                lambda name: telling.say(f"stage {name} …"),
            )
            for stage in job.stages:
                rows, room = stages.rows(stage, STATE), SHOWN_MAX - len(differences)
                differences += (shown := list(_shown(stage, rows, room)))
                wrong += len(shown) if len(shown) < room else rows.count()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return Audited(checkpoint_id, reports, wrong, differences)


def _shown(stage: StageGraph, rows: "DataFrame", count: int) -> Iterator[StateDifference]:
    """Yield the first differences of a stage."""
    names = {number: name for name, number in stage.store_ids().items()}
    for row in rows.orderBy("task", "store", "key").limit(count).collect():
        key, value, expected = (None if row[name] is None else bytes(row[name]) for name in ("key", "value", "headers"))
        yield StateDifference(stage.name, row["task"], names[row["store"]], key or b"", value, expected)


def _check_unrecorded(job: Job) -> str:
    """Return what a person should know of an audit without the recorded order. Raises ConfigError: it cannot be."""
    for stage in job.stages:
        if stage.mode == "deterministic" and "intake" in stage.topics_timed().values():
            raise ConfigError(
                f"stage {stage.name} has time='intake', and the changelogs do not hold all input decisions any more "
                "(setting changelog_retention_ms): when its records were taken in is not known, so the stage cannot be "
                "recomputed. grete check-determinism replays its recent history",
                stage=stage.name,
                setting="changelog_retention_ms",
            )
    return (
        "the changelogs do not hold all input decisions any more (setting changelog_retention_ms): deterministic tasks "
        "take their inputs in the order of time, so state that depends on the order may differ"
    )


def check_whole(log: LogReader, wanted: Wanted, begins: Mapping[TaskInput, int]) -> None:
    """Refuse an audit from a log that no longer has the beginning."""
    for (_, partition), begin in begins.items():
        start = log.bounds(partition)[0]
        if start > begin and wanted.sources.get(partition.topic, LOG) == LOG:
            raise ConfigError(
                f"{partition} starts at offset {start:,}: the records before it are not in the log any more, so the "
                "state "
                f"cannot be recomputed from it; give the archive of the topic: --from {partition.topic}=PATH",
                partition=partition,
            )
