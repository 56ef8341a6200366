"""Mistakes with tables beside a stream: inputs that are read first (A2c)."""

from typing import Any

from framework.core.external_inputs import Bounds, ExternalInputs
from protocol.commit import Commit
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.world import Plan, with_table


def _with_table(plan: Plan) -> Plan:
    return plan if plan.topology.bootstrap else with_table(plan)


@mutant(ExternalInputs, "resume", "first", focus=_with_table)
def bootstrap_end_forgotten(resume: Any) -> Any:
    """A task that goes on from a commit, after a restart or a rollback, reads all its inputs at once (A2c)."""

    def mistaken(self: ExternalInputs, commit: Commit, bounds: Bounds) -> None:
        resume(self, commit, bounds)
        self._ends = dict.fromkeys(self._ends, 0)

    return mistaken
