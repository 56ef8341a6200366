"""Mistakes that show only where several tasks share a process: its thread, its client of the log, its end (C5)."""

from typing import Any

from grete.core.idleness import Idleness
from grete.errors import FrameworkError
from grete.worker.process.observed_checkpoints import ObservedCheckpoints
from grete.worker.process.task_loop import TaskLoop
from tests.verification.simulation.forms import with_rest, with_workers
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan

_WRITES = ("ownership", "generation", "one commit", "order", "rollback marker", "store", "uncommitted", "sink", "lost")
_STOPS = ("core", "error", "halted", "liveness")


def _several_stages(plan: Plan) -> bool:
    return bool(plan.topology.streams) and not plan.damaged


def _claimed_often(plan: Plan) -> Plan:
    """Workers, and others of the same tasks beside them."""
    return full_of("twin", "zombie", "disk full")(with_workers(plan))


@mutant(TaskLoop, "_poll", *_WRITES, *_STOPS, shows=_several_stages, focus=with_workers)
def answers_to_whose_turn_it_is(_poll: Any) -> Any:
    """The log's answers go to the task whose turn it is, though another one has sent (A7)."""

    def mistaken(self: TaskLoop) -> bool:
        driver = self.turn_of or next(iter(self._drivers.values()))
        return sum(driver.delivered(delivery) for delivery in self._log.poll()) > 0

    return mistaken


@mutant(TaskLoop, "_tick", *_WRITES, *_STOPS, shows=_several_stages, focus=_claimed_often)
def error_ends_the_turn_alone(tick: Any) -> Any:
    """An error of one task ends its turn, and the process goes on with all (C5)."""

    def mistaken(_self: TaskLoop, driver: Any) -> bool:
        try:
            return bool(driver.tick())
        except FrameworkError:
            return False

    return mistaken


def _rests(plan: Plan) -> bool:
    return plan.aligned and _several_stages(plan)


@mutant(ObservedCheckpoints, "_observed", "liveness", shows=_rests, focus=with_rest)
def idle_sources_observe_nothing(observed: Any) -> Any:
    """An idle source is not told of the checkpoints that others close, and goes on waiting for them (A1)."""
    return lambda self, tasks: (0, observed(self, tasks)[1])


@mutant(ObservedCheckpoints, "_observed", "liveness", shows=_rests, focus=with_rest)
def idle_sources_wait_where_no_task_observes(_observed: Any) -> Any:
    """An idle source waits for the checkpoints of others, though no task of its process reads their markers (A1)."""

    def mistaken(_self: ObservedCheckpoints, tasks: Any) -> tuple[int, bool]:
        found = [driver.mode.observed_checkpoint for driver in tasks if not driver.wiring.deterministic]
        return max((each for each in found if each is not None), default=0), True

    return mistaken


@mutant(Idleness, "put_off", "liveness", "core", "lost", shows=_rests, focus=with_rest)
def busy_sources_wait_for_others(_put_off: Any) -> Any:
    """A source that has something new waits for the checkpoints of others, as an idle one does (A1)."""
    return lambda self, _frozen, checkpoint_id: None if self._awaited and self._sees_next else checkpoint_id
