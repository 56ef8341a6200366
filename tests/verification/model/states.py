"""The parts of a world's state, and the moves that are possible in one."""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from grete.core.lifecycle import TaskStatus

State = tuple[int, ...]  # of each partition, then of each task, then faults left, then what the dead have sent
T = TypeVar("T", bound=Hashable)


class Move(NamedTuple):
    """One thing that may happen. ``task``: or an index of what the dead have sent; ``one``: which of its processes."""

    kind: str
    task: int
    one: int = 0
    what: int = 0  # a partition's index, a checkpoint, or 1 for an empty host
    route: int = 0


GONE = -1  # instead of a process: it has exited as fenced
MUST = {"start", "send", "deliver", "take", "tick"}  # all others are faults, which may happen or not


class Faults(NamedTuple):
    """The numbers of faults that are left."""

    crashes: int
    zombies: int
    late: int


class Task(NamedTuple):
    """``processes``: those alive, as numbers; ``store``: what the last one left behind; ``starts``: how many so far."""

    processes: tuple[int, ...]
    store: int
    starts: int


class Face(NamedTuple):
    """The part of a process that is visible from outside."""

    number: int
    status: TaskStatus
    generation: int
    wants_input: bool
    positions: tuple[tuple[int, int], ...]  # partition's index, offset
    heads: tuple[tuple[int, int, bool], ...]  # partition's index, the first row of the queue, whether it is data
    frozen: int
    known: int  # generations of its producers, added up
    external: int  # position, -1 if it reads nothing from outside
    committing: bool
    store: int


class Table(Generic[T]):
    """Numbers for values."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """Return the number of a value."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number
