"""Mistakes about inputs that end (E7)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from grete.core.deterministic.source import Source
from grete.execution.deterministic.announced_time import AnnouncedTime
from grete.execution.inputs.watermarks import EventTimeOut
from grete.execution.task_code.task_time import TaskTime
from grete.execution.timing.event_time import EventTime
from grete.protocol.notes import IdleNote
from tests.verification.simulation.fault_plan import draw_drain_faults
from tests.verification.simulation.forms import with_drain, with_wall_timers
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import Plan, with_settings

_KILLS = ("crash", "crash at a boundary", "crash of several", "zombie")
_KILLED = 12  # times, at least
_WRONG = ("store", "uncommitted", "restore", "output", "seq", "event time", "again", "prefix")


def _timed(plan: Plan) -> bool:
    return plan.timers and not plan.damaged


def _streamed(plan: Plan) -> bool:
    return _timed(plan) and bool(plan.topology.streams)


def _joining(plan: Plan) -> bool:
    """Tell whether a stage reads what another one sends, and from outside."""
    topology = plan.topology
    return _timed(plan) and plan.aligned and any(not topology.is_source(s) for s in topology.external_inputs)


def _killed(plan: Plan) -> Plan:
    """A job that is drained, while its processes die."""
    faults = (replace(each, kind=_KILLS[each.number % len(_KILLS)]) for each in draw_drain_faults(plan.seed, _KILLED))
    return replace(with_drain(plan), drain_faults=tuple(faults))


def _rolled_back(plan: Plan) -> Plan:
    """The same with few deaths: one that comes later tells the task again."""
    plan = with_drain(plan)
    faults = (replace(each, kind="crash") for each in draw_drain_faults(plan.seed, 4)[:4])
    return replace(plan, drain_faults=tuple(faults), together=False)


def _by_the_clock(plan: Plan) -> Plan:
    """A job that is drained while its processes die, and timers by the clock go on behind the end."""
    return with_wall_timers(_killed(plan))


def _idle(plan: Plan) -> Plan:
    return with_settings(with_drain(plan), event_time_idle_ms=plan.settings.checkpoint_interval_ms)


@mutant(EventTimeOut, "next_idle", "ended", "recorder", shows=_timed, focus=_idle)
def idle_is_ended(next_idle: Any) -> Any:
    """An input that has brought nothing for a while is taken for ended, and its last records come later (E4, E7)."""

    def mistaken(self: EventTimeOut, now_ms: float) -> Any:
        found = next_idle(self, now_ms)
        return found and (found[0], True)

    return mistaken


@mutant(EventTime, "ended", *_WRONG, "drained", "liveness", shows=_streamed, focus=_killed)
def ended_by_one_source(_: Any) -> Any:
    """Timers fire once one source of a task has ended, though records of others are still to come (E7)."""
    return property(lambda self: bool(self._ended))


@mutant(EventTimeOut, "reset", "liveness", shows=_joining, focus=_rolled_back)
def ends_forgotten_by_a_rollback(_: Any) -> Any:
    """A task that has rolled back does not say again that its inputs have ended (E7, R4)."""

    def mistaken(self: EventTimeOut) -> None:
        self._told = -(1 << 63), False

    return mistaken


@mutant(TaskTime, "load", *_WRONG, shows=_timed, focus=_killed)
def drained_again(load: Any) -> Any:
    """A successor fires once more what is set, though the state says that its inputs had ended (E7)."""

    def mistaken(self: TaskTime, get: Callable[[bytes], bytes | None]) -> None:
        load(self, get)
        self._drained = False

    return mistaken


@mutant(
    Source, "log", *_WRONG, "time", "halted", "frontier", "liveness", shows=_timed, focus=_killed, world="deterministic"
)
def end_logged_as_idleness(log: Any) -> Any:
    """A source notes in its changelog that an input is idle, and not that it has ended (E7, D2)."""

    def mistaken(self: Source, *, processed: bool) -> Any:
        decisions = log(self, processed=processed)
        return [each._replace(ended=False) if isinstance(each, IdleNote) else each for each in decisions]

    return mistaken


@mutant(
    AnnouncedTime,
    "acted",
    *_WRONG,
    "drained",
    "liveness",
    shows=_streamed,
    focus=_by_the_clock,
    world="deterministic",
)
def end_told_once(_: Any) -> Any:
    """A task that has ended sends by the clock, and does not tell its consumers again that it has ended (E2)."""
    return lambda self, t: None


@mutant(
    TaskTime,
    "goes_on",
    *_WRONG,
    "drained",
    "liveness",
    shows=_streamed,
    focus=_by_the_clock,
    world="deterministic",
)
def record_behind_the_end_overlooked(_: Any) -> Any:
    """A record that comes behind the end of all channels opens a window, and the next end does not close it (E7)."""
    return lambda self: None
