"""Mistakes about wall-clock timers in deterministic mode: where they fire, and what must be logged before (E8)."""

from typing import Any

from grete.core.deterministic.logical_clock import LogicalClock
from grete.execution.deterministic.announced_time import LogicalTime
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.timing.timers import TimerQueue
from tests.verification.simulation.forms import with_wall_timers
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan

_WRONG = ("again", "prefix", "halted", "time", "exactly once", "frontier", "store", "seq", "uncommitted")
_crowded = full_of("crash", "crash at a boundary", "crash of several", "zombie")


def _timed(plan: Plan) -> bool:
    return plan.timers


def _alone(plan: Plan) -> bool:
    """Tell whether all stages are sources that no task reads."""
    return plan.timers and not plan.topology.streams


def _killed(plan: Plan) -> Plan:
    return _crowded(with_wall_timers(plan))


@mutant(LogicalTime, "each", *_WRONG, shows=_timed, focus=_killed, world="deterministic")
def timers_behind_the_records_at_hand(each: Any) -> Any:
    """Timers fire once a task has processed what it has, though they are due before some of these records (E8)."""

    def mistaken(self: LogicalTime, batch: Any, items: Any) -> Any:
        later = LogicalTime(self._outputs)
        return each(later, batch, items)

    return mistaken


@mutant(TimerQueue, "pop_all", *_WRONG, shows=_timed, focus=_killed, world="deterministic")
def timers_of_a_turn_join_it(_: Any) -> Any:
    """A timer that another one sets for a time that has passed fires in the same turn (E8)."""

    def mistaken(self: TimerQueue, now: int) -> Any:
        self.now = now
        while (due := self.pop()) is not None:
            yield due

    return mistaken


@mutant(LogicalOutputs, "load", *_WRONG, shows=_timed, focus=_killed, world="deterministic")
def turns_begin_at_once_after_a_restart(load: Any) -> Any:
    """A successor forgets the time of what was processed last, so a timer that is overdue fires earlier (E8)."""

    def mistaken(self: LogicalOutputs, state: Any) -> None:
        at = self.at = (0, self.at[1])
        load(self, state)
        self.at = at

    return mistaken


@mutant(LogicalClock, "advance", "decision", "lease", "time", shows=_alone, focus=_killed, world="deterministic")
def timers_ahead_of_the_lease(advance: Any) -> Any:
    """A source lets its timers fire though the log does not know that their time has passed (D2, E8)."""

    def mistaken(self: LogicalClock, mono_us: int) -> Any:
        advance(self, mono_us)
        self.floor = max(self.floor, self.now(mono_us))
        return self.floor

    return mistaken
