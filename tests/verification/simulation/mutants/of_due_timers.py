"""Mistakes about timers that are due and have not fired: what comes before them, also in a successor (E10)."""

from typing import Any

from grete.execution.due_timers import DueTimers
from grete.execution.reserved_stores import FIRING
from grete.execution.task_time import TaskTime
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan

_killed = full_of("crash", "crash at a boundary", "crash of several")


def _timed(plan: Plan) -> bool:
    return plan.timers


@mutant(DueTimers, "left", "overtaken", shows=_timed)
def next_record_between_slices(_: Any) -> Any:
    """A task takes its next record between two slices of timers."""
    return property(lambda _: False)


@mutant(TaskTime, "save", "overtaken", "store", "uncommitted", shows=_timed, focus=_killed)
def burst_forgotten(save: Any) -> Any:
    """A commit between two slices does not say that timers are left, so a successor begins with the next record."""
    return lambda self: [entry for entry in save(self) if entry[0] != FIRING]
