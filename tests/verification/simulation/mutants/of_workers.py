"""Mistakes that show only where several tasks share a process: its thread, its client of the log, its end (C5)."""

from typing import Any

from framework.errors import FrameworkError
from framework.worker.task_loop import TaskLoop
from tests.verification.simulation.forms import with_workers
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
