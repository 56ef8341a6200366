"""Gives a task with ``async def process`` its calls, and lets what it does wait for the turn of its record."""

import copy
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from grete.api.jobs.graph import StageGraph
from grete.api.tasks.calls import AnyCall
from grete.api.tasks.context import Context, LogicalContext
from grete.errors import ConfigError
from grete.execution.calls.effects import deferred
from grete.execution.calls.flight import Records
from grete.execution.calls.ports import Caller, TurnsAndTimers
from grete.execution.task_code.binding import bound
from grete.execution.task_code.record_times import InPlace

AnyTimers = TypeVar("AnyTimers", bound=TurnsAndTimers | None)


def records_of(
    stage: StageGraph, caller: Caller | None, context: Context | None, event_time: Callable[[], int]
) -> Records | None:
    """Return the holder of a stage's records in flight; None: its ``process`` is a plain function."""
    if not stage.awaits:
        return None
    if caller is None:
        raise ConfigError(f"stage {stage.name!r} has an async process, and nothing here makes calls", stage=stage.name)
    return Records(caller, stage.task.in_flight, event_time, context if isinstance(context, LogicalContext) else None)


def bind_calls(stage: StageGraph, task: Any, records: Records) -> None:
    """Give the instance its calls, and timers that are set in the turn of the record that asks for it."""
    for attribute, call in stage.calls.items():
        setattr(task, attribute, bound(call, begin=partial(_begin, records, call)))
    for attribute in stage.timers.values():
        timers = getattr(task, attribute)
        later = {name: in_turn(records, getattr(timers, name)) for name in ("schedule", "cancel")}
        setattr(task, attribute, bound(timers, **later))


def due_among(records: Records | None, due: AnyTimers) -> AnyTimers:
    """Return timers of event time; records in flight have their turns between slices of them (E10)."""
    if records is not None:
        records.due = due
    return due


def in_place(records: Records | None) -> InPlace:
    """Return the function that does a step in place of a record: at once, or in the turn that this would have."""
    return (lambda _batch, _index, step: step()) if records is None else records.in_place


def _begin(records: Records, call: AnyCall, *args: Any, **kwargs: Any) -> Awaitable[Any]:
    return records.call(call, args, kwargs)


def in_turn(records: Records | None, function: Callable[..., None]) -> Callable[..., None]:
    """Return ``function``; with records in flight what does it in the turn of the record that asks for it."""
    return function if records is None else deferred(records, function, copy.deepcopy)
