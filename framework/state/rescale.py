"""Rescale: a job's state over more partitions.

The committed state is read from the changelogs (framework.state.snapshots) and written as a bulk write, which counts as
a whole or not at all (framework.state.bulk_write). Which partition an entry belongs to is the hard part of a rescale: a
store's partition is that of the records that were processed, which its keys need not tell. So they are looked at first.
"""

from collections import Counter

from framework.api.graph import StageGraph
from framework.api.job import Job
from framework.core.task_topology import TaskWiring
from framework.errors import ConfigError
from framework.execution.build import store_names
from framework.execution.reserved_stores import EVENT_TIME, META, OUTBOX, STREAM_TIME, TIMERS, TURN
from framework.job.key_metadata import Placement, Places, placed_by
from framework.job.metadata import pin_rescale
from framework.logs.partition_reader import rows
from framework.ports import JobLog, JobLogReader
from framework.settings import Settings
from framework.state.bulk_write import begin, check_used_up, commit
from framework.state.bulk_write_attempt import Attempt, BulkWrite, Written
from framework.state.commits import all_wirings
from framework.state.entries import Moved, chunks, entries_of, give_up
from framework.state.graph_pinning import check_whole, pin_graph
from framework.state.owners import refuse_if_owned
from framework.state.pinning import repin_outputs
from framework.state.snapshots import Snapshot, fold_to_end, newest
from protocol.commit import Commit
from protocol.ids import TopicPartition

BITS_MIN = 20  # of evidence that a store is keyed as the records are: a chance of one in a million to be wrong
_TIMER_NAME = 8  # in a timer's key: 8 bytes of time, a byte of length, owner, key (framework.execution.timers)


# --- rescale ----------------------------------------------------------------------------------------------------------


def partitions_of(log: JobLogReader, job: Job, stage: str | None = None) -> int:
    """Return with how many partitions the job, or a stage of it, has run: its topics may have more already.

    Raises ConfigError.
    """
    topology = job.topology()
    moving = [each for each in job.stages if (each.name == stage if stage else each.follows_job)]
    if stage is not None:
        job.stage(stage)
    if not moving:
        names = ", ".join(each.name for each in job.stages)
        raise ConfigError(
            f"each stage of job {job.name!r} has a number of partitions of its own: say which is to have more: "
            f"--stage, one of {names}"
        )
    counts = [log.partitions(topology.changelog(each.ordinal)) or 0 for each in moving]
    last = None if log.partitions(topology.changelog(0)) is None else fold_to_end(log, all_wirings(job)[0]).last
    if last is None:
        raise ConfigError(f"job {job.name!r} has committed nothing yet: write the number of partitions into its code")
    for count in range(1, max(counts) + 1):
        if last.fingerprint in job.of(count, stage).topology().fingerprints():
            return count
    raise ConfigError(
        f"job {job.name!r} has run with other stages, or with more than the {max(counts)} partitions of its topics: "
        "rescale with the code it ran with"
    )


def rescale(
    log: JobLog,
    job: Job,
    partitions: int,
    settings: Settings,
    *,
    embedded: bool,
    assume_keyed: bool = False,
    stage: str | None = None,
) -> Moved:
    """Give a stopped job more partitions; each entry moves to its key's partition. Then its code must say so.

    ``stage``: the one that gets them; None: all that have no number of their own. ``assume_keyed``: the caller knows
    that the stores are keyed as the records are, where the keys cannot show it. Raises ConfigError, before anything is
    changed, for what cannot be rescaled.
    """
    _refuse_kinds(job, partitions)
    before = partitions_of(log, job, stage)
    old, new = job.of(before, stage), job.of(partitions, stage)
    check_whole(old, log)
    if partitions <= before:
        whose = f"job {job.name!r}" if stage is None else f"stage {stage!r} of job {job.name!r}"
        raise ConfigError(
            f"{whose} has {before} partitions, and topics cannot lose any: rescale to more than that, or write a job "
            f"of {partitions} under another name, on Kafka with other input topics, too, and: grete fork"
        )
    refuse_if_owned(log, old, settings)
    lasts = [_last(log, wiring) for wiring in all_wirings(old)]
    check_used_up([(wiring, snapshot.commit) for wiring, snapshot in zip(all_wirings(old), lasts, strict=True)])
    check_inputs(log, old, [snapshot.commit for snapshot in lasts])
    places = placed_by(log.read_metadata(job.name), old)
    if not embedded:
        _check_topics(log, new)
    check_keys(log, old, lasts, new, places, assume_keyed=assume_keyed)
    _note_ends(log, old, new, before, stage)
    _grow(log, new, embedded=embedded)
    # all is committed and processed: no output comes a second time
    repin_outputs(new, log, log.open_metadata(job.name))
    bulk_write = begin(log, new, settings)
    try:
        claimed = _claimed(log, old, bulk_write)
        if [each.commit for each in claimed] != [each.commit for each in lasts]:  # by a worker that was not seen
            lasts, places = claimed, placed_by(log.read_metadata(job.name), old)
            check_keys(log, old, lasts, new, places, assume_keyed=assume_keyed)
            _note_ends(log, old, new, before, stage)
        check_inputs(log, old, [snapshot.commit for snapshot in lasts])
        written, entries = spread_state(log, old, lasts, log, bulk_write, new, places)
        commit(log, bulk_write, written, settings=settings, full=True)
    except BaseException:
        give_up(log, bulk_write)
        raise
    pin_graph(new, log.open_metadata(job.name))
    return Moved(bulk_write.checkpoint_id, entries)


def _refuse_kinds(job: Job, partitions: int) -> None:
    """Refuse jobs of a kind that keeps its number of partitions."""
    if "deterministic" in job.modes:
        raise ConfigError(
            f"job {job.name!r} is deterministic: it cannot be rescaled once it has run: run its inputs through a job "
            "of another name with more partitions"
        )
    for each in job.stages:
        if whole := each.topics_broadcast():
            raise ConfigError(
                f"stage {each.name} reads all of topic {min(whole)} in each task (broadcast=True), so its state does "
                f"not move with its keys: start a job of another name with Job(…, partitions={partitions}): it reads "
                "its inputs from their first records",
                stage=each.name,
                topic=min(whole),
            )


def _note_ends(log: JobLog, old: Job, new: Job, before: int, stage: str | None) -> None:
    topology = old.topology()
    tasks = [task for task, now in _with_counts(old, new) if task[0].partitions != now]
    inputs = {each for graph, number in tasks for each in topology.external_partitions(graph.ordinal, number)}
    pin_rescale(log, new, before, {partition: log.bounds(partition)[1] for partition in sorted(inputs)}, stage)


def _with_counts(old: Job, new: Job) -> list[tuple[tuple[StageGraph, int], int]]:
    """Return (task, partitions that its stage is to have) of a job's tasks."""
    return [(task, new.stages[task[0].ordinal].partitions) for task in old.tasks()]


def _claimed(log: JobLog, old: Job, bulk_write: BulkWrite) -> list[Snapshot]:
    """Return the tasks of a job at the commits that a bulk write's claims have found: nothing can follow these (C2)."""
    bases = {task.wiring.changelog: task for task in bulk_write.tasks}
    found = []
    for wiring in all_wirings(old):
        task = bases[wiring.changelog]
        if task.base is None:
            raise ConfigError(f"{wiring.name} has committed nothing yet: run the job until it has", task=wiring.name)
        begin_at = max(log.bounds(wiring.changelog)[0], task.base.base)
        found.append(Snapshot(wiring.name, wiring.changelog, task.base_offset, begin_at, task.base))
    return found


def spread_state(
    log: JobLogReader,
    old: Job,
    snapshots: list[Snapshot],
    into: JobLog,
    bulk_write: BulkWrite,
    new: Job,
    places: Places,
) -> tuple[list[Written], Counter[str]]:
    """Write all state of a job, over the numbers of partitions of ``new``; return the attempts, and entries.

    The state of a stage whose number is the same stays where it is.
    """
    entries: Counter[str] = Counter()
    attempts = [
        Attempt(into, bulk_write, at, 1, sorted(store_names(old.stages[graph.ordinal])))
        for at, (graph, _) in enumerate(new.tasks())
        if graph.ordinal < len(old.stages)
    ]
    for graph in old.stages:
        names, stream_times = store_names(graph), []
        own, partitions = attempts[new.tasks_of(graph.ordinal)], new.stages[graph.ordinal].partitions
        for at, snapshot in enumerate(snapshots[old.tasks_of(graph.ordinal)]):
            place = places[graph.ordinal] if partitions != graph.partitions else _staying(at)
            for stores, keys, values in chunks(entries_of(log, graph, snapshot)):
                stream_times += [
                    v for s, k, v in zip(stores, keys, values, strict=True) if (s, k) == (META, STREAM_TIME)
                ]
                for number, chunk in _placed(stores, keys, values, partitions, place).items():
                    own[number].add(*chunk)
                    entries.update(f"{graph.name}/{names[store]}" for store in chunk[0] if store != META)
        if stream_times:  # the least: no window or timer of a slower partition may be taken for late
            least = min(value for value in stream_times if value is not None)
            for attempt in own:
                attempt.add([META], [STREAM_TIME], [least])
    return [attempt.close() for attempt in attempts], entries


def _staying(partition: int) -> Placement:
    return lambda _key, _partitions: partition


def _placed(
    stores: list[int], keys: list[bytes], values: list[bytes | None], partitions: int, partition_for: Placement
) -> dict[int, tuple[list[int], list[bytes], list[bytes | None]]]:
    """Return the entries by new partition. Names of stores go everywhere; turns and event time do not."""
    placed: dict[int, tuple[list[int], list[bytes], list[bytes | None]]] = {}
    for store, key, value in zip(stores, keys, values, strict=True):
        if store == META:
            numbers = range(0 if key in (STREAM_TIME, TURN) or key.startswith(EVENT_TIME) else partitions)
        else:
            numbers = range(at := partition_for(key_of_entry(store, key), partitions), at + 1)
        for number in numbers:
            into = placed.setdefault(number, ([], [], []))
            into[0].append(store)
            into[1].append(key)
            into[2].append(value)
    return placed


def key_of_entry(store: int, key: bytes) -> bytes:
    """Return the part of an entry's key that is a record's: of a timer, what the task has called it."""
    return key[_TIMER_NAME + 1 + key[_TIMER_NAME] :] if store == TIMERS else key


def _last(log: JobLogReader, wiring: TaskWiring) -> Snapshot:
    found = newest(log, wiring)  # a bulk write that died is rolled back by the one to come
    if found is None:
        raise ConfigError(f"{wiring.name} has committed nothing yet: run the job until it has", task=wiring.name)
    return found


def check_inputs(log: JobLogReader, old: Job, lasts: list[Commit]) -> None:
    """Refuse unless every record is processed, because its key's state moves and it does not.

    Refuse windows, joins and what inputs remember, too: they are kept by partition.
    """
    for last in lasts:
        for entry in last.external:
            at = TopicPartition(entry.topic, entry.partition)
            if next(rows(log, at, entry.offset, log.bounds(at)[1]), None) is not None:
                raise ConfigError(
                    f"{at} has records from offset {entry.offset:,} on that the job has not read: stop what writes "
                    "there, and run the job until its input is processed (grete run), then ask again",
                    partition=at,
                    offset=entry.offset,
                )
    for stage in old.stages:
        for each in stage.stateful.values():
            has = f"stage {stage.name} has {each.what}s"
            why = ", closed by a partition's event time" if each.by_time else ""
            raise ConfigError(f"{has}{why}: {_BACKFILL}", stage=stage.name)
        if stage.seen:
            topic = next(iter(stage.seen))
            raise ConfigError(
                f"stage {stage.name} drops duplicates of topic {topic}, and an id does not tell in which partition its "
                f"record will be: {_BACKFILL}",
                stage=stage.name,
                topic=topic,
            )


def _check_topics(log: JobLogReader, new: Job) -> None:
    """Refuse unless the inputs, which are others' on Kafka, have their partitions already."""
    for topic in dict.fromkeys(topic for stage in new.stages for topic in new.topology().externals_of(stage.ordinal)):
        found, partitions = log.partitions(topic), new.count_of(topic)
        if found != partitions:
            raise ConfigError(
                f"topic {topic} has {found} partitions: give it {partitions} while nothing writes there: "
                f"kafka-topics.sh --alter --topic {topic} --partitions {partitions}",
                topic=topic,
            )


_BACKFILL = "it cannot be rescaled; run its history through a job with other partitions instead: grete backfill"


def check_keys(
    log: JobLogReader, old: Job, lasts: list[Snapshot], new: Job, places: Places, *, assume_keyed: bool
) -> None:
    """Refuse a store whose keys do not tell where they belong in ``new``, by what is there now."""
    seen, counts = Counter[str](), dict[str, int]()
    for ((graph, partition), now), snapshot in zip(_with_counts(old, new), lasts, strict=True):
        names, count = store_names(graph), graph.partitions
        for store, key, _ in entries_of(log, graph, snapshot):
            name = f"{graph.name}/{names[store]}"
            if store == OUTBOX:
                raise ConfigError(
                    f"stage {graph.name} writes files or tables, task by task: {_BACKFILL}", stage=graph.name
                )
            if store == META or now == count:
                continue
            if (belongs := places[graph.ordinal](key_of_entry(store, key), count)) != partition:
                raise ConfigError(
                    f"store {name}: key {key!r} is in partition {partition}, and its own key would be in "
                    f"{belongs}: it is not keyed as the records are: {_BACKFILL}",
                    stage=graph.name,
                )
            seen[name] += 1
            counts[name] = count
    for name, keys in seen.items():
        count = counts[name]
        if keys * (count.bit_length() - 1) < BITS_MIN and not assume_keyed:
            raise ConfigError(
                f"cannot tell from {keys} key{'s' * (keys != 1)} in {count} partition{'s' * (count != 1)} whether the "
                f"keys of store {name} are the records' keys: if you know that they are, add --assume-keyed"
            )


def _grow(log: JobLog, new: Job, *, embedded: bool) -> None:
    """Give every topic of the job its partitions."""
    topology = new.topology()
    for stage in topology.stages:
        log.create_topic(topology.changelog(stage.ordinal), stage.partitions, grow=True)
    for stream in topology.streams:
        log.create_topic(stream.topic, stream.partitions, grow=True)
    if embedded:
        inputs = (topic for stage in topology.stages for topic in topology.externals_of(stage.ordinal))
        for topic in (*inputs, *new.external_sinks()):
            count = max(new.count_of(topic), log.partitions(topic) or 0)
            log.create_topic(topic, count, plain=True, grow=True)
