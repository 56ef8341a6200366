"""Mistakes with tables beside a stream: inputs that are read first (A2c), or whole by each task (A2d)."""

from typing import Any

from framework.core.external_inputs import Bounds, ExternalInputs
from protocol.commit import Commit, ExternalInput
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.world import Plan, with_table


def _with_table(plan: Plan) -> Plan:
    return plan if plan.topology.bootstrap else with_table(plan)


def _of_several_partitions(plan: Plan) -> bool:
    counts = [count for topics in with_table(plan).topology.broadcast.values() for count in topics.values()]
    return max(counts, default=0) > 1


@mutant(ExternalInputs, "commit", "position", "error", shows=_of_several_partitions, focus=_with_table)
def broadcast_position_of_one(commit: Any) -> Any:
    """A commit has the position in one partition of each topic, though the task reads all of a broadcast one (A2d)."""

    def mistaken(self: ExternalInputs) -> tuple[ExternalInput, ...]:
        return tuple({entry.topic: entry for entry in commit(self)}.values())

    return mistaken


@mutant(ExternalInputs, "resume", "first", focus=_with_table)
def bootstrap_end_forgotten(resume: Any) -> Any:
    """A task that goes on from a commit, after a restart or a rollback, reads all its inputs at once (A2c)."""

    def mistaken(self: ExternalInputs, commit: Commit, bounds: Bounds) -> None:
        resume(self, commit, bounds)
        self._ends = dict.fromkeys(self._ends, 0)

    return mistaken
