"""The world as a fault sees it: all that it may look at and change. The scheduler's ``Simulation`` is one."""

from collections.abc import Callable
from typing import Protocol

from tests.verification.simulation.boundary import Ambush
from tests.verification.simulation.disk import Hosts
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.process import Process

Rand = Callable[[], float]


class FaultyWorld(Protocol):
    """A world that faults are aimed at."""

    plan: Plan
    now: int  # ms
    step: int
    log: SharedLog
    checker: Checker
    ambush: Ambush
    hosts: Hosts

    @property
    def processes(self) -> list[Process]:
        """Return all processes, those that are paused included."""
        ...

    def awake(self) -> list[Process]:
        """Return the processes that are not paused."""
        ...

    def kill(self, process: Process, how: str, *, restart: bool = True) -> None:
        """End a process; it is started again if no other one of its task is awake or about to start."""
        ...

    def restart(self, task: int, delay: int, crash_at: int = 0, *, lurks: bool = False) -> None:
        """Start a process of the task after ``delay`` steps. ``lurks``: see Process."""
        ...

    def drop_queues(self, task: int) -> None:
        """Lose what dead processes of a task have sent and the log has not applied."""
        ...

    def must_halt(self, task: int) -> None:
        """Note that a damage hit what a task must make again."""
        ...

    def change_outputs(self, task: int) -> None:
        """Let the code of a task make other outputs than it did, in processes that start from now on."""
        ...
