"""Starting a new job from a checkpoint of an existing one."""

import logging

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, OffsetOutOfRange
from grete.job.key_metadata import pin_like, placed_by
from grete.job.metadata import pinned_settings
from grete.logs.open_transactions import stable_ends
from grete.logs.partition_reader import rows
from grete.ports import ExternalRecord, JobLog, JobLogReader, JobMetadata
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import Snapshot, fold_to_end
from grete.state.write.bulk.bulk_write import begin, check_used_up, commit
from grete.state.write.moving.entries import ROWS, MovedEntries, give_up
from grete.state.write.moving.key_origin import check_origin
from grete.state.write.moving.mover import InProcess, Mover
from grete.state.write.moving.routes import routes_of
from grete.state.write.rescale import check_inputs

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal


def fork(
    log: JobLogReader,
    job: Job,
    snapshots: list[Snapshot],
    target_log: JobLog,
    target: Job,
    settings: Settings,
    *,
    copy: bool,
    assume_keyed: bool = False,
    mover: Mover | None = None,
) -> MovedEntries:
    """Give a job that has not run yet the state of another one, at the checkpoint of these snapshots.

    It reads on from the positions of that checkpoint. ``copy``: the inputs are copied from there into its own log; else
    both jobs read the same topics. Outputs that wait for a sink stay with the first job. A second job with another
    number of partitions has topics of its own, so the checkpoint must include all of the first one's records.
    ``assume_keyed``, ``mover``: as of ``rescale``. Raises ConfigError: the jobs do not fit, or the second one has run.
    """
    mover = mover or InProcess(log, target_log)
    _check_fit(job, target)
    _refuse_broadcast(target)
    spread = _counts(target)[: len(job.stages)] != _counts(job)
    places = placed_by(log.read_metadata(job.name), job) if spread else {}
    routes = routes_of(job, target, snapshots, places, is_whole=not spread, forks=True)
    if spread:
        check_inputs(log, [snapshot.commit for snapshot in snapshots])
        mover.check(routes, assume_keyed=assume_keyed)
        check_origin(log, job, routes)
    _tell_skipped(log, job, target, settings)
    check_used_up([(wiring, each.commit) for wiring, each in zip(all_wirings(job), snapshots, strict=True)])
    for wiring in all_wirings(target):
        if target_log.bounds(wiring.changelog)[1] and fold_to_end(target_log, wiring).last is not None:
            raise _has_run(target, wiring)
    positions = {TopicPartition(e.topic, e.partition): e.offset for each in snapshots for e in each.commit.external}
    if copy:
        positions = {} if spread else _copy_inputs(log, target_log.open_metadata(target.name), target_log, positions)
    pin_like(log.read_metadata(job.name), job, target_log.open_metadata(target.name), target)
    bulk_write = begin(target_log, target, settings)
    try:
        for task in bulk_write.tasks:
            if task.base is not None:  # by a worker that has started since
                raise _has_run(target, task.wiring)
        written, entries = mover.write(routes, bulk_write)
        changelog_positions = commit(target_log, bulk_write, written, settings=settings, full=True, external=positions)
    except BaseException:
        give_up(target_log, bulk_write)
        raise
    mover.committed(changelog_positions)
    return MovedEntries(bulk_write.checkpoint_id, entries)


def _tell_skipped(log: JobLogReader, job: Job, target: Job, settings: Settings) -> None:
    """Say that a fork begins as a successor does behind a crash, if tasks of the first job hold what they read."""
    pinned = pinned_settings(job, log, settings)
    if pinned.loses:
        logger.warning(
            "%s runs %s: what its tasks had read and not processed at the checkpoint is skipped by %s. A graceful stop "
            "leaves nothing of that",
            job.name,
            pinned.processing_guarantee,
            target.name,
        )


def _counts(job: Job) -> list[int]:
    return [stage.partitions for stage in job.stages]


def _has_run(target: Job, wiring: TaskWiring) -> ConfigError:
    return ConfigError(
        f"job {target.name!r} has run already: {wiring.name} has commits: give the second job a new name",
        task=wiring.name,
    )


def _refuse_broadcast(target: Job) -> None:
    """Refuse a job whose tasks have positions of their own in one partition: a fork has one for all of them."""
    for stage in target.stages:
        if whole := target.topology().broadcast.get(stage.ordinal):
            raise ConfigError(
                f"stage {stage.name} reads all of topic {min(whole)} in each task (broadcast=True), and grete fork "
                "gives a partition one position: start the second job without a fork: it reads its inputs from their "
                "first records",
                stage=stage.name,
                topic=min(whole),
            )


def _check_fit(job: Job, target: Job) -> None:
    """Refuse a second job that would read the state wrongly."""
    if target.modes != job.modes:
        raise ConfigError(f"{job.name!r} is {job.modes}, {target.name!r} {target.modes}: need the same mode")
    if job.modes not in ("aligned", "deterministic"):
        raise ConfigError(
            f"job {job.name!r} has stages of both modes: it cannot be forked: begin with the inputs, or with the "
            "history (grete backfill), in a job of another name"
        )
    if target.name == job.name:
        raise ConfigError(f"both jobs are called {job.name!r}: give the second one another name")
    for stage, other in zip(job.stages, target.stages, strict=False):
        if other.partitions != stage.partitions and "deterministic" in job.modes and "wall" in stage.timers:
            raise ConfigError(
                f"stage {stage.name} of {job.name!r} has {stage.partitions} partitions, {target.name!r} "
                f"{other.partitions}: a deterministic stage with wall-clock timers is forked with its own number of "
                "partitions only",
                stage=stage.name,
            )
        ours, theirs = stage.store_ids(), other.store_ids()
        lost = [name for name, store in ours.items() if theirs.get(name) != store]
        if stage.name != other.name or lost:
            raise ConfigError(
                f"stage {stage.ordinal} is {stage.name} with {', '.join(ours)} in {job.name!r}, and {other.name} with "
                f"{', '.join(theirs)} in {target.name!r}: a fork may only add stages and stores, after the others",
                stage=stage.name,
            )
    if len(target.stages) < len(job.stages):
        raise ConfigError(f"job {target.name!r} has no stage {job.stages[len(target.stages)].name}, {job.name!r} has")


def _copy_inputs(
    log: JobLogReader, metadata: JobMetadata, target_log: JobLog, positions: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Copy the records after a checkpoint. Return the offsets to begin from. Raises ConfigError: trimmed, or there."""
    begin_at = {}
    ends = stable_ends(log, positions, logger.warning)
    for partition, position in positions.items():
        start, end = target_log.bounds(partition)
        if end:
            raise ConfigError(
                f"{partition} of the second job holds {end - start:,} records: choose another directory",
                partition=partition,
            )
        begin_at[partition] = 0
        batch: list[ExternalRecord] = []
        try:
            for row in rows(log, partition, position, ends[partition]):
                batch.append(ExternalRecord(partition, row.key, row.value, row.timestamp_ms, row.headers))
                if len(batch) == ROWS:
                    metadata.produce_with_meta(batch, {})
                    batch = []
        except OffsetOutOfRange as error:
            raise ConfigError(
                f"records that the checkpoint had not read yet are gone: {error}: choose a later checkpoint"
            ) from error
        metadata.produce_with_meta(batch, {})
    return begin_at
