"""Mistakes that only a join can show."""

from typing import Any

from grete.api.stateful.interval_join import IntervalJoin
from tests.verification.simulation.forms import with_joins
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import Plan


def _timed(plan: Plan) -> bool:
    return plan.timers


def _streamed(plan: Plan) -> bool:
    return plan.aligned and plan.timers and bool(plan.topology.streams)


@mutant(IntervalJoin, "_matches", "store", "again", "output", shows=_timed, focus=with_joins)
def matches_of_one_moment(matches: Any) -> Any:
    """A record meets those of one time only, of all that are within its interval (0051)."""
    return lambda self, *record: matches(self, *record)[:1]


@mutant(IntervalJoin, "held_ms", "event time", "again", "store", shows=_streamed, focus=with_joins)
def time_told_ahead_of_joins(_: Any) -> Any:
    """A task tells its event time less the grace: a record without a match is told later, and is older (E2)."""
    return property(lambda self: self.grace_ms)
