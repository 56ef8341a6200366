"""The definition of a job: all that a job's code may not change between two starts, as JSON text, and its comparison.

The first start of a job writes it into the job metadata (grete.state.pins.pinning); docs/guides/evolve.md is the table
of the changes. Every refusal names a way that works.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from grete.api.jobs.changes import Change, stage_changes
from grete.api.jobs.dropped import define_dropped, dropped_of
from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.api.jobs.versions import FIRST, in_two_ways, serdes_of
from grete.api.registry.schema_registry import RegistrySerde
from grete.api.serdes.protobuf_serde import RESERVE
from grete.api.serdes.serde import Serde, topic_serde, utf8
from grete.api.serdes.shapes import describe_serde, key_changes, shown, value_changes
from grete.api.stateful.joins import Join
from grete.api.stateful.versioned import VersionedStore
from grete.api.topics.input_arguments import times_of
from grete.core.changelog.damage import entry as reading
from grete.errors import ConfigError

FORMAT = 3  # of a stored definition: a reader refuses a higher one

Definition = dict[str, Any]  # the JSON value: docs/decisions/0026 has its keys
DefinedStage = dict[str, Any]  # one of its "stages"
# Of a store or a window: id, name, key, value; of a store with ttl_ms also expires; of a window kind, its sizes,
# grace_ms; of others see _composed.
DefinitionEntry = dict[str, Any]

_OF_WINDOWS = ("size_ms", "advance_ms", "difference_ms", "gap_ms", "unit", "zone", "week_begins", "size", "every")
_SIZES = (*_OF_WINDOWS, "before_ms", "after_ms", "grace_ms")  # a kind has some
_OPEN = {
    "window": "so open windows would never close",
    "join": "so what it keeps for matches to come would be joined wrongly or not at all",
}
_NEW_NAME = "give the changed one another name, under which it begins empty, and keep the old declaration beside it"
_WAYS = {  # what a changed value's text says → a way that is shorter than a new name
    "has no default": "give the field a default",
    "its number is not reserved": RESERVE,
    ", which can read it": "name the schema of before as well: avro(schema, was=[the schema of before])",
}
_OR_ELSE = "back as it was; or start a job of another name, which reads its inputs from their first records"
_READ_AS_BEFORE = f"put broadcast= {_OR_ELSE}"
_TIMED_AS_BEFORE = f"put time= {_OR_ELSE}"
_TIMES = {"value": "of their value"} | {each: repr(each) for each in ("record", "intake", "none")}  # in an error
_TEXT = {"name": "utf8"}  # the keys of timers, unless their declaration says otherwise
_SENT_AS_BEFORE = f"put its serde {_OR_ELSE}"
_FIRED_AS_BEFORE = "declare them again, with an on_timer, which may pass over them"
_KEEP = "declare it again as it was: it may stay unused"
_RENAME = "declare it again as it was: it may stay unused; if it has another name now: renamed_from={name!r}"


def define(job: Job, counts: Mapping[str, int]) -> Definition:
    """Return the definition of a job as its code is, with the ids that its stores have; ``counts``: of its outputs."""
    gone, serdes = define_dropped(job.dropped), {"serdes": job.serdes} if job.serdes > FIRST else {}
    patterns = {"patterns": sorted(job.patterns())} if job.patterns() else {}
    in_ways = bool(serdes) and any(map(in_two_ways, job.live))
    return {
        "format": FORMAT if in_ways else FORMAT - 1 if gone else FORMAT - 2,  # the first that does not misread it
        "stages": [_define_stage(stage) | _define_streams(job, stage) for stage in job.live],
        "public": sorted(job.external_sinks()),
        "outputs": {topic: counts[topic] for topic in sorted(counts)},
    } | (serdes | gone | patterns | ({} if job.migrated is None else {"migrated": job.migrated}))


def _define_stage(stage: StageGraph) -> DefinedStage:
    ids = stage.store_ids()
    stores = [
        {"id": ids[s.name], "name": s.name, "key": describe_serde(s.key), "value": describe_serde(s.value)}
        | ({} if s.ttl_ms is None else {"expires": True})
        | ({} if s.shown == s.name else {"shown": s.shown})
        for s in (*stage.stores.values(), *stage.seen.values())
    ]
    windows = [
        {
            "id": ids[window.name],
            "name": window.name,
            "kind": window.kind,
            **window.sizes,
            "grace_ms": window.grace_ms,
            "key": describe_serde(window.key),
            "value": describe_serde(window.value),
        }
        for window in stage.windows.values()
    ]
    composed = [_composed(each, ids) for each in stage.stateful.values() if isinstance(each, (Join, VersionedStore))]
    inputs = sorted(topic.name for topic in stage.topics_read())
    optional: DefinedStage = {
        "shown": "" if stage.shown == stage.name else stage.shown,
        "broadcast": sorted(stage.topics_broadcast()),
        "times": stage.topics_timed(),
        "timers": sorted(stage.timers),
        "timer_keys": {
            clock: describe_serde(topic_serde(key))
            for clock in sorted(stage.timers)
            if (key := stage.declared_timers(clock).key) is not utf8
        },
        "composed": composed,
    }
    described = {"name": stage.name, "inputs": inputs, "stores": stores, "windows": windows}
    return described | {name: found for name, found in optional.items() if found}


def _define_streams(job: Job, stage: StageGraph) -> dict[str, Any]:
    """Return the topics that a stage reads from other stages, with their serdes; nothing if it reads none."""
    sent = {stream.user_topic for stream in job.topology().streams if stream.consumer == stage.ordinal}
    streams = [
        {"topic": topic.name, "key": describe_serde(topic.key), "value": _describe_sent(topic.value)}
        for topic in stage.topics_read()
        if topic.name in sent
    ]
    return {"streams": streams} if streams else {}


def _describe_sent(value: Serde[Any]) -> Any:
    """Return the description of a stream's values; those of a registry name the schema that wrote them."""
    return {"name": "schema registry"} if isinstance(value, RegistrySerde) else describe_serde(value)


def _composed(declared: Join[Any, Any, Any] | VersionedStore[Any, Any], ids: Mapping[str, int]) -> DefinitionEntry:
    """Return the entry of what has stores of other names or serdes than its own."""
    return {
        "name": declared.name,
        "what": declared.what,
        "kind": declared.kind,
        **declared.sizes,
        "ids": {store.name: ids[store.name] for store in declared.stores().values()},
        "serdes": {name: describe_serde(serde) for name, serde in declared.serdes.items()},
    }


def encode_definition(definition: Definition) -> bytes:
    """Return the text of a definition: the same bytes in every process."""
    return msgspec.json.encode(definition, order="sorted")


def decode_definition(raw: bytes) -> Definition:
    """Return a definition. Raises ConfigError: a later release has written it, or it is damaged."""
    try:
        found: Definition = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the job's definition in its metadata is damaged: {error}: {raw[:80]!r}: restore the log, or "
            "start the job under another name"
        ) from error
    if found.get("format") not in range(1, FORMAT + 1):
        raise ConfigError(
            f"the job's definition in its metadata has format {found.get('format')}, and this release reads {FORMAT}: "
            "start the job with the release that it ran with"
        )
    with reading("definition"):
        _shape(found)
    return found


def _shape(definition: Definition) -> None:
    """Read what ``take_over`` does: it raises something else than ConfigError if that is not there."""
    for stage in definition["stages"]:
        assert isinstance(stage["name"], str)
        for each in _entries(stage):
            assert each.get("ids") or (each["name"], each["id"])
    assert isinstance(definition["outputs"], dict)
    dropped_of(definition)


def take_over(definition: Definition, job: Job) -> None:
    """Give a job the numbers, the store ids and the partition counts of outputs that its definition holds.

    Raises ConfigError: the code has what was dropped.
    """
    ids: dict[str, dict[str, int]] = {}
    for stage in definition["stages"]:
        of_stage = ids[stage["name"]] = {}
        for entry in _entries(stage):
            of_stage.update(entry.get("ids") or {entry["name"]: entry["id"]})
    version, since = serdes_of(definition), definition.get("migrated")
    job.pin(ids, definition["outputs"], dropped_of(definition), times_before(definition), version, migrated=since)


def times_before(definition: Definition) -> dict[str, dict[str, str]]:
    """Return by stage and topic which time the records of each input have had."""
    return {s["name"]: dict.fromkeys(s["inputs"], "record") | s.get("times", {}) for s in definition["stages"]}


def changes_of_job(definition: Definition, job: Job) -> list[Change]:
    """Return all that the code changes and may not: what a start must refuse."""
    names = [stage["name"] for stage in definition["stages"]], [stage.name for stage in job.live]
    changes = [*stage_changes(*names), *changes_of_state(definition, job), *_public_changes(definition, job)]
    return [*changes, *_time_changes(definition, job), *changes_of_flow(definition, job, sent=True)]


def changes_of_broadcast(definition: Definition, job: Job) -> list[Change]:
    """Return the topics that the tasks of a stage have read whole and would read in part, or the other way round."""
    stages, changes = {stage.name: stage for stage in job.stages}, []
    for before in definition["stages"]:
        stage = stages.get(before["name"])
        if stage is None:
            continue
        kept = set(before["inputs"]) & {topic.name for topic in stage.topics_read()}
        was, now = set(before.get("broadcast", ())), stage.topics_broadcast()
        for topic in sorted(kept & (was ^ now)):
            whole, part = "whole in each task (broadcast=True)", "by partition, each task its own"
            had, has = (whole, part) if topic in was else (part, whole)
            what = f"stage {stage.name!r} has read topic {topic!r} {had}, and this code reads it {has}"
            changes.append(Change(what, _READ_AS_BEFORE))
    return changes


def changes_of_flow(definition: Definition, job: Job, *, sent: bool) -> list[Change]:
    """Return the changes that would bring keys to other tasks than their state, or leave timers for ever.

    ``sent``: also what makes records unreadable that one stage has sent and the next has not processed.
    """
    stages, changes = {stage["name"]: stage for stage in define(job, {})["stages"]}, list[Change]()
    for before in definition["stages"]:
        stage = stages.get(before["name"])
        if stage is None:
            continue
        streams = {stream["topic"]: stream for stream in stage.get("streams", ())}
        for was in before.get("streams", ()):
            now = streams.get(was["topic"], was)  # one that is gone is a change of the graph
            where = f"topic {was['topic']!r}, which stage {stage['name']!r} reads from another stage"
            changes += [
                Change(f"{where}: its key {text}, so records of a key would miss its state", _SENT_AS_BEFORE)
                for text in key_changes(was["key"], now["key"])
            ]
            texts = value_changes(was["value"], now["value"]) if sent else []
            changes += [Change(f"{where}: its value: {text}", _way(text, _SENT_AS_BEFORE)) for text in texts]
        for clock in sorted({*before.get("timers", ())} - {*stage.get("timers", ())}):
            declared = "Timers()" if clock == "event" else f"Timers(clock={clock!r})"
            what = f"stage {stage['name']!r} has no {declared} any more, and those that wait would never fire"
            changes.append(Change(what, _FIRED_AS_BEFORE))
        was_keys, keys = (each.get("timer_keys", {}) for each in (before, stage))
        for clock in sorted({*before.get("timers", ())} & {*stage.get("timers", ())}):
            texts = key_changes(was_keys.get(clock, _TEXT), keys.get(clock, _TEXT))
            where = f"stage {stage['name']!r}, the timers of the {clock} clock"
            changes += [Change(f"{where}: their key {text}", f"put key= {_OR_ELSE}") for text in texts]
    return changes


def changes_of_state(definition: Definition, job: Job) -> list[Change]:
    """Return the changes that make state unreadable or misread, of the stages that are in both."""
    stages = {stage.name: stage for stage in job.stages}
    changes: list[Change] = []
    for before in definition["stages"]:
        stage = stages.get(before["name"])
        if stage is None:
            continue
        entries = {entry["name"]: entry for entry in _entries(_define_stage(stage))}
        for entry in _entries(before):
            where = f"{_kind(entry)} {stage.name}/{entry['name']}"
            changes += _entry_changes(where, entry, entries.get(entry["name"]))
    return changes


def _entries(stage: DefinedStage) -> list[DefinitionEntry]:
    return [*stage["stores"], *stage["windows"], *stage.get("composed", ())]


def _kind(entry: DefinitionEntry) -> str:
    return str(entry.get("what") or ("window" if "kind" in entry else "store"))


def _serdes(entry: DefinitionEntry) -> Mapping[str, Any]:
    """Return the serdes by what they are for, "key" first."""
    return entry.get("serdes") or {"key": entry["key"], "value": entry["value"]}


def _entry_changes(where: str, before: DefinitionEntry, now: DefinitionEntry | None) -> list[Change]:
    """Return the changes of one store, window or join."""
    serdes = _serdes(before)
    if now is None:
        was = ", ".join(f"{name} {shown(serde)}" for name, serde in serdes.items())
        way = _RENAME.format(name=before["name"]) if _kind(before) == "store" else _KEEP
        return [Change(f"{where} ({was}) is gone or has another name, and its state is there", way)]
    if _kind(before) != _kind(now):
        return [Change(f"{where} is a {_kind(now)} now", _NEW_NAME)]
    changes = [
        Change(f"{where}: its key {text}", _NEW_NAME) for text in key_changes(serdes["key"], _serdes(now)["key"])
    ]
    changes += [
        Change(f"{where}: its {name}: {text}", _way(text, _NEW_NAME))
        for name in serdes
        if name != "key"
        for text in value_changes(serdes[name], _serdes(now)[name])
    ]
    if (expired := before.get("expires", False)) != now.get("expires", False):
        has = "ttl_ms has been left out" if expired else "ttl_ms has been added"
        changes.append(Change(f"{where}: {has}, so its stored values would be misread", _NEW_NAME))
    if before.get("kind") != now.get("kind"):
        was, is_ = (f"{entry['kind']}{_sizes(entry)}" for entry in (before, now))
        what = f"{where} was {was} and is {is_}, {_OPEN[_kind(before)]}"
        return [*changes, Change(what, _NEW_NAME)]
    for name in _SIZES:
        if before.get(name) != now.get(name):
            was, is_ = (entry.get(name, "not given") for entry in (before, now))
            changes.append(Change(f"{where}: {name} was {was} and is {is_}, {_OPEN[_kind(before)]}", _NEW_NAME))
    return changes


def _way(text: str, otherwise: str) -> str:
    """Return the way that is named for a change of a value."""
    return next((way for mark, way in _WAYS.items() if mark in text), otherwise)


def _sizes(window: DefinitionEntry) -> str:
    sizes = ", ".join(f"{name} {window[name]}" for name in _SIZES if name in window)
    return f" ({sizes})" if sizes else ""


def _public_changes(definition: Definition, job: Job) -> list[Change]:
    """Return the topics that readers outside use and that would become internal without a word."""
    outside, changes = job.external_sinks(), []
    written = {topic.name for stage in job.stages for topic in stage.topics_written()}
    for name in definition["public"]:
        readers = [stage.name for stage in job.stages if name in {topic.name for topic in stage.topics_read()}]
        if readers and name in written and name not in outside:
            what = (
                f"stage {readers[0]!r} reads topic {name!r}, which readers outside of the job use: it would become "
                "internal, and they would get nothing more"
            )
            changes.append(Change(what, f"write Topic({name!r}, …, public=True), and each record goes to both"))
    return changes


def _time_changes(definition: Definition, job: Job) -> list[Change]:
    """Return the topics whose records would have another time than those that the state was made of."""
    stages, changes = {stage.name: stage for stage in job.stages}, []
    for before in definition["stages"]:
        stage = stages.get(before["name"])
        if stage is None:
            continue
        was = times_before(definition)[stage.name]
        now = times_of(stage.inputs.values(), was)
        for topic in sorted(set(before["inputs"]) & {topic.name for topic in stage.topics_read()}):
            had, has = was.get(topic, "record"), now.get(topic, "record")
            if had != has:
                what = f"stage {stage.name!r}: the records of topic {topic!r} had time {_TIMES[had]}, now {_TIMES[has]}"
                changes.append(Change(what, _TIMED_AS_BEFORE))
    return changes
