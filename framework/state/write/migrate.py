"""Migration: a stopped job's keys and values in the newest version of the serdes, in place.

What changes is written as a bulk write (grete.state.write.bulk.bulk_write): the old key is deleted, the new one put,
all else stays. Its outcome decides; the pins are noted before, and put into place behind it (grete.state.pins.pins).
The graph has another fingerprint then (1.2): a worker that compared before stops, and checkpoints of before are not
misread.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from grete.api.jobs.definition import define, encode_definition
from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.jobs.versions import NEWEST
from grete.errors import ConfigError
from grete.execution.timing.floors import FLOOR
from grete.execution.timing.reserved_stores import META, STREAM_TIME, TIMERS
from grete.job.key_metadata import placed_by
from grete.ports import JobLog, JobLogReader
from grete.protocol.partitioner import partition_of
from grete.quoting import key_text
from grete.settings import Settings
from grete.state.pins.graph_pinning import GRAPH, check_whole, encode_graph
from grete.state.pins.pinning import DEFINED, output_counts
from grete.state.pins.pins import APPLY, note_apply, put_in_place
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import Snapshot, contents, segments
from grete.state.read.owners import NONE_ENDED, refuse_if_owned
from grete.state.write.bulk.bulk_write import begin, check_used_up, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt, AttemptData, BulkWrite
from grete.state.write.moving.entries import ROWS, MovedEntries, give_up
from grete.state.write.moving.mover import Columns
from grete.state.write.moving.recoding import OTHER_NAME, RecodedEntry, Recoding, entries_recoded, recoding_of
from grete.state.write.moving.routes import Route, check_seen, routes_of
from grete.state.write.rescale import claimed_at, last_of


class MigratedStage(NamedTuple):
    """A stage whose entries may change, and its tasks. ``moved``: some go to another task."""

    forms: Recoding
    routes: list[Route]
    counts: Counter[str]
    moved: bool


def migrate(
    log: JobLog, job: Job, settings: Settings, *, assume_keyed: bool = False, ended: Mapping[str, int] = NONE_ENDED
) -> MovedEntries:
    """Bring a stopped job to the newest version of the serdes; return how many entries have other bytes.

    ``assume_keyed``: the caller knows that stores are keyed as their records are, where too few keys show it.
    ``ended``: as of ``refuse_if_owned``. Raises ConfigError, before anything is changed, for what cannot be brought
    there; Fenced: a worker has started.
    """
    _refuse_kinds(job, settings)
    check_whole(job, log)
    refuse_if_owned(log, all_wirings(job), settings, ended)
    lasts = [last_of(log, wiring) for wiring in all_wirings(job)]
    check_used_up([(wiring, last.commit) for wiring, last in zip(all_wirings(job), lasts, strict=True)])
    new = _in_newest(job, log)
    stages = _check(log, job, new, lasts, assume_keyed=assume_keyed)
    metadata = log.open_metadata(job.name)
    bulk_write = begin(log, new, settings)
    bulk_write = replace(bulk_write, bulk_write_id=bulk_write.bulk_write_id + APPLY)
    try:
        claimed = claimed_at(log, job, bulk_write)
        if [each.commit for each in claimed] != [each.commit for each in lasts]:  # by a worker that was not seen
            stages = _check(log, job, new, claimed, assume_keyed=assume_keyed)
        new.migrate(bulk_write.checkpoint_id)
        defined = encode_definition(define(new, output_counts(new, log)))
        pins = {GRAPH: encode_graph(new.topology()), DEFINED: defined}
        note_apply(metadata, bulk_write.bulk_write_id, new.stages[0].name, pins)
        written = [each for stage in stages for each in _write(log, bulk_write, stage)]
        commit(log, bulk_write, written, settings=settings, full=False)
    except BaseException:
        give_up(log, bulk_write)
        raise
    put_in_place(log, job.name, metadata)
    return MovedEntries(bulk_write.checkpoint_id, sum((stage.counts for stage in stages), Counter[str]()))


def _refuse_kinds(job: Job, settings: Settings) -> None:
    if "deterministic" in job.modes:
        raise ConfigError(
            f"job {job.name!r} is deterministic: a replay makes its outputs again from its history, to the byte, and "
            f"consumers have them with their numbers, as version {job.serdes} of the serdes writes them: {OTHER_NAME}"
        )
    if not settings.aligned:
        raise ConfigError(
            f"job {job.name!r} runs {settings.processing_guarantee}: it has no checkpoint of all its tasks at which "
            f"keys could change: {OTHER_NAME}"
        )


def _in_newest(job: Job, log: JobLogReader) -> Job:
    """Return the job as it is to be; of its graph only what is known of the log."""
    new = copy(job)
    new.write_by(NEWEST)
    new.migrate(0)  # the checkpoint is known later
    new.keep_fingerprints(None, frozenset())
    new.count_broadcast(log.partitions)
    return new


# --- checks -----------------------------------------------------------------------------------------------------------


def _check(
    log: JobLogReader, job: Job, new: Job, lasts: Sequence[Snapshot], *, assume_keyed: bool
) -> list[MigratedStage]:
    """Return the stages whose entries may change. Raises ConfigError for what cannot be brought to new forms."""
    topology = job.topology()
    all_forms = {}
    for stage, now in zip(job.stages, new.stages, strict=True):
        streams = {each.user_topic for each in topology.streams_into(stage.ordinal) if not each.broadcast}
        all_forms[stage.name] = recoding_of(stage, now, streams)
    moves = any(forms.moves for forms in all_forms.values())
    places = placed_by(log.read_metadata(job.name), job) if moves else {s.ordinal: partition_of for s in job.stages}
    found = []
    for name, routes in groupby(routes_of(job, job, lasts, places), key=lambda route: route.stage):
        if all_forms[name].changes:
            found.append(_check_stage(log, job, [*routes], all_forms[name], assume_keyed=assume_keyed))
    return found


def _check_stage(
    log: JobLogReader, job: Job, routes: list[Route], forms: Recoding, *, assume_keyed: bool
) -> MigratedStage:
    """Refuse two entries that would be one, and what cannot move between the tasks of a stage."""
    counts, seen, moved, own_timers = Counter[str](), Counter[str](), False, False
    taken = dict[tuple[int | None, int, bytes], bytes]()  # of what changes: place → key of before
    for route in routes:
        for each in entries_recoded(log, route, forms):
            store = f"{route.stage}/{route.stores[each.store]}"
            if forms.tells(route, each.store, each.key):
                seen[store] += 1
            own_timers = own_timers or forms.is_own_timer(each.store, each.key)
            if not each.changes(route.partition):
                continue
            counts[store] += 1
            moved = moved or each.at != route.partition
            place = each.at, each.store, each.new_key
            if each.store != TIMERS and taken.setdefault(place, each.key) != each.key:
                raise _collision(store, taken[place], each)
    for route in routes if taken else ():
        for each in entries_recoded(log, route, forms):
            other = taken.get((each.at, each.store, each.new_key), each.key)
            if other != each.key:
                raise _collision(f"{route.stage}/{route.stores[each.store]}", other, each)
    if forms.moves:
        check_seen(routes, seen, (), assume_keyed=assume_keyed)
    if moved:
        _check_moved(job, forms.stage, own_timers=own_timers)
    if counts and forms.stage.goes_by_time:
        _check_times(log, routes, moved=moved)
    return MigratedStage(forms, routes, counts, moved)


def _collision(store: str, other: bytes, then: RecodedEntry) -> ConfigError:
    return ConfigError(
        f"store {store}: the keys {key_text(other)} and {key_text(then.key)} are equal, and both would be "
        f"{key_text(then.new_key)}: only the code knows how to make one value of two: let it do so (put what they "
        f"make under one of the keys, delete the other), then ask again; or {OTHER_NAME}"
    )


def _check_moved(job: Job, stage: StageGraph, *, own_timers: bool) -> None:
    """Refuse to move keys of a stage away from what stays in its tasks."""
    outside = job.topology().keyed_externals_of(stage.ordinal)
    stays = f"the records of topic {outside[0]}, which come from outside, stay where they are" if outside else ""
    if own_timers:
        stays = "it has timers that wait, whose keys are texts of its code: nothing tells which are to go with them"
    if stays:
        raise ConfigError(
            f"keys of stage {stage.name} go to another of its tasks, and {stays}: {OTHER_NAME}", stage=stage.name
        )


def _check_times(log: JobLogReader, routes: Sequence[Route], *, moved: bool) -> None:
    """Refuse keys for which event time would be another one then."""
    stage = routes[0].stage
    noted = [contents(segments(log, route.snapshot), frozenset({META}))[META] for route in routes]
    alive = [{key: cell[0] for key, cell in entries.items() if cell[0] is not None} for entries in noted]
    reason = ""
    if any(key.startswith(FLOOR) for entries in alive for key in entries):
        reason = "was rescaled while its tasks were at other event times, and knows by a key's bytes how far it was"
    elif moved and len({entries.get(STREAM_TIME) for entries in alive}) > 1:
        reason = "has keys that go to another of its tasks, which is at another event time"
    if reason:
        raise ConfigError(
            f"stage {stage} {reason}: let the job process records of all partitions until event time has passed that, "
            f"then ask again; or {OTHER_NAME}",
            stage=stage,
        )


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(log: JobLog, bulk_write: BulkWrite, stage: MigratedStage) -> list[AttemptData]:
    """Write what changes: first that keys of before are gone, then those of now, each into its task."""
    attempts, open_ = dict[int, Attempt](), dict[int, Columns]()

    def add(partition: int, store: int, key: bytes, value: bytes | None) -> None:
        at = stage.routes[0].first + partition
        if at not in attempts:
            attempts[at] = Attempt(log, bulk_write, at, 1)
        stores, keys, values = open_.setdefault(at, ([], [], []))
        stores.append(store)
        keys.append(key)
        values.append(value)
        if len(stores) == ROWS:
            attempts[at].add(*open_.pop(at))

    for route in stage.routes:
        for each in entries_recoded(log, route, stage.forms):
            if each.at is None and stage.moved:
                for partition in range(route.partitions):
                    add(partition, each.store, each.key, each.value)
            elif each.changes(route.partition):
                assert each.at is not None
                if (each.at, each.new_key) != (route.partition, each.key):
                    add(route.partition, each.store, each.key, None)
                add(each.at, each.store, each.new_key, each.new_value)
    for at, columns in open_.items():
        attempts[at].add(*columns)
    return [attempt.close() for attempt in attempts.values()]
