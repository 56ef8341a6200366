"""The world as a fault sees it: all that it may look at and change. The scheduler's ``Simulation`` is one."""

from collections.abc import Callable
from typing import Protocol

from tests.verification.simulation.boundary import Ambush
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.population import Population
from tests.verification.simulation.process import Surroundings
from tests.verification.simulation.standbys import Standbys
from tests.verification.simulation.trace import WorldTime

Rand = Callable[[], float]


class FaultyWorld(Protocol):
    """A world that faults are aimed at."""

    plan: Plan
    time: WorldTime
    log: SharedLog
    checker: Checker
    ambush: Ambush
    around: Surroundings
    population: Population
    standbys: Standbys
    must_halt: set[int]  # tasks that cannot overlook a damage
