"""Apply: what the plan of a changed job says, done while no worker runs, as a whole or not at all.

Stores that are dropped are a matter of the pins alone. A graph that changes needs a commit of each task with its new
streams: a bulk write without data, at a checkpoint in which all records between stages are processed. State is not
moved. The outcome of the bulk write decides; the new pins are noted before, and put into place behind it
(grete.state.pins.pins). Numbers, names and ids of what is dropped are kept (grete.api.jobs.dropped).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from grete.api.jobs.definition import Definition, define, encode_definition, take_over
from grete.api.jobs.dropped import define_dropped, dropped_of
from grete.api.jobs.job import Job
from grete.api.tasks.mode import Mode
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Topology
from grete.errors import ConfigError
from grete.execution.timing.reserved_stores import OUTBOX, WAITING
from grete.job.directory import JobDirectory
from grete.job.topics import missing_topics
from grete.ports import JobLog
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.pins.graph_pinning import GRAPH, encode_graph
from grete.state.pins.pinning import DEFINED, copy_definition, output_counts
from grete.state.pins.pins import APPLY, note_apply, put_in_place
from grete.state.pins.plan import (
    By,
    PlanRow,
    StageChanges,
    compare_stages,
    dropped_stores,
    pinned_of,
    rewires,
    without_dropped,
)
from grete.state.pins.start_pinning import pin_starts
from grete.state.read.checkpoints.snapshots import contents, live, newest, segments
from grete.state.read.owners import NONE_ENDED, refuse_if_owned
from grete.state.write.bulk.bulk_write import begin, check_used_up, commit
from grete.state.write.bulk.task_claim import claim
from grete.state.write.moving.entries import give_up


def wirings_of(pinned: Topology) -> list[TaskWiring]:
    """Return the wiring of every task that a job has had until now, without its inputs from outside."""
    return [wire(pinned, stage.ordinal, number) for stage in pinned.stages for number in range(stage.partitions)]


def apply(
    job: Job,
    log: JobLog,
    directory: JobDirectory,
    settings: Settings,
    rows: Sequence[PlanRow],
    *,
    ended: Mapping[str, int] = NONE_ENDED,
) -> None:
    """Do what the plan of a job says; ``job`` has the numbers of what stays then. None of its workers may run.

    ``ended``: task → a generation whose process is known to have ended.
    Raises ConfigError, before anything is changed: a change is refused, a worker is at work, records are on their way,
    or outputs of a stage that is dropped wait for their sink. Raises Fenced: a worker has started meanwhile.
    """
    for row in rows:
        if row.by is By.REFUSED:
            raise ConfigError(f"{row.what}: {row.way}")
    definition, pinned = pinned_of(job, log)
    stages, old = compare_stages(pinned, definition, job), wirings_of(pinned)
    refuse_if_owned(log, old, settings, ended)
    take_over(_with_dropped(definition, pinned, stages, job), job)
    if rewires(rows):
        raw = _rewire(job, log, directory, settings, old, stages)
    else:
        raw = encode_definition(define(job, output_counts(job, log)))
        log.open_metadata(job.name).produce_with_meta([], {DEFINED: raw}, sync=True)
    copy_definition(raw, directory.state_directory)


def _with_dropped(definition: Definition, pinned: Topology, stages: StageChanges, job: Job) -> Definition:
    """Return the definition of what stays, with all that has ever been dropped."""
    before = dropped_of(definition)
    gone: dict[int, tuple[str, Mode]] = {
        stage.ordinal: (stage.name, "aligned") for stage in pinned.stages if stage.name in stages.dropped
    }
    stores = {stage: dict(ids) for stage, ids in before.stores.items() if stage not in stages.dropped}
    for each in definition["stages"]:
        for entry in dropped_stores(each, job):
            stores.setdefault(each["name"], {})[entry["name"]] = entry["id"]
    dropped = replace(before, stages={**before.stages, **gone}, stores=stores)
    return without_dropped(definition, stages, job) | define_dropped(dropped)


def _rewire(
    job: Job, log: JobLog, directory: JobDirectory, settings: Settings, old: Sequence[TaskWiring], stages: StageChanges
) -> bytes:
    """Give each task a commit with the streams that it has now; return the new definition."""
    gone = [wiring for wiring in old if wiring.name.rpartition("-")[0] in stages.dropped]
    _check_drained(log, old, gone)
    metadata = log.open_metadata(job.name)
    fed = () if directory.address.on_kafka else None
    for topic, partitions, plain in missing_topics(job, log, fed, metadata=metadata):
        log.create_topic(topic, partitions, plain=plain)
    pin_starts(job, log, metadata)
    claimed = {each.changelog: each.base for each in [claim(log, wiring) for wiring in gone]}
    bulk_write = begin(log, job, settings)
    bulk_write = replace(bulk_write, bulk_write_id=bulk_write.bulk_write_id + APPLY)
    try:
        claimed |= {task.changelog: task.base for task in bulk_write.tasks}
        check_used_up([(wiring, claimed[wiring.changelog]) for wiring in old])  # a worker that was not seen is fenced
        raw = encode_definition(define(job, output_counts(job, log)))
        first = job.stages[0].name
        note_apply(metadata, bulk_write.bulk_write_id, first, {GRAPH: encode_graph(job.topology()), DEFINED: raw})
        commit(log, bulk_write, (), settings=settings, full=False, external=_new_inputs(job, claimed))
    except BaseException:
        give_up(log, bulk_write)
        raise
    put_in_place(log, job.name, metadata)
    return raw


def _check_drained(log: JobLog, old: Sequence[TaskWiring], gone: Sequence[TaskWiring]) -> None:
    """Refuse records that are between two stages, and outputs of a dropped stage that no sink has yet."""
    lasts = [newest(log, wiring) for wiring in old]
    check_used_up([(wiring, None if last is None else last.commit) for wiring, last in zip(old, lasts, strict=True)])
    for wiring, last in zip(old, lasts, strict=True):
        if wiring in gone and last is not None:
            outbox = live(contents(segments(log, last), frozenset({OUTBOX}))[OUTBOX])[0]
            if any(key.startswith(WAITING) for key in outbox):
                raise ConfigError(
                    f"{wiring.name} has outputs that its sink has not got yet, and its stage is to be dropped: start "
                    "the code of before, let it process its input, then ask again",
                    task=wiring.name,
                )


def _new_inputs(job: Job, claimed: Mapping[TopicPartition, Commit | None]) -> dict[TopicPartition, int]:
    """Return the offsets at which inputs from outside begin that no task has read yet."""
    topology, begins = job.topology(), dict[TopicPartition, int]()
    for stage, number in job.tasks():
        base = claimed.get(TopicPartition(topology.changelog(stage.ordinal), number))
        known = {TopicPartition(e.topic, e.partition) for e in (() if base is None else base.external)}
        for partition in topology.external_partitions(stage.ordinal, number):
            if partition not in known and partition in topology.starts.get(stage.ordinal, {}):
                begins[partition] = topology.starts[stage.ordinal][partition]
    return begins
