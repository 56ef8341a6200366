"""The plan of a changed job: each change of its code, who makes it, and what happens to state and to records in flight.

It compares the code with what the first start has pinned, and reads the log only. ``grete plan`` shows it, and
``grete apply`` (grete.state.write.apply) does what it says.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from grete.api.jobs.definition import Definition, changes_of_broadcast, changes_of_job, define, times_before
from grete.api.jobs.job import Job
from grete.api.jobs.versions import NEWEST, in_two_ways, serdes_of
from grete.api.topics.input_arguments import times_of
from grete.core.graph.topology import Topology
from grete.errors import ConfigError
from grete.job.metadata import check_guarantee, pinned_settings
from grete.ports import JobLogReader
from grete.settings import Settings
from grete.state.pins.ahead import ahead
from grete.state.pins.graph_pinning import check_commits, edges_of, pinned_graph, way_to_count
from grete.state.pins.pinning import DEFINED, know_dropped, pinned_definition
from grete.state.pins.pins import pin_of

_STAYS = "stays as it is"
_NOTHING = "nothing is changed"
_REFUSED = "stays as it is: the code of before goes on"
_DRAINED = "there must be none: first let grete run process all input"
_OTHER_NAME = "give the job another name: it begins from its inputs, or from their history (grete backfill)"


class By(StrEnum):
    """The step that makes a change."""

    START = "start"  # the next start with this code, of itself
    APPLY = "apply"  # grete apply, while the job is stopped
    REFUSED = "refused"


class PlanRow(NamedTuple):
    """One change. ``state``, ``in_flight``: what happens to the state, and to records between stages; ``way``: advice.

    ``way`` says what works instead of a change that is refused, else it is empty.
    """

    what: str
    by: By
    state: str
    in_flight: str
    way: str = ""


class StageChanges(NamedTuple):
    """The names of the stages that both have, and of those that only the code or only the log has, in their order."""

    kept: list[str]
    added: list[str]
    dropped: list[str]


def plan_of(job: Job, log: JobLogReader, settings: Settings) -> list[PlanRow]:
    """Return all that differs between a job's code and what the log has pinned; empty: the code starts as it is.

    Raises ConfigError: the job has not run, has run with a release that pinned nothing, or has dropped what is here;
    and, as Halted, what keeps every code from a start: a damaged changelog, or one that something else has written to.
    """
    know_dropped(job, log)
    definition, pinned = pinned_of(job, log)
    check_commits(job, log)
    job.count_broadcast(log.partitions)
    stages = compare_stages(pinned, definition, job)
    kept_graph = _keeps_graph(pinned, job, log)
    rows = [
        *_stages(stages, pinned, job, kept_graph),
        *_modes(stages, pinned, job),
        *_partitions(stages, pinned, job),
        *_edges(stages, pinned, job, kept_graph),
        *_inputs(stages, definition, pinned, job),
        *_outputs(definition, job),
        *_stores(definition, job),
        *_times(definition, job),
        *_others(without_dropped(definition, stages, job), job),
    ]
    if not rows:
        rows += _guarantee(job, log, settings)
    return [*rows, *_serdes(definition, job), *_ahead(pinned, log)]


def pinned_of(job: Job, log: JobLogReader) -> tuple[Definition, Topology]:
    """Return the definition and the graph that a job has in the log. Raises ConfigError: it has none."""
    definition, pinned = pinned_definition(job, log), pinned_graph(job, log)
    if definition is None and pin_of(log, job.name, DEFINED) is not None:
        raise ConfigError(
            f"job {job.name!r} has committed nothing of the code that it was first started with: there is nothing to "
            "compare with, and a start takes this code"
        )
    if definition is None or pinned is None:
        raise ConfigError(
            f"job {job.name!r} has no definition in this log to compare with: check its name and --log; a job that "
            "has run with an older release only is to be started once with the code that it ran with"
        )
    return definition, pinned


def compare_stages(pinned: Topology, definition: Definition, job: Job) -> StageChanges:
    """Return the stages that are in both, only in the code, and only in the log.

    One that was added and never committed does not bind: it is not in ``definition``.
    """
    before, now = [stage.name for stage in pinned.stages if stage.partitions], [stage.name for stage in job.live]
    binding = {stage["name"] for stage in definition["stages"]}
    return StageChanges(
        [name for name in before if name in now],
        [name for name in now if name not in before],
        [name for name in before if name not in now and name in binding],
    )


def without_dropped(definition: Definition, stages: StageChanges, job: Job) -> Definition:
    """Return a definition without the stages and stores that the code has no more: what grete apply would drop."""
    kept = []
    for each in definition["stages"]:
        if each["name"] not in stages.dropped:
            lost = {entry["name"] for entry in dropped_stores(each, job)}
            kept.append({**each, "stores": [entry for entry in each["stores"] if entry["name"] not in lost]})
    return {**definition, "stages": kept}


def dropped_stores(before: Definition, job: Job) -> list[Definition]:
    """Return the stores of a stage's definition that its code has no more; not what its inputs remember."""
    stage = next((each for each in job.live if each.name == before["name"]), None)
    if stage is None:
        return []
    names = {*stage.store_names(), *(f"seen-{topic}" for topic in before["inputs"])}
    return [entry for entry in before["stores"] if entry["name"] not in names]


def rewires(rows: Sequence[PlanRow]) -> bool:
    """Tell whether a plan changes the graph, so that all records between stages must be processed before."""
    return any(row.by is By.APPLY and row.in_flight == _DRAINED for row in rows)


def _keeps_graph(pinned: Topology, job: Job, log: JobLogReader) -> str:
    """Return the reason why a job cannot change its graph but by stages that are added last; empty: it can."""
    if pinned.deterministic or "deterministic" in job.modes:
        return (
            "a deterministic stage keeps its graph: what it makes again after a crash must be what it sent before; "
            f"put the graph back; or {_OTHER_NAME}"
        )
    settings = pinned_settings(job, log, Settings())
    if not settings.aligned:
        guarantee = settings.processing_guarantee
        return f"a job {guarantee} has no checkpoint of all its tasks: put the graph back; or {_OTHER_NAME}"
    return ""


def _graph_row(what: str, state: str, kept_graph: str) -> PlanRow:
    """Return the row of a change of the graph."""
    if kept_graph:
        return PlanRow(what, By.REFUSED, _REFUSED, _NOTHING, kept_graph)
    return PlanRow(what, By.APPLY, state, _DRAINED)


def _stages(stages: StageChanges, pinned: Topology, job: Job, kept_graph: str) -> Iterator[PlanRow]:
    """Yield the stages that were added or dropped."""
    old = set(stages.kept)
    names = [stage.name for stage in job.stages]
    fed = {names[s.producer] for s in job.topology().streams if names[s.consumer] in old}
    for name in stages.added:
        if name in fed:
            what = f"stage {name!r} is new and writes what a stage of before reads"
            yield _graph_row(what, "begins empty", kept_graph)
        else:
            in_flight = "records processed before are not sent to it; later ones are"
            yield PlanRow(f"stage {name!r} is new", By.START, "begins empty", in_flight)
    for name in stages.dropped:
        what = f"stage {name!r} is gone"
        if _number(pinned, name) == 0:
            way = f"its changelog says which bulk writes count: keep it, and let it drop its records; or {_OTHER_NAME}"
            yield PlanRow(what, By.REFUSED, _REFUSED, _NOTHING, way)
        else:
            state = "given up, with its stores, windows and timers; its changelog stays until you delete the topic"
            yield _graph_row(what, state, kept_graph)


def _modes(stages: StageChanges, pinned: Topology, job: Job) -> Iterator[PlanRow]:
    modes = ("aligned", "deterministic")
    for name in stages.kept:
        was = modes[_number(pinned, name) in pinned.deterministic]
        now = job.stage(name).mode
        if was != now:
            what = f"stage {name!r} was {was} and is {now}"
            yield PlanRow(what, By.REFUSED, _REFUSED, _NOTHING, f"put its mode back; or {_OTHER_NAME}")


def _partitions(stages: StageChanges, pinned: Topology, job: Job) -> Iterator[PlanRow]:
    """Yield the other numbers of partitions; stages that follow their job change with it, in one row."""
    told = set[tuple[bool, int, int]]()
    for name in stages.kept:
        stage, before = job.stage(name), pinned.stages[_number(pinned, name)].partitions
        if stage.partitions == before or (stage.follows_job and (True, before, stage.partitions) in told):
            continue
        told.add((stage.follows_job, before, stage.partitions))
        whose = f"job {job.name!r}" if stage.follows_job else f"stage {name!r}"
        option = "" if stage.follows_job else f" --stage={name}"
        yield PlanRow(
            f"{whose} had {before} partitions and has {stage.partitions}",
            By.REFUSED,
            _REFUSED,
            _NOTHING,
            f"write {stage.declared_with(before)}; {way_to_count(stage.partitions, before, option, job)}",
        )


def _edges(stages: StageChanges, pinned: Topology, job: Job, kept_graph: str) -> Iterator[PlanRow]:
    """Yield the streams between two stages of before that have come or gone."""
    old, new = edges_of(pinned, stages.kept), edges_of(job.topology(), stages.kept)
    yield from (_graph_row(f"{edge} is gone", _STAYS, kept_graph) for edge in sorted(old - new))
    yield from (_graph_row(f"{edge} is new", _STAYS, kept_graph) for edge in sorted(new - old))


def _inputs(stages: StageChanges, definition: Definition, pinned: Topology, job: Job) -> Iterator[PlanRow]:
    """Yield the topics from outside that a stage of before reads newly, or no longer."""
    described = {stage["name"]: stage for stage in definition["stages"]}
    for name in stages.kept:
        if name not in described:
            continue
        inside = {stream.user_topic for stream in pinned.streams_into(_number(pinned, name))}
        before = {*described[name]["inputs"]} - inside
        now = {*job.topology().externals_of(job.stage(name).ordinal)}
        for topic in sorted(before - now):
            way = "read it as before, and drop its records in process"
            yield PlanRow(
                f"stage {name!r} no longer reads topic {topic!r} from outside", By.REFUSED, _REFUSED, _NOTHING, way
            )
        for topic in sorted(now - before):
            what = f"stage {name!r} reads topic {topic!r} from outside"
            if topic in inside:
                way = "no stage writes it any more: let the stage read another topic, or drop it, too"
                yield PlanRow(what, By.REFUSED, _REFUSED, _NOTHING, way)
            else:
                yield PlanRow(what, By.START, _STAYS, _NOTHING)


def _outputs(definition: Definition, job: Job) -> Iterator[PlanRow]:
    """Yield the topics for readers outside that have come or gone."""
    before, now = {*definition["public"], *definition.get("patterns", ())}, {*job.external_sinks(), *job.patterns()}
    read = {topic.name for stage in job.stages for topic in stage.topics_read()}
    for topic in sorted(before - now - read):
        what = f"output topic {topic!r} is no longer written"
        yield PlanRow(what, By.START, _STAYS, "what was written stays for its readers")
    for topic in sorted(now - before):
        yield PlanRow(f"output topic {topic!r} is new", By.START, _STAYS, "it gets the records from then on")


def _stores(definition: Definition, job: Job) -> Iterator[PlanRow]:
    """Yield the stores, windows and joins that are new, or have another name or a wider type."""
    now = {stage["name"]: stage for stage in define(job, {})["stages"]}
    for before in definition["stages"]:
        stage = now.get(before["name"])
        if stage is None:
            continue
        if before.get("shown", "") != stage.get("shown", ""):
            was, is_ = (each.get("shown") or each["name"] for each in (before, stage))
            state = f"stays: topics and directories keep the name {stage['name']!r}"
            yield PlanRow(f"stage {was!r} is called {is_!r} now", By.START, state, "stay: the streams are the same")
        had = {entry["name"]: entry for entry in _entries(before)}
        for entry in dropped_stores(before, job):
            what = f"store {stage['name']}/{entry['name']} is gone"
            yield PlanRow(what, By.APPLY, "given up; the other stores stay", _NOTHING)
        for entry in _entries(stage):
            yield from _entry(f"{stage['name']}/{entry['name']}", had.get(entry["name"]), entry)


def _entry(where: str, before: Definition | None, now: Definition) -> Iterator[PlanRow]:
    if before is None:
        yield PlanRow(f"{where} is new", By.START, "begins empty", _NOTHING)
        return
    if before.get("shown") != now.get("shown"):
        state = f"stays: its column family keeps the name {now['name']!r}"
        yield PlanRow(f"{where} is called {now.get('shown') or now['name']!r} now", By.START, state, _NOTHING)


def _entries(stage: Definition) -> list[Definition]:
    return [*stage["stores"], *stage["windows"], *stage.get("composed", ())]


def _times(definition: Definition, job: Job) -> Iterator[PlanRow]:
    """Yield the inputs that say nothing of their time and keep another one than a new job's would have."""
    before = times_before(definition)
    for stage in job.live:
        kept, new = (times_of(stage.inputs.values(), pins) for pins in (before.get(stage.name, {}), {}))
        for each in stage.inputs.values():
            topic = each.topic.name
            if kept.get(topic) == new.get(topic):
                continue
            goes, time = ("does not go", "none") if topic in kept else ("goes", "record")
            what = f"stage {stage.name!r}: event time {goes} by topic {topic!r}, as it did when the job began; "
            what += "a new job's would be the other way"
            yield PlanRow(what, By.START, _STAYS, _NOTHING, f'write time="{time}", and nothing differs')


def _others(kept: Definition, job: Job) -> Iterator[PlanRow]:
    """Yield all else that a start refuses: order of stages, serdes, windows, times, broadcast, public topics."""
    for what, way in (*changes_of_broadcast(kept, job), *changes_of_job(kept, job)):
        yield PlanRow(what, By.REFUSED, _REFUSED, _NOTHING, way)


def _guarantee(job: Job, log: JobLogReader, settings: Settings) -> Iterator[PlanRow]:
    """Yield the change of the guarantee as a start tells it, if nothing else has changed: the modes are part of it."""
    try:
        check_guarantee(log.read_metadata(job.name), job.name, settings, job.modes)
    except ConfigError as error:
        yield PlanRow("the processing guarantee or output_delivery", By.REFUSED, _REFUSED, _NOTHING, str(error))


def _serdes(definition: Definition, job: Job) -> Iterator[PlanRow]:
    """Yield the parts that the job writes by an older version of the serdes than a new job does."""
    version = serdes_of(definition)
    names = [name for stage in job.live for name in in_two_ways(stage)]
    if version < NEWEST and names:
        yield PlanRow(
            f"the serdes have version {NEWEST}, and the job began with version {version}",
            By.START,
            f"stays: it goes on with version {version}, and so do {', '.join(names)}",
            _NOTHING,
            f"nothing is to be done; for version {NEWEST}, which has one key for equal ones: stop it; grete migrate",
        )


def _ahead(pinned: Topology, log: JobLogReader) -> Iterator[PlanRow]:
    """Yield the tasks whose outputs are ahead of their commit: other code may make others of the same records."""
    for wiring in ahead(log, pinned):
        yield PlanRow(
            f"task {wiring.name} has processed records since its last commit, or may have, and others may see their "
            "outputs",
            By.START,
            "is that of the last commit",
            "are processed again: code that makes other outputs of them halts (GRETE-H031)",
            "if the changed code makes other outputs, let the code of before stop gracefully first: run it once more, "
            "or send SIGTERM to its grete up",
        )


def _number(topology: Topology, name: str) -> int:
    return next(stage.ordinal for stage in topology.stages if stage.name == name)
