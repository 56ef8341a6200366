"""The version of the serdes that a job writes by: that of its first start, which its definition pins.

Version 2 writes equal keys as equal bytes, and the dicts of each value in one order. Both versions read both. A job of
version 1 gets copies of its declarations whose serdes write as they always did.
"""

import copy
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from grete.api.jobs.graph import StageGraph
from grete.api.serdes.serde import Codec, first_serde, one_key_serde, written_in_two_ways
from grete.api.sinks.external import External
from grete.api.sinks.files import Files
from grete.api.sinks.http import Http
from grete.api.sinks.table import Table
from grete.api.stateful.declaration import Stateful
from grete.api.store import Store
from grete.api.tasks.calls import BatchCall, Call
from grete.api.topics.topic import Input, Output, Topic, TopicPattern

D = TypeVar("D")

FIRST, NEWEST = 1, 2

_OF_STAGE = ("inputs", "outputs", "stores", "stateful", "calls")
_HOLD_SERDES: tuple[type, ...] = (
    *(Input, Output, Store, Stateful, Call, BatchCall),
    *(Topic, TopicPattern, Files, Table, Http, External),
)


def serdes_of(definition: Mapping[str, Any]) -> int:
    """Return the version by which a job writes keys and values, as its definition has it."""
    return int(definition.get("serdes", FIRST))


def in_version(stage: StageGraph, version: int) -> StageGraph:
    """Return a stage whose declarations write by a version of the serdes."""
    made = _in_first if version == FIRST else as_declared
    parts: Any = {name: {each: made(declared) for each, declared in getattr(stage, name).items()} for name in _OF_STAGE}
    return replace(stage, **parts)


def as_declared(declaration: D) -> D:
    """Return the declaration of the task's class, of which a job of version 1 has a copy."""
    found: D = getattr(declaration, "declared", declaration)
    return found


def in_two_ways(stage: StageGraph) -> list[str]:
    """Return the parts of a stage that version 1 writes otherwise: the names of stores, and outputs."""
    stores = [
        f"{stage.shown}/{store.shown}"
        for store in map(as_declared, stage.all_stores())
        if written_in_two_ways(store.key) or written_in_two_ways(store.value)
    ]
    return [*stores, *outputs_in_two_ways(stage)]


def outputs_in_two_ways(stage: StageGraph) -> list[str]:
    """Return the outputs of a stage that version 1 writes otherwise."""
    outputs = []
    for attribute, output in stage.outputs.items():
        target = as_declared(output).target
        serdes = [target.value, *([one_key_serde(target.key)] if isinstance(target, Topic | TopicPattern) else [])]
        if any(map(written_in_two_ways, serdes)):
            outputs.append(f"{stage.shown}'s output {attribute}")
    return outputs


def _in_first(declared: D) -> D:
    """Return a copy of a declaration whose serdes write as version 1 does; itself where they do anyway."""
    changed = {name: first for name, each in _attributes(declared).items() if (first := _first(each)) is not each}
    if not changed:
        return declared
    if is_dataclass(declared) and not isinstance(declared, type):
        return replace(declared, **changed)
    twin = copy.copy(declared)
    vars(twin).update(changed, declared=as_declared(declared))
    return twin


def _first(part: Any) -> Any:
    """Return a part of a declaration as version 1 has it; the same object where nothing differs."""
    if isinstance(part, Codec):
        return first_serde(part)
    if isinstance(part, _HOLD_SERDES):
        return _in_first(part)
    if isinstance(part, dict):
        firsts = {name: _first(each) for name, each in part.items()}
        return part if all(firsts[name] is each for name, each in part.items()) else firsts
    return part


def _attributes(declared: Any) -> Mapping[str, Any]:
    if is_dataclass(declared) and not isinstance(declared, type):
        return {name: getattr(declared, name) for name in declared.__dataclass_fields__}
    return {name: each for name, each in vars(declared).items() if name != "declared"}
