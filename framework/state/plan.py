"""The plan of a changed job: each change of its code, who makes it, and what happens to state and to records in flight.

It compares the code with what the first start has pinned, and reads the log only. ``grete plan`` shows it, and
``grete apply`` (framework.state.apply) does what it says.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from framework.api.definition import (
    Change,
    Definition,
    changes_of_broadcast,
    changes_of_job,
    define,
)
from framework.api.job import Job
from framework.core.topology import Topology
from framework.errors import ConfigError
from framework.job.metadata import check_guarantee
from framework.ports import JobLogReader
from framework.settings import Settings
from framework.state.graph_pinning import edges_of, pinned_graph, way_to_count
from framework.state.pinning import pinned_definition

_STAYS = "stays as it is"
_NOTHING = "nothing is changed"
_REFUSED = "stays as it is: the code of before goes on"


class By(StrEnum):
    """Who makes a change."""

    START = "start"  # the next start with this code, of itself
    APPLY = "apply"  # grete apply, while the job is stopped
    REFUSED = "refused"


class Planned(NamedTuple):
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


def plan_of(job: Job, log: JobLogReader, settings: Settings) -> list[Planned]:
    """Return all that differs between a job's code and what the log has pinned; empty: the code starts as it is.

    Raises ConfigError: the job has not run, or has run with a release that pinned nothing.
    """
    definition, pinned = pinned_definition(job, log), pinned_graph(job, log)
    if definition is None or pinned is None:
        raise ConfigError(
            f"job {job.name!r} has no definition in this log to compare with: check its name and --log; a job that "
            "has run with an older release only is to be started once with the code that it ran with"
        )
    job.count_broadcast(log.partitions)
    stages = compare_stages(pinned, definition, job)
    rows = [
        *_stages(stages, job),
        *_modes(stages, pinned, job),
        *_partitions(stages, pinned, job),
        *_edges(stages, pinned, job),
        *_inputs(stages, definition, pinned, job),
        *_outputs(definition, job),
        *_stores(definition, job),
        *_others(definition, stages, job),
    ]
    if not rows:
        rows += _guarantee(job, log, settings)
    return rows


def compare_stages(pinned: Topology, definition: Definition, job: Job) -> StageChanges:
    """Return which stages are in both, only in the code, and only in the log.

    One that was added and never committed does not bind: it is not in ``definition``.
    """
    before, now = [stage.name for stage in pinned.stages], [stage.name for stage in job.stages]
    binding = {stage["name"] for stage in definition["stages"]}
    return StageChanges(
        [name for name in before if name in now],
        [name for name in now if name not in before],
        [name for name in before if name not in now and name in binding],
    )


def _stages(stages: StageChanges, job: Job) -> Iterator[Planned]:
    """Yield the stages that were added or dropped."""
    old = set(stages.kept)
    names = [stage.name for stage in job.stages]
    for name in stages.added:
        feeds = sorted(
            {
                names[stream.consumer]
                for stream in job.topology().streams
                if names[stream.producer] == name and names[stream.consumer] in old
            }
        )
        if feeds:
            what = f"stage {name!r} is new and writes what stage {feeds[0]!r} reads"
            yield Planned(what, By.REFUSED, _REFUSED, _NOTHING, _OTHER_NAME)
        else:
            in_flight = "records processed before are not sent to it; later ones are"
            yield Planned(f"stage {name!r} is new", By.START, "begins empty", in_flight)
    for name in stages.dropped:
        way = f'put it back; if it has another name now: renamed_from = "{name}" in its class'
        yield Planned(f"stage {name!r} is gone", By.REFUSED, _REFUSED, _NOTHING, way)


_OTHER_NAME = "give the job another name: it begins from its inputs, or from their history (grete backfill)"


def _modes(stages: StageChanges, pinned: Topology, job: Job) -> Iterator[Planned]:
    modes = ("aligned", "deterministic")
    for name in stages.kept:
        was = modes[_number(pinned, name) in pinned.deterministic]
        now = job.stage(name).mode
        if was != now:
            what = f"stage {name!r} was {was} and is {now}"
            yield Planned(what, By.REFUSED, _REFUSED, _NOTHING, f"put its mode back; or {_OTHER_NAME}")


def _partitions(stages: StageChanges, pinned: Topology, job: Job) -> Iterator[Planned]:
    """Yield the other numbers of partitions; stages that follow their job change with it, in one row."""
    told = set[tuple[bool, int, int]]()
    for name in stages.kept:
        stage, before = job.stage(name), pinned.stages[_number(pinned, name)].partitions
        if stage.partitions == before or (stage.follows_job and (True, before, stage.partitions) in told):
            continue
        told.add((stage.follows_job, before, stage.partitions))
        whose = f"job {job.name!r}" if stage.follows_job else f"stage {name!r}"
        option = "" if stage.follows_job else f" --stage={name}"
        yield Planned(
            f"{whose} had {before} partitions and has {stage.partitions}",
            By.REFUSED,
            _REFUSED,
            _NOTHING,
            f"write {stage.declared_with(before)}; {way_to_count(stage.partitions, before, option, job)}",
        )


def _edges(stages: StageChanges, pinned: Topology, job: Job) -> Iterator[Planned]:
    """Yield the streams between two stages of before that have come or gone."""
    old, new = edges_of(pinned, stages.kept), edges_of(job.topology(), stages.kept)
    for edge in sorted(old - new):
        yield Planned(f"{edge} is gone", By.REFUSED, _REFUSED, _NOTHING, _AS_BEFORE)
    for edge in sorted(new - old):
        yield Planned(f"{edge} is new", By.REFUSED, _REFUSED, _NOTHING, _AS_BEFORE)


_AS_BEFORE = f"let the stages read and write what they did; a new stage may read the new topic; or {_OTHER_NAME}"


def _inputs(stages: StageChanges, definition: Definition, pinned: Topology, job: Job) -> Iterator[Planned]:
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
            yield Planned(
                f"stage {name!r} no longer reads topic {topic!r} from outside", By.REFUSED, _REFUSED, _NOTHING, way
            )
        for topic in sorted(now - before - inside):
            yield Planned(f"stage {name!r} reads topic {topic!r} from outside", By.START, _STAYS, _NOTHING)


def _outputs(definition: Definition, job: Job) -> Iterator[Planned]:
    """Yield the topics for readers outside that have come or gone."""
    before, now = {*definition["public"]}, {*job.external_sinks()}
    read = {topic.name for stage in job.stages for topic in stage.topics_read()}
    for topic in sorted(before - now - read):
        what = f"output topic {topic!r} is no longer written"
        yield Planned(what, By.START, _STAYS, "what was written stays for its readers")
    for topic in sorted(now - before):
        yield Planned(f"output topic {topic!r} is new", By.START, _STAYS, "it gets the records from then on")


def _stores(definition: Definition, job: Job) -> Iterator[Planned]:
    """Yield the stores, windows and joins that are new, or have another name or a wider type."""
    now = {stage["name"]: stage for stage in define(job, {})["stages"]}
    for before in definition["stages"]:
        stage = now.get(before["name"])
        if stage is None:
            continue
        if before.get("shown", "") != stage.get("shown", ""):
            was, is_ = (each.get("shown") or each["name"] for each in (before, stage))
            state = f"stays: topics and directories keep the name {stage['name']!r}"
            yield Planned(f"stage {was!r} is called {is_!r} now", By.START, state, "stay: the streams are the same")
        had = {entry["name"]: entry for entry in _entries(before)}
        for entry in _entries(stage):
            yield from _entry(f"{stage['name']}/{entry['name']}", had.get(entry["name"]), entry)


def _entry(where: str, before: Definition | None, now: Definition) -> Iterator[Planned]:
    if before is None:
        yield Planned(f"{where} is new", By.START, "begins empty", _NOTHING)
        return
    if before.get("shown") != now.get("shown"):
        state = f"stays: its column family keeps the name {now['name']!r}"
        yield Planned(f"{where} is called {now.get('shown') or now['name']!r} now", By.START, state, _NOTHING)


def _entries(stage: Definition) -> list[Definition]:
    return [*stage["stores"], *stage["windows"], *stage.get("composed", ())]


def _others(definition: Definition, stages: StageChanges, job: Job) -> Iterator[Planned]:
    """Yield all else that a start refuses: order of stages, serdes, windows, times, broadcast, public topics."""
    kept = {**definition, "stages": [each for each in definition["stages"] if each["name"] not in stages.dropped]}
    changes: Sequence[Change] = [*changes_of_broadcast(kept, job), *changes_of_job(kept, job)]
    for what, way in changes:
        yield Planned(what, By.REFUSED, _REFUSED, _NOTHING, way)


def _guarantee(job: Job, log: JobLogReader, settings: Settings) -> Iterator[Planned]:
    """Yield what a start says of the guarantee, where nothing else has changed: the modes are part of it."""
    try:
        check_guarantee(log.read_metadata(job.name), job.name, settings, job.modes)
    except ConfigError as error:
        yield Planned("the processing guarantee or output_delivery", By.REFUSED, _REFUSED, _NOTHING, str(error))


def _number(topology: Topology, name: str) -> int:
    return next(stage.ordinal for stage in topology.stages if stage.name == name)
