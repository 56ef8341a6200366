"""A bulk write: state of all tasks written from outside of the workers, by the changelog's rules (1.8, 2.5).

``begin`` claims every task, task (0, 0) first. ``Attempt`` (bulk_write_attempt.py) writes one task's data, several may
try the same. ``commit`` appends a commit to each changelog, checks that no other process has claimed one meanwhile (C3)
and, last, the outcome to that of task (0, 0): from then on all of the commits count, and before none of them does. A
process that dies on the way leaves something invalid: data without a commit, or commits without an outcome. ``begin``
and ``settle`` clear it up.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.execution.build import writes_outside
from grete.execution.changelog.changelog_writer import find_outcome
from grete.ports import ExternalRecord, Log, LogReader
from grete.protocol.changelog import ChangelogType, Outcome, encode_outcome
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.commit import Commit, encode_commit
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.pins.pins import APPLY
from grete.state.read.checkpoints.commits import all_wirings, tasks_behind
from grete.state.read.checkpoints.snapshots import fold_to_end
from grete.state.write.bulk.bulk_write_attempt import AttemptData, BulkWrite
from grete.state.write.bulk.bulk_write_commits import commit_of
from grete.state.write.bulk.task_claim import ClaimedTask, append, claim, verify

_OUTPUTS = "-outputs"  # the end of a bulk write's id: without its process its outputs cannot be sent


# --- the bulk write ---------------------------------------------------------------------------------------------------


def begin(log: Log, job: Job, settings: Settings, *, outputs: bool = False) -> BulkWrite:
    """Claim every task; one that was left in doubt is rolled back from here on. Live workers are fenced.

    ``outputs``: it will send some, with its outcome. The topics must be there. Raises Halted: a changelog is damaged;
    ConfigError: records that tasks have sent are not processed yet, or the job is deterministic and has run.
    """
    claimed = [_claim(log, wiring, job, settings, outputs=outputs) for wiring, _ in check_begin(log, job)]
    try:
        check_used_up([(task.wiring, task.base) for task in claimed])
        if "deterministic" in job.modes:
            for task in claimed:
                _check_fresh(job, task.wiring, task.base, task.generation, went_on=task.went_on)
    except ConfigError as error:
        raise ConfigError(f"{error}. It was running: its workers have been fenced") from error
    time_ms = claimed[0].time_ms
    checkpoint_id = max(time_ms, *(1 + (-1 if task.base is None else task.base.checkpoint_id) for task in claimed))
    return BulkWrite(uuid.uuid4().hex + (_OUTPUTS if outputs else ""), checkpoint_id, time_ms, tuple(claimed))


def check_begin(log: LogReader, job: Job) -> list[tuple[TaskWiring, Commit | None]]:
    """Return the tasks with their last commits, if a bulk write can begin now. Raises as ``begin``; claims nothing."""
    wirings = all_wirings(job)
    folds = [fold_to_end(log, wiring) for wiring in wirings]
    tasks = [(wiring, fold.last) for wiring, fold in zip(wirings, folds, strict=True)]
    check_used_up(tasks)
    if "deterministic" in job.modes:
        for wiring, fold in zip(wirings, folds, strict=True):
            went_on = bool(fold.since.decisions or fold.since.released)
            _check_fresh(job, wiring, fold.last, fold.top + 1, went_on=went_on)
    return tasks


def commit(
    log: Log,
    bulk_write: BulkWrite,
    written: Iterable[AttemptData],
    *,
    settings: Settings,
    full: bool,
    external: Mapping[TopicPartition, int] | None = None,
    outputs: Sequence[ExternalRecord] = (),
) -> list[ChangelogPosition]:
    """Commit what the attempts have written, one of each task at most, and the outcome. Nothing counts before.

    Returns the changelog position, task by task, of a store that holds the task's new state.

    ``full``: each task's data hold all of its state, from a reset on. ``external``: offsets of the first records that
    are not included; the others stay. ``outputs`` become visible with the outcome: ``begin`` must know of them.
    Raises Fenced: a task was claimed meanwhile, the bulk write does not count.
    """
    winners: dict[int, AttemptData] = {}
    for each in written:
        if winners.setdefault(each.task, each) is not each:
            raise ConfigError(
                f"two attempts, {winners[each.task].attempt} and {each.attempt}, have written task "
                f"{bulk_write.tasks[each.task].wiring.name}: let one Spark task write each partition"
            )
    channels = (partition for task in bulk_write.tasks for _, partition in task.wiring.channels)
    ends = {partition: end for partition, (_, end) in log.all_bounds(channels).items()}
    tasks, changelog_positions = list(bulk_write.tasks), []
    for number, task in enumerate(tasks):
        won = winners.get(number, AttemptData(number, 0, 0, 0, task.begin))
        made = commit_of(log, bulk_write, task, won, ends, settings, full=full, external=external or {})
        if task.transactional:
            log.transactional(task.changelog)
        (sent,) = append(log, task, [encode_commit(task.header(ChangelogType.COMMIT), made)], sync=True)
        verify(log, task, won.verified, sent.offset)
        tasks[number] = replace(task, next_seq=task.next_seq + 1, begin=sent.offset + 1)
        changelog_positions.append(ChangelogPosition(sent.offset, made.generation, made.checkpoint_id, made.nonce))
    _decide(log, tasks, Outcome(bulk_write.bulk_write_id, counts=True), outputs)
    return changelog_positions


def abort(log: Log, bulk_write: BulkWrite) -> None:
    """Roll back a bulk write that is in doubt, for good, unless that has happened already.

    It leaves only an invalid tail.
    """
    wirings = [task.wiring for task in bulk_write.tasks]
    left = [wiring for wiring in wirings if _in_doubt(log, wiring) == bulk_write.bulk_write_id]
    if left:
        _settle(log, [*dict.fromkeys((wirings[0], *left))], bulk_write.bulk_write_id, counts=False)


def settle(log: Log, job: Job, *, counts: bool) -> tuple[str, bool] | None:
    """Settle the bulk write left without an outcome; return (its id, whether it counts), None if there is none.

    An outcome that task (0, 0) has already is only copied to the others. No worker may run. Raises ConfigError: the
    bulk write has not committed every task, so that it cannot count.
    """
    wirings = all_wirings(job)
    waiting = {wiring: bulk_write_id for wiring in wirings if (bulk_write_id := _in_doubt(log, wiring)) is not None}
    if not waiting:
        return None
    bulk_write_id = waiting.get(wirings[0], next(iter(waiting.values())))
    decided = find_outcome(log, wirings[0].outcome_changelog, bulk_write_id)
    missing = [wiring.name for wiring in wirings if waiting.get(wiring) != bulk_write_id]
    if decided is None and counts and missing:
        raise ConfigError(
            f"the bulk write {bulk_write_id} has not committed {', '.join(missing[:5])}: it cannot count; run it again"
        )
    if decided is None and counts and bulk_write_id.endswith(_OUTPUTS):
        raise ConfigError(
            f"the bulk write {bulk_write_id} was to send outputs, which are lost with its process: run it again"
        )
    if decided is None and counts and bulk_write_id.endswith(APPLY):
        raise ConfigError(f"the bulk write {bulk_write_id} is one of grete apply: run that again")
    if decided is None:
        _settle(log, wirings, bulk_write_id, counts=counts)
        return bulk_write_id, counts
    for wiring in waiting:
        claim(log, wiring)
    return bulk_write_id, decided


def _settle(log: Log, wirings: Sequence[TaskWiring], bulk_write_id: str, *, counts: bool) -> None:
    """Claim these tasks, the first is (0, 0), and write the outcome."""
    _decide(log, [claim(log, wiring, settle=False) for wiring in wirings], Outcome(bulk_write_id, counts))


def _in_doubt(log: Log, wiring: TaskWiring) -> str | None:
    return fold_to_end(log, wiring).in_doubt


def _decide(log: Log, tasks: Sequence[ClaimedTask], outcome: Outcome, outputs: Sequence[ExternalRecord] = ()) -> None:
    """Append the outcome where it decides, verify it (C3), then copies: a worker need not look elsewhere."""
    for number, task in enumerate(tasks):
        message = encode_outcome(task.header(ChangelogType.OUTCOME), outcome)
        (sent,) = append(log, task, [message], sync=True, outputs=() if number else outputs)
        if number == 0:
            verify(log, task, task.begin, sent.offset)


def _check_fresh(job: Job, wiring: TaskWiring, base: Commit | None, generation: int, *, went_on: bool) -> None:
    """Refuse a job with deterministic stages that has run (decision 0020): it would not make the same outputs again.

    So it is for its aligned tasks, which hold the numbers of what those have sent. ``generation``: the bulk write's. A
    claim between two bulk writes may be a worker's, which may have sent records.
    """
    kind = "deterministic" if job.modes == "deterministic" else "deterministic in part"
    rewritten = base is not None and base.bulk_write_id is not None and base.generation + 1 == generation
    if base is not None and (base.bulk_write_id or "").endswith(_OUTPUTS):
        raise ConfigError(
            f"job {job.name!r} is {kind}, and a backfill has sent the outputs of its history ({wiring.name}): "
            "another one would send them under the same numbers: give the job another name",
            task=wiring.name,
        )
    if went_on or not (base is None or base.checkpoint_id == 0 or rewritten):
        raise ConfigError(
            f"job {job.name!r} is {kind} and has run ({wiring.name}): its state can only be written before it "
            "does, because consumers have its outputs already: give the job another name",
            task=wiring.name,
        )


# --- processed --------------------------------------------------------------------------------------------------------


def check_used_up(tasks: Sequence[tuple[TaskWiring, Commit | None]]) -> None:
    """Raise ConfigError if a task has committed records that its consumers have not: these would be lost."""
    for behind in tasks_behind(tasks):
        raise ConfigError(
            f"{behind.wiring.name} has committed {behind.taken:,} records of {behind.partition}, its producer "
            f"{behind.sent:,}: stop the job gracefully (grete run, until its input is used up)",
            task=behind.wiring.name,
        )


# --- claims and commits -----------------------------------------------------------------------------------------------


def _claim(log: Log, wiring: TaskWiring, job: Job, settings: Settings, *, outputs: bool) -> ClaimedTask:
    """Claim one task; in a transaction where its workers use them, or if it carries the bulk write's outputs (S1)."""
    graph = next(stage for stage in job.stages if wiring.name.rpartition("-")[0] == stage.name)
    outside = settings.aligned and writes_outside(graph, job.topology())
    return claim(log, wiring, transactional=outside or (outputs and wiring.changelog == wiring.outcome_changelog))
