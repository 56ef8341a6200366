"""A process of a simulated world: the tasks that it hosts, their one client of the log, and how they take turns."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from grete.core.graph.task_topology import TaskWiring
from grete.core.graph.topology import Topology
from grete.errors import FrameworkError
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.joint_progress import JointProgress
from grete.execution.engine.pending_sends import CHANGELOG
from grete.protocol.changelog import ChangelogType, decode_changelog_header
from grete.protocol.ids import TopicPartition
from grete.worker.process.observed_checkpoints import ObservedCheckpoints
from grete.worker.process.task_loop import TaskLoop
from tests.verification.simulation.boundary import Ambush, Boundary
from tests.verification.simulation.connection import SimLog
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.oracle import TaskHistory
from tests.verification.simulation.sink import SlowSteps

TICK_MS = 3  # of a turn, which one tick takes at most


class Hosted(Protocol):
    """A task, as the worker knows it: a Process of process.py."""

    driver: TaskDriver
    owner: int
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


class Waiting(NamedTuple, Generic[P]):
    """A task that has ended alone, and is to start again."""

    step: int
    process: P


def read_by(process: Hosted) -> tuple[TopicPartition, ...]:
    """Return the partitions that a task reads."""
    return (*process.driver.parts.inputs.partitions, process.wiring.changelog)


class Worker(Generic[P]):
    """The shared parts of a process's tasks: a thread, a client, a boundary to the outside, and an end."""

    def __init__(
        self, log: SharedLog, ambush: Ambush, partition: int, rand: Callable[[], float], topology: Topology
    ) -> None:
        """``partition``: the number of its tasks in their stages. ``host`` them, then ``start``."""
        self.boundary = Boundary(ambush)
        self.log = SimLog(log, self.boundary, partition)
        self.joint = JointProgress(self.log, log.clock)
        self.tasks: list[P] = []  # without those that have ended alone
        self.waiting: list[Waiting[P]] = []
        self.owners: list[int] = []  # the task that each owner of a send is, or was
        self.started = False
        self.paused = False
        self.wake_at = 0  # step at which it goes on
        self.stop_by = 0  # time at which a graceful stop is given up; 0: none was asked for
        self.busy = False  # in its last turn it did something
        self.loop: TaskLoop | None = None  # of several tasks; one alone is let do a few things at a time
        self._turn_of = 0  # an owner
        self.log.tasks, self.log.whose_turn = self.owners, self._whose_turn
        self._rand, self._topology = rand, topology
        self._spent_ms = 0.0

    def start(self, wall_ms: int) -> None:
        """Begin as a real process does."""
        self.started = True
        if len(self.tasks) > 1:
            loop = self.loop = TaskLoop(
                [process.driver for process in self.tasks],
                self.log,
                self._tired,
                ObservedCheckpoints(self._topology),
                self.joint,
            )
            self.boundary.may_fail_alone = lambda: loop.turn_of is not None and len(self.tasks) > 1
        for process in self.tasks:
            self._turn_of = process.owner
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
        self.joint.leave()
        if self._rand() < 0.7:
            for delivery in self.log.poll():
                process.driver.delivered(delivery)
                self.busy = True

    def end_alone(self, process: P, again_at: int | None) -> None:
        """Take a task out that has ended alone; ``again_at``: the step from which on it is to start again."""
        self.tasks.remove(process)
        in_use = {partition for each in self.tasks for partition in read_by(each)}
        self.log.forget(partition for partition in read_by(process) if partition not in in_use)
        if again_at is None:
            self.log.give_up(process.wiring.changelog)
        else:
            self.waiting.append(Waiting(again_at, process))

    def _whose_turn(self) -> int:
        at = None if self.loop is None else self.loop.turn_of
        return self._turn_of if at is None else at.parts.owner

    def due(self, step: int) -> list[P]:
        """Return and forget the tasks that can start again: the log has answered all that they had sent."""
        loop = self.loop
        if not self.waiting or loop is None or self.stop_by:
            return []
        due = [each for each in self.waiting if each.step <= step and not loop.leaves(each.process.wiring.name)]
        for each in due:
            self.waiting.remove(each)
            self.log.give_up(each.process.wiring.changelog)
        return [each.process for each in due]

    def unacknowledged(self, histories: Mapping[int, TaskHistory]) -> Counter[str]:
        """Return the number of commits whose acknowledgements were lost, by whether the commits count."""
        lost = Counter[str]()
        for sent, delivery in self.log.lost_acks:
            if sent.token == CHANGELOG and decode_changelog_header(sent.value).type is ChangelogType.COMMIT:
                history = histories[self.owners[delivery.owner]]
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
