"""Invariants of inputs that are read first (A2c)."""

from collections.abc import Callable, Mapping, Sequence

from grete.protocol.ids import TopicPartition
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.steps import NOT_TAKEN, Step

Ends = Mapping[TopicPartition, int]


class StartEnds:
    """The ends of each task's bootstrap inputs at the starts of its processes."""

    def __init__(self) -> None:
        self._of: dict[int, dict[bytes, Ends]] = {}  # task → nonce → ends, in the order of the starts

    def started(self, task: int, nonce: bytes, ends: Ends) -> None:
        """Note what a process has found at its start."""
        self._of.setdefault(task, {})[nonce] = ends

    def of(self, task: int, nonce: bytes, *, replays: bool) -> Ends:
        """Return the ends for what a process has processed; one that ``replays`` also follows earlier processes."""
        return next(iter(self._of[task].values())) if replays else self._of[task][nonce]


def check_first(
    name: str,
    ends: Ends,
    history: TaskHistory,
    steps: Sequence[Step],
    next_row: Callable[[TopicPartition, int], int],
) -> int:
    """Check that each step on another input is behind those ends; return how many rows were read before all others.

    ``history``: as it was before the steps; ``next_row``: the offset of the first message at an offset or behind it.
    """
    at, first = {partition: history.external[partition] for partition in ends}, 0
    for step in (each for each in steps if each.draw >= 0 and each.offset != NOT_TAKEN):
        behind = [p for p, offset in at.items() if next_row(p, offset) < ends[p]]
        if step.partition in at:
            at[step.partition] = step.offset + 1
            first += bool(behind)
        elif behind:
            raise Violation(
                "first",
                f"{name}: took {step.partition} offset {step.offset}, and {behind[0]} was read to {at[behind[0]]} of "
                f"{ends[behind[0]]}",
            )
    return first
