"""Mistakes about timers that are due and have not fired: what comes before them, also in a successor (E10)."""

from typing import Any

from grete.core.deterministic.merge import Merge
from grete.core.deterministic.processing import LeftTimers
from grete.core.deterministic.source import Source
from grete.execution.deterministic.behind_timers import BehindTimers
from grete.execution.engine.input_in_flight import DueTimers
from grete.execution.task_code.task_time import TaskTime
from grete.execution.timing.reserved_stores import FIRING
from grete.protocol.changelog import InputDecision
from tests.verification.simulation.forms import with_bursts
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


def _bursts(plan: Plan) -> bool:
    return bool(with_bursts(plan).bursts)


def _burst_killed(plan: Plan) -> Plan:
    return with_bursts(_killed(plan))


@mutant(Source, "cut", "position", "calls", shows=_bursts, focus=with_bursts, world="deterministic")
def rest_of_a_decision_lost(cut: Any) -> Any:
    """A commit between two slices says that all rows of the decision are in it, those behind the timers among them."""

    def whole(source: Source, done: int, next_offset: int) -> Any:
        batch = source.batches[-1]
        rows = batch.decision.records if isinstance(batch.decision, InputDecision) else done
        return cut(source, rows, max(next_offset, batch.next_offset))

    return whole


@mutant(
    Merge,
    "give_back",
    "seq",
    "frontier",
    shows=_bursts,
    focus=_burst_killed,
    world="deterministic",
)
def merged_behind_timers_lost(_: Any) -> Any:
    """A commit between two slices says that what was merged behind the watermarks is processed."""
    return lambda _self, _batches: None


@mutant(
    LeftTimers,
    "may_fire",
    "position",
    "time",
    "again",
    shows=_bursts,
    focus=_burst_killed,
    world="deterministic",
)
def fired_before_the_commit_is_valid(_: Any) -> Any:
    """Consumers learn that a decision has ended though its last rows come again if the commit is never valid."""
    return property(lambda self: self.left and self.done >= 0)


@mutant(
    BehindTimers,
    "then",
    "time",
    "prefix",
    "uncommitted",
    shows=_bursts,
    focus=_burst_killed,
    world="deterministic",
)
def merged_before_due_timers(_: Any) -> Any:
    """A task behind others takes what follows the watermarks before all timers that they have made due have fired."""
    return lambda _self, step: step()
