"""Mistakes that only windows with grace, and windows whose timers have keys, can show: sessions above all."""

from dataclasses import replace
from typing import Any

from grete.execution.task_code.task_time import TaskTime
from grete.execution.timing.timers import TimerQueue, _encode
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import Plan


def _timed(plan: Plan) -> bool:
    return plan.aligned and plan.timers and bool(plan.topology.streams)


def _with_sessions(plan: Plan) -> Plan:
    return replace(plan, window="session, told at once")


def _with_early_results(plan: Plan) -> Plan:
    return replace(plan, window="session")


@mutant(TimerQueue, "reload", "store", "uncommitted", "event time", "halted", shows=_timed, focus=_with_sessions)
def timers_of_keys_not_reloaded(reload: Any) -> Any:
    """A start and a rollback take up a window's timers by their moments alone: sessions stay open for ever (A8)."""

    def mistaken(self: TimerQueue, now: int) -> None:
        reload(self, now)
        self._heap = [raw for raw in self._heap if not _is_of_a_key(raw)]
        self._in_heap = set(self._heap)
        self._set_due()

    return mistaken


@mutant(
    TimerQueue,
    "schedule",
    "store",
    "again",
    "halted",
    "uncommitted",
    shows=lambda plan: plan.timers,
    focus=_with_early_results,
    world="deterministic",
)
def one_timer_for_each_moment(schedule: Any) -> Any:
    """A window has one timer for each moment, as tumbling ones do: of two keys that fall due together, one does."""

    def mistaken(self: TimerQueue, owner: str, at: int, key: str = "") -> None:
        moment = _encode(owner, at, "")
        if not owner or not any(raw.startswith(moment) for raw in self._in_heap):
            schedule(self, owner, at, key)

    return mistaken


@mutant(TaskTime, "watermark", "event time", "again", shows=_timed, focus=_with_sessions)
def time_told_ahead_of_windows(watermark: Any) -> Any:
    """A task tells its event time as it is: what a window with a gap or grace sends later is behind it (E2)."""

    def mistaken(self: TaskTime) -> tuple[int, bool]:
        return self._time.now, self._time.idle

    return property(mistaken)


def _is_of_a_key(raw: bytes) -> bool:
    """Tell whether a stored timer is a window's, and of a key: at, length of the owner's name, owner, key."""
    return 0 < raw[8] < len(raw) - 9
