"""Pins the definition of a job in its metadata, and holds its code against it at each start and before each read."""

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from grete.api.jobs.changes import refuse_changes
from grete.api.jobs.definition import (
    Definition,
    changes_of_broadcast,
    changes_of_flow,
    changes_of_job,
    changes_of_state,
    decode_definition,
    define,
    encode_definition,
    take_over,
)
from grete.api.jobs.dropped import dropped_of
from grete.api.jobs.job import Job
from grete.api.jobs.versions import FIRST, NEWEST, serdes_of
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import changelog_topic
from grete.errors import ConfigError, TransientError
from grete.execution.timing.reserved_stores import META, pin_key
from grete.job.metadata import has_pins
from grete.ports import JobLogReader, JobMetadata, MetadataReader
from grete.protocol.ids import TopicPartition
from grete.state.pins.pins import pin_of
from grete.state.pins.unbound import BEFORE, definition_before, note_before
from grete.state.read.checkpoints.commits import all_wirings, ends_of, last_commit
from grete.state.read.checkpoints.snapshots import Snapshot, contents, live, segments, settled_fold
from grete.state.read.local_reader import DEFINITION
from grete.stores.store_directory import make_private

DEFINED = "definition"  # the key in the job metadata
_IDS_MAX = 1 << 15  # of the overlay

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal


def check_definition(job: Job, log: JobLogReader) -> Definition | None:
    """Hold a job's code against its definition, and take over what that has settled; nothing is written.

    Return the definition, None before the first start with a release that pins it. Raises ConfigError naming all that
    changed and may not, each with a way.
    """
    definition = _definition_of(job, log)
    if definition is None:
        job.pin(_ids_of_state(job, log), {}, times=_times_of_state(job, log), serdes=_unpinned_serdes(job, log))
        return None
    definition = _without_unused(definition, job, log)
    refuse_changes(job, changes_of_job(definition, job))
    take_over(definition, job)
    _check_outputs(definition, job, log)
    return definition


def check_broadcast(job: Job, log: JobLogReader) -> None:
    """Refuse code whose tasks read a topic whole that they have read in part, or the other way. Raises ConfigError.

    The graph is to be checked behind this: it would only say that partitions are gone.
    """
    definition = _definition_of(job, log)
    if definition is not None:
        refuse_changes(job, changes_of_broadcast(definition, job))


def check_readable(job: Job, log: JobLogReader) -> Definition | None:
    """Let a job's code read the state that its log has; return what ``check_definition`` does.

    Raises ConfigError: the code would misread it.
    """
    definition = _definition_of(job, log)
    if definition is None:
        job.pin(_ids_of_state(job, log), {}, times=_times_of_state(job, log), serdes=_unpinned_serdes(job, log))
        return None
    refuse_changes(job, changes_of_state(definition, job))
    take_over(definition, job)
    return definition


def take_state_of(first: Job, second: Job) -> None:
    """Give a job that gets the state of another one the ids of its stores. Raises ConfigError: it would misread them.

    ``first`` was checked.
    """
    definition = define(first, {})
    definition.pop("migrated", None)  # its own checkpoints all have that version
    refuse_changes(second, [*changes_of_state(definition, second), *changes_of_flow(definition, second, sent=False)])
    take_over(definition, second)


def pin_definition(
    job: Job,
    log: JobLogReader,
    metadata: JobMetadata,
    state: Path | None,
    beside: Mapping[str, bytes],
    *,
    lost: bool = False,
) -> None:
    """Write the definition of a job that was checked, if it is new or has grown; a copy goes beside its ``state``.

    The job's topics are there. ``beside``: entries that are pinned with it. ``lost``: its metadata held nothing at this
    start. Raises TransientError: another process has pinned something else meanwhile, which this start did not check.
    """
    before = _counting(job, log)
    pinned = pin_of(log, job.name, DEFINED)  # as the log has it: another process may have pinned since a start began
    has_run = before is None and (pinned is None or _fits(pinned, job, log)) and _has_run(job, log)
    if has_run:  # or another process has begun with it just now: it pins before it runs
        before = pinned = pin_of(log, job.name, DEFINED)
    if before is not None:
        dropped_of(decode_definition(before)).refuse_again(job.stages)  # grete apply has, since this start compared
    _keep_serdes(job, before, state if lost else None)
    raw = encode_definition(define(job, output_counts(job, log)))
    used = None if before is None else _without_unused(decode_definition(before), job, log)
    if before is not None and used is not None and len(used["stages"]) > len(job.live):
        raw = before  # this is the code before stages were added, beside workers that have them
    if raw != pinned:
        if has_run and before is None:
            logger.warning(
                "the metadata of job %s is gone, though the job has run (was it deleted, or is this another job of "
                "the same name?): what it pinned is taken from the code as it is now; inputs' partitioners are "
                "recognized again; the offsets of a rescale, and which files a feed has fed, are forgotten; keys are "
                "written as the definition beside the local stores says, else as by a new job (said once)"
                if lost
                else "job %s has run with a release that pinned no definition: it is taken from the code as it is now, "
                "and each later start is held against it (said once)",
                job.name,
            )
        noted = None if has_run and pinned is None else note_before(log, job.name, before or b"", pinned, raw)
        entries = {DEFINED: raw, BEFORE: None if raw == before else noted, **beside}
        if not metadata.pin(entries, pinned):
            _check_same(log, job.name, {DEFINED: raw, **beside})
    elif beside and not all(metadata.pin({key: made}, metadata.meta_get(key)) for key, made in beside.items()):
        _check_same(log, job.name, beside)
    take_over(decode_definition(raw), job)
    if state is not None:
        copy_definition(raw, state)


def _check_same(log: JobLogReader, job: str, wanted: Mapping[str, bytes]) -> None:
    """Raise TransientError if another process has pinned something else than the start that came too late."""
    metadata = log.read_metadata(job)
    if others := [key for key, entry in wanted.items() if metadata.meta_get(key) != entry]:
        raise TransientError(
            f"job {job!r} was started at the same time with other code or other settings, which came first: its "
            f"metadata has another {' and another '.join(others)}. This start has changed nothing: start again, which "
            "says whether this code fits"
        )


def _keep_serdes(job: Job, before: bytes | None, state: Path | None) -> None:
    """Let a job write by the version of its definition ``before`` this start; else of the copy in ``state``."""
    if before is None and state is not None:
        with contextlib.suppress(FileNotFoundError):
            before = (state / DEFINITION).read_bytes()
    definition = {} if before is None else decode_definition(before)
    if definition and serdes_of(definition) != job.serdes:  # grete migrate has, since this start compared
        job.write_by(serdes_of(definition))
        job.migrate(definition.get("migrated"))


def repin_outputs(job: Job, log: JobLogReader, metadata: JobMetadata) -> None:
    """Write the definition of a stopped job with the partition counts that its outputs have now."""
    counts = {topic: count for topic in job.external_sinks() if (count := log.partitions(topic)) is not None}
    metadata.produce_with_meta([], {DEFINED: encode_definition(define(job, counts))})


def output_counts(job: Job, log: JobLogReader) -> dict[str, int]:
    """Return to how many partitions of each topic outside the job writes: as pinned; of a new topic, all it has."""
    pinned = job.stages[0].pinned_counts
    return {topic: pinned.get(topic) or log.partitions(topic) or job.count_of(topic) for topic in job.external_sinks()}


def copy_pinned(metadata: MetadataReader, state: Path) -> None:
    """Leave the definition of a job that has been started beside its stores on this machine."""
    raw = metadata.meta_get(DEFINED)
    if raw is not None:
        copy_definition(raw, state)


def copy_definition(raw: bytes, state: Path) -> None:
    """Leave a definition beside the stores of a directory, for those who read them without the log."""
    make_private(state)
    path = state / DEFINITION
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == raw:
            return
    scratch = state / f"{DEFINITION}.{os.getpid()}"
    scratch.write_bytes(raw)
    scratch.replace(path)


def know_dropped(job: Job, log: JobLogReader) -> None:
    """Let a job take over which stages and stores it has dropped: it has the numbers of its tasks then (1.2).

    It also knows by which version of the serdes it writes. Raises ConfigError: its code has what was dropped.
    """
    definition = _definition_of(job, log)
    if definition is not None:
        take_over(definition, job)
    else:
        job.write_by(_unpinned_serdes(job, log))


def pinned_definition(job: Job, log: JobLogReader) -> Definition | None:
    """Return the definition of a job without the stages that do not bind; None if none is pinned. Writes nothing."""
    definition = _definition_of(job, log)
    return None if definition is None else _without_unused(definition, job, log)


def _definition_of(job: Job, log: JobLogReader) -> Definition | None:
    raw = _counting(job, log)
    return None if raw is None else decode_definition(raw)


def _counting(job: Job, log: JobLogReader) -> bytes | None:
    """Return the definition that counts for this code: the pinned one; or the one before it, while that binds not.

    None: nothing is pinned, or the first definition, which does not bind yet.
    """
    pinned = pin_of(log, job.name, DEFINED)
    if pinned is None or _fits(pinned, job, log):
        return pinned
    before = definition_before(log, job.name, pinned)
    if before is None:
        return pinned
    return None if not before else before if _fits(before, job, log) else pinned


def _fits(raw: bytes, job: Job, log: JobLogReader) -> bool:
    definition = _without_unused(decode_definition(raw), job, log)
    return not changes_of_broadcast(definition, job) and not changes_of_job(definition, job)


def takes_back(job: Job, log: JobLogReader) -> bool:
    """Tell whether a start with this code would pin the definition again that was before the pinned one."""
    return _counting(job, log) != pin_of(log, job.name, DEFINED)


def _without_unused(definition: Definition, job: Job, log: JobLogReader) -> Definition:
    """Return a definition without stages that were added and never committed: the code before them may come back."""
    known = {stage.name for stage in job.stages}
    stages = [s for s in definition["stages"] if s["name"] in known or _has_committed(log, job.name, s["name"])]
    return {**definition, "stages": stages}


def _has_committed(log: JobLogReader, job: str, stage: str) -> bool:
    changelog = changelog_topic(job, stage)
    count = log.partitions(changelog) or 0
    partitions = (TopicPartition(changelog, number) for number in range(count))
    return any(last_commit(log, each, bounds) is not None for each, bounds in ends_of(log, partitions))


def _check_outputs(definition: Definition, job: Job, log: JobLogReader) -> None:
    """Refuse an output topic that has lost partitions; tell of one that has more than the job writes to."""
    for topic, pinned in definition["outputs"].items():
        found = log.partitions(topic) if topic in job.external_sinks() else None
        if found is None or found == pinned:
            continue
        if found < pinned:
            raise ConfigError(
                f"output topic {topic} has {found} partitions, and job {job.name!r} has written to {pinned}: it was "
                f"created again: give it as many again: kafka-topics.sh --alter --topic {topic} --partitions {pinned}",
                topic=topic,
            )
        logger.warning(
            "output topic %s has %d partitions, and job %s goes on writing to the first %d, which it began with, so "
            "that keys stay where they are: a job of another name (grete fork) writes to all of them",
            topic,
            found,
            job.name,
            pinned,
        )


# --- State of releases that pinned no definition ----------------------------------------------------------------------


def _ids_of_state(job: Job, log: JobLogReader) -> dict[str, dict[str, int]]:
    """Return the ids in the state, of stages with windows: there a new store would move those declared."""
    ids = {}
    for stage in job.stages:
        if stage.windows and log.partitions(job.topology().changelog(stage.ordinal)) is not None:
            pinned = _pinned_ids(job, log, stage.ordinal)
            ids[stage.name] = {name: number for name, number in pinned.items() if name in stage.store_names()}
    return ids


def _times_of_state(job: Job, log: JobLogReader) -> dict[str, dict[str, str]]:
    """Return the times that all inputs had in those releases; nothing of a job that has not run, or has lost its pins.

    Another process may pin the definition meanwhile: before it runs.
    """
    ran = has_pins(log.read_metadata(job.name)) and _has_run(job, log) and pin_of(log, job.name, DEFINED) is None
    return {s.name: {topic.name: "record" for topic in s.topics_read()} for s in job.stages} if ran else {}


def _pinned_ids(job: Job, log: JobLogReader, ordinal: int) -> dict[str, int]:
    """Return store name → id as the first task of a stage that has committed names it; one task's state is read."""
    tasks = job.topology().stages[ordinal].partitions
    for number in range(min(tasks, log.partitions(job.topology().changelog(ordinal)) or 0)):
        wiring = wire(job.topology(), ordinal, number)
        found = _last_snapshot(log, wiring)
        if found is not None:
            keys, values, _ = live(contents(segments(log, found), frozenset({META}))[META])
            ids = {pin_key(store_id): store_id for store_id in range(_IDS_MAX)}
            return {value.decode(): ids[key] for key, value in zip(keys, values, strict=True) if key in ids}
    return {}


def _last_snapshot(log: JobLogReader, wiring: TaskWiring) -> Snapshot | None:
    """Return one task at its last commit, also if that was of a job with fewer stages."""
    fold = settled_fold(log, wiring)
    if fold.last is None:
        return None
    return Snapshot(wiring.name, wiring.changelog, fold.last_offset, fold.start, fold.last)


def _unpinned_serdes(job: Job, log: JobLogReader) -> int:
    """Return the version of the serdes of a job without a definition: a release that pinned none wrote the first."""
    if not has_pins(log.read_metadata(job.name)) or not _has_run(job, log):
        return NEWEST
    now = pin_of(log, job.name, DEFINED)  # another process has begun with it meanwhile: it pins before it runs
    return FIRST if now is None else serdes_of(decode_definition(now))


def _has_run(job: Job, log: JobLogReader) -> bool:
    """Tell whether a task has been started: its claim is in its changelog."""
    changelogs = [wiring.changelog for wiring in all_wirings(job)]
    there = [each for each in changelogs if each.partition < (log.partitions(each.topic) or 0)]
    return any(end for _, end in log.all_bounds(there).values())
