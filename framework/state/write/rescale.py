"""Rescale: a job's state over more partitions.

The committed state is read from the changelogs (grete.state.read.checkpoints.snapshots) and written as a bulk write,
which counts as a whole or not at all (grete.state.write.bulk.bulk_write). Which partition an entry belongs to is the
hard part of a rescale: a store's partition is that of the records that were processed, which its keys need not tell. So
they are looked at first.
"""

import contextlib
from collections.abc import Mapping

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, GraphError
from grete.job.key_metadata import placed_by
from grete.job.metadata import pin_rescale
from grete.logs.open_transactions import refuse_open
from grete.logs.partition_reader import rows
from grete.ports import JobLog, JobLogReader
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.pins.graph_pinning import check_whole, pin_graph
from grete.state.pins.pinning import repin_outputs
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import Snapshot, fold_to_end, newest
from grete.state.read.owners import NONE_ENDED, refuse_if_owned
from grete.state.write.bulk.bulk_write import begin, check_used_up, commit
from grete.state.write.bulk.bulk_write_attempt import BulkWrite
from grete.state.write.moving.entries import MovedEntries, give_up
from grete.state.write.moving.key_origin import check_origin
from grete.state.write.moving.mover import InProcess, Mover
from grete.state.write.moving.routes import routes_of

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
        with contextlib.suppress(GraphError):  # one that does not divide the partitions of an input: it was none
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
    own_topics: bool,
    assume_keyed: bool = False,
    stage: str | None = None,
    mover: Mover | None = None,
    ended: Mapping[str, int] = NONE_ENDED,
) -> MovedEntries:
    """Give a stopped job more partitions; each entry moves to its key's partition. Then its code must say so.

    ``stage``: the one that gets them; None: all that have no number of their own. ``assume_keyed``: the caller knows
    that the stores are keyed as the records are, where the keys cannot show it. ``mover``: by whom the state is read
    and written; None: by this process. ``ended``: as of ``refuse_if_owned``. Raises ConfigError, before anything is
    changed, for what cannot be rescaled.
    """
    mover = mover or InProcess(log, log)
    _refuse_kinds(job, partitions)
    before = partitions_of(log, job, stage)
    old, new = job.of(before, stage), job.of(partitions, stage)
    check_whole(old, log)
    _refuse_fewer(job, stage, before, partitions)
    refuse_if_owned(log, all_wirings(old), settings, ended)
    lasts = [last_of(log, wiring) for wiring in all_wirings(old)]
    check_used_up([(wiring, snapshot.commit) for wiring, snapshot in zip(all_wirings(old), lasts, strict=True)])
    check_inputs(log, [snapshot.commit for snapshot in lasts])
    places = placed_by(log.read_metadata(job.name), old)
    if not own_topics:
        _check_topics(log, new)
    routes = routes_of(old, new, lasts, places)
    mover.check(routes, assume_keyed=assume_keyed)
    check_origin(log, old, routes)
    _note_ends(log, old, new, before, stage)
    _grow(log, new)
    bulk_write = begin(log, new, settings)
    try:
        claimed = claimed_at(log, old, bulk_write)
        if [each.commit for each in claimed] != [each.commit for each in lasts]:  # by a worker that was not seen
            lasts, places = claimed, placed_by(log.read_metadata(job.name), old)
            routes = routes_of(old, new, lasts, places)
            mover.check(routes, assume_keyed=assume_keyed)
            _note_ends(log, old, new, before, stage)
        check_inputs(log, [snapshot.commit for snapshot in lasts])
        written, entries = mover.write(routes, bulk_write)
        external = _to_come(log, new) | _moved(lasts, new)
        changelog_positions = commit(log, bulk_write, written, settings=settings, full=True, external=external)
    except BaseException:
        give_up(log, bulk_write)
        raise
    metadata = log.open_metadata(job.name)
    pin_graph(new, metadata)
    if own_topics:
        _grow_outside(log, new)
    repin_outputs(new, log, metadata)  # all was committed and processed: no output comes a second time
    mover.committed(changelog_positions)
    return MovedEntries(bulk_write.checkpoint_id, entries)


def _refuse_kinds(job: Job, partitions: int) -> None:
    """Refuse jobs of a kind that keeps its number of partitions."""
    if "deterministic" in job.modes:
        raise ConfigError(
            f"job {job.name!r} is deterministic: it cannot be rescaled once it has run: stop what writes its inputs, "
            f"write a job of another name with partitions={partitions}, on Kafka with other input topics, too, and: "
            "grete fork"
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


def _refuse_fewer(job: Job, stage: str | None, before: int, partitions: int) -> None:
    if partitions <= before:
        whose = f"job {job.name!r}" if stage is None else f"stage {stage!r} of job {job.name!r}"
        raise ConfigError(
            f"{whose} has {before} partitions, and topics cannot lose any: rescale to more than that, or write a job "
            f"of {partitions} under another name, on Kafka with other input topics, too, and: grete fork"
        )


def _note_ends(log: JobLog, old: Job, new: Job, before: int, stage: str | None) -> None:
    topology = old.topology()
    tasks = [task for task in old.tasks() if task[0].partitions != new.stages[task[0].ordinal].partitions]
    inputs = {each for graph, number in tasks for each in topology.external_partitions(graph.ordinal, number)}
    inputs = {each for each in inputs if each.topic not in topology.counts}  # there keys stay in their partitions
    ends = {partition: end for partition, (_, end) in log.all_bounds(sorted(inputs)).items()}
    pin_rescale(log, new, before, ends, stage)


def claimed_at(log: JobLog, old: Job, bulk_write: BulkWrite) -> list[Snapshot]:
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


def last_of(log: JobLogReader, wiring: TaskWiring) -> Snapshot:
    """Return a task at its last commit. Raises ConfigError: it has none."""
    found = newest(log, wiring)  # a bulk write that died is rolled back by the one to come
    if found is None:
        raise ConfigError(f"{wiring.name} has committed nothing yet: run the job until it has", task=wiring.name)
    return found


def check_inputs(log: JobLogReader, lasts: list[Commit]) -> None:
    """Refuse unless every record is processed, because its key's state moves and it does not."""
    places = {TopicPartition(entry.topic, entry.partition) for last in lasts for entry in last.external}
    refuse_open(log, places, "the job has not read all of its input")
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


def _grow(log: JobLog, new: Job) -> None:
    """Give the changelogs and streams their partitions; a job that goes on with fewer leaves the others alone."""
    topology = new.topology()
    for stage in new.live:
        log.create_topic(topology.changelog(stage.ordinal), stage.partitions, grow=True)
    for stream in topology.streams:
        log.create_topic(stream.topic, stream.partitions, grow=True)


def _to_come(log: JobLogReader, new: Job) -> dict[TopicPartition, int]:
    """Return the partitions of inputs that are still to be made, each with its first offset."""
    wanted = {partition for wiring in all_wirings(new) for partition in wiring.external}
    return {
        partition: 0 for partition in sorted(wanted) if partition.partition >= (log.partitions(partition.topic) or 0)
    }


def _moved(lasts: list[Snapshot], new: Job) -> dict[TopicPartition, int]:
    """Return the positions in the topics whose partitions go from one task to another (A2f): all is read to its end."""
    entries = (entry for last in lasts for entry in last.commit.external if entry.topic in new.topology().counts)
    return {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}


def _grow_outside(log: JobLog, new: Job) -> None:
    """Give topics outside that the job makes their partitions, once the rescale counts: writers use all there are.

    If this process dies before, the next start does it (grete.job.topics).
    """
    topology = new.topology()
    inputs = (topic for stage in topology.stages for topic in topology.externals_of(stage.ordinal))
    for topic in (*inputs, *new.external_sinks()):
        count = max(new.count_of(topic), log.partitions(topic) or 0)
        log.create_topic(topic, count, plain=True, grow=True)
