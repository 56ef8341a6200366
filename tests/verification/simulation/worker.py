"""A process of a simulated world: the tasks that it hosts, their one client of the log, and how they take turns."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from framework.core.task_topology import TaskWiring
from framework.errors import FrameworkError
from framework.execution.driver import TaskDriver
from framework.execution.pending_sends import CHANGELOG
from framework.worker.task_loop import TaskLoop
from protocol.changelog import ChangelogType, decode_changelog_header
from tests.verification.simulation.boundary import Ambush, Boundary
from tests.verification.simulation.connection import SimLog
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.oracle import TaskHistory
from tests.verification.simulation.sink import SlowSteps

TICK_MS = 3  # of a turn, which one tick takes at most


class Hosted(Protocol):
    """A task, as the worker knows it: a Process of process.py."""

    driver: TaskDriver
    sink_steps: SlowSteps
    task: int
    wiring: TaskWiring
    lurks: bool

    @property
    def about_to_claim(self) -> bool:
        """Whether the next thing that it does is a claim."""
        ...

    def start(self, wall_ms: int) -> None:
        """Begin as a real process does."""
        ...


P = TypeVar("P", bound=Hosted)


class Worker(Generic[P]):
    """What its tasks share: a thread, a client, a boundary to the outside, and an end."""

    def __init__(self, log: SharedLog, ambush: Ambush, partition: int, rand: Callable[[], float]) -> None:
        """``partition``: the number of its tasks in their stages. ``host`` them, then ``start``."""
        self.boundary = Boundary(ambush)
        self.log = SimLog(log, self.boundary, partition)
        self.tasks: list[P] = []
        self.started = False
        self.paused = False
        self.wake_at = 0  # step at which it goes on
        self.stop_by = 0  # time at which a graceful stop is given up; 0: none was asked for
        self.busy = False  # in its last turn it did something
        self.loop: TaskLoop | None = None  # of several tasks; one alone is let do a few things at a time
        self._rand = rand
        self._spent_ms = 0.0

    def start(self, wall_ms: int) -> None:
        """Begin as a real process does."""
        self.started = True
        if len(self.tasks) > 1:
            self.loop = TaskLoop([process.driver for process in self.tasks], self.log, self._tired)
        for process in self.tasks:
            process.start(wall_ms)

    def stop(self, by: int) -> None:
        """Ask all tasks to end (R6)."""
        self.stop_by = by
        for process in self.tasks:
            process.driver.stop()

    @property
    def over(self) -> bool:
        """Whether all tasks have ended as they were asked to."""
        return all(process.driver.exit is not None for process in self.tasks)

    def pause(self, wake_at: int) -> None:
        """Do nothing until that step."""
        self.paused, self.wake_at = True, wake_at

    def turn(self) -> None:
        """Do a few things; ``busy`` says whether there were any."""
        self.busy = False
        for process in self.tasks:
            self.busy = process.sink_steps.work() or self.busy
        if self.loop is None:
            self._turn_alone(self.tasks[0])
        else:
            self.busy = self.loop.go_round() or self.busy

    def _turn_alone(self, process: P) -> None:
        for _ in range(1 + int(self._rand() * 12)):
            if not process.driver.tick():
                break
            self.busy = True
            if process.lurks and process.about_to_claim:
                return
        if self._rand() < 0.7:
            for delivery in self.log.poll():
                process.driver.delivered(delivery)
                self.busy = True

    def unacknowledged(self, histories: Mapping[int, TaskHistory]) -> Counter[str]:
        """Return how many commits' acknowledgements were lost, by whether the commits count."""
        lost = Counter[str]()
        for sent, delivery in self.log.lost_acks:
            if sent.token == CHANGELOG and decode_changelog_header(sent.value).type is ChangelogType.COMMIT:
                history = histories[self.tasks[delivery.owner].task]
                won = not delivery.fenced and delivery.offset in history.offsets.values()
                lost[f"lost acknowledgements of a commit that {'won' if won else 'lost'}"] += 1
        return lost

    def whose(self, error: BaseException) -> P:
        """Return the task that an error is of. One of the log itself may be of any."""
        name = error.task if isinstance(error, FrameworkError) else None
        at = None if self.loop is None else self.loop.turn_of
        named = [each for each in self.tasks if each.wiring.name == name or each.driver is at]
        return (named or self.tasks)[0]

    def _tired(self) -> float:
        """Return a clock that goes by what is done: a turn ends after some ticks."""
        self._spent_ms += TICK_MS * self._rand()
        return self._spent_ms
