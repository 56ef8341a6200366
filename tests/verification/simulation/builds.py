"""Other builds of the job: the graphs before stages were added, and graphs that a start must refuse (1.2, C1)."""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, FrameworkError
from tests.verification.simulation.fault_plan import FAULTY
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.plan import Plan

if TYPE_CHECKING:
    from tests.verification.simulation.process import Process

SHARE = 0.3  # of the worlds have other builds at work
STARTS_MAX = 3  # of builds that must be refused, in such a world
_STAGE = 65_536  # between the producer ids of two stages


class Builds:
    """Starts of other builds in a world. The draws are its own, so that all else stays as the seed says."""

    def __init__(self, plan: Plan) -> None:
        self._random = random.Random(f"builds {plan.seed}")
        self._earlier = sorted(plan.topology.fingerprints())
        self.at_work = self._random.random() < SHARE and plan.builds
        starts = self._random.randint(1, STARTS_MAX) if self.at_work else 0
        shares = sorted(self._random.uniform(0.1, FAULTY) for _ in range(starts))
        self._due = deque(int(share * plan.steps) for share in shares)

    def wiring(self, wiring: TaskWiring) -> TaskWiring:
        """Return a task's wiring as one of the builds has it: of this graph, or of one before stages were added."""
        return replace(wiring, fingerprint=self._random.choice(self._earlier)) if self.at_work else wiring

    def due(self, step: int, histories: Iterable[TaskHistory]) -> tuple[int, TaskWiring] | None:
        """Return a task, and its wiring in a graph that a start must refuse, if one is to be started now.

        It has committed with the right graph: before that nothing in its changelog tells.
        """
        if not self._due or self._due[0] > step:
            return None
        self._due.popleft()
        committed = [history.wiring for history in histories if history.checkpoint_id >= 0]
        if not committed:
            return None
        wiring = self._random.choice(committed)
        return wiring.producer, self._wrong(wiring)

    def _wrong(self, wiring: TaskWiring) -> TaskWiring:
        changed = [replace(wiring, producer=wiring.producer + _STAGE)]  # its stage has another's place
        if wiring.outputs:
            changed.append(replace(wiring, outputs=()))  # whom it writes for is gone
        if wiring.channels and not wiring.logical:
            changed.append(replace(wiring, channels=wiring.channels[1:]))  # a producer is gone
        return self._random.choice(changed)


def check_refused(process: "Process") -> None:
    """Raise Violation if a process that must be refused has begun to write."""
    if process.refused and process.core.generation:
        raise Violation("refused", f"{process.name} has claimed generation {process.core.generation}")


def is_refusal(process: "Process", error: FrameworkError) -> bool:
    """Tell whether a process was refused, as it must be."""
    return process.refused and isinstance(error, ConfigError)
