"""Mistakes that only calls, and records in flight, can show."""

from typing import Any

from grete.execution.calls import flight
from grete.execution.deterministic.processor import LogicalProcessor
from tests.verification.simulation.forms import with_calls
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import Plan


def _calls(plan: Plan) -> bool:
    return bool(with_calls(plan).calls)


@mutant(LogicalProcessor, "recall", "again", "calls", "halted", shows=_calls, focus=with_calls, world="deterministic")
def recorded_results_not_taken(_: Any) -> Any:
    """A successor makes the calls again whose results its predecessor has logged and used (D8)."""
    return lambda _self, _calls: None


@mutant(flight, "conflicts", "store", "uncommitted", "output", "rolled back", shows=_calls, focus=with_calls)
def changes_behind_a_record_overlooked(_: Any) -> Any:
    """A record takes effect though one before it has changed what it had read (0056)."""
    return lambda _effects, _changed, _event_time: False
