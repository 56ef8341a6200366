"""The loop of a process: whose errors end what, and when a task may start again."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from grete.core.graph.topology import Topology
from grete.errors import Fenced, FrameworkError, LogAway, TaskError, TransientError
from grete.execution.engine.joint_progress import JointProgress
from grete.execution.engine.pending_sends import PendingSends
from grete.ports import Delivery
from grete.worker.process.observed_checkpoints import ObservedCheckpoints
from grete.worker.process.task_loop import FEW, PUSH_MS, TaskLoop


class Task:
    """A driver whose ``tick`` raises what it is told to; ``taken``: the tokens whose delivery it was told of."""

    def __init__(self, owner: int, mono_ms: Callable[[], float]) -> None:
        self.wiring = SimpleNamespace(name=f"task-{owner}", is_source=False)
        self.mode = SimpleNamespace(observed=0, observe=lambda _time: None)
        sends = SimpleNamespace(pending=PendingSends(self.wiring.name, send_timeout_ms=100))
        self.parts = SimpleNamespace(owner=owner, sends=sends, io=SimpleNamespace(mono_ms=mono_ms))
        self.fails: FrameworkError | None = None
        self.urgent, self.exit, self.ticks = False, None, 0
        self.taken: list[int] = []

    def tick(self) -> bool:
        """Do one thing."""
        self.ticks += 1
        if self.fails is not None:
            raise self.fails
        return False

    def delivered(self, *deliveries: Delivery) -> bool:
        """Take the answers of the log."""
        self.taken += [delivery.token for delivery in deliveries]
        return False


class World:
    """Two tasks in a loop, a log whose answers are what a test says, and a clock."""

    def __init__(self, tasks: int = 2) -> None:
        self.answers: list[Delivery] = []
        self.now_ms, self.polls = 0.0, 0
        self.tasks = [Task(owner, lambda: self.now_ms) for owner in range(tasks)]
        alone = ObservedCheckpoints(Topology("j", (), ()))
        joint = JointProgress(self, lambda: self.now_ms)  # type: ignore[arg-type]  # what a loop needs
        self.loop = TaskLoop(self.tasks, self, lambda: self.now_ms, alone, joint)  # type: ignore[arg-type]  # likewise

    def poll(self) -> list[Delivery]:
        """Return the answers."""
        self.polls += 1
        answers, self.answers = self.answers, []
        return answers


def test_an_error_of_a_tasks_own_ends_it_alone() -> None:
    """It gets no turn and no answer any more; the other one does."""
    world = World()
    first, second = world.tasks
    first.fails = TaskError("it fails")
    world.answers = [Delivery(0, 1, 0, 0), Delivery(1, 1, 1, 0)]
    world.loop.go_round()
    world.loop.go_round()
    assert [(driver.parts.owner, str(error), error.task) for driver, error in world.loop.ended] == [
        (0, "it fails", "task-0")
    ]
    assert (first.ticks, second.ticks, first.taken, second.taken) == (1, 2, [], [1])


@pytest.mark.parametrize("error", [TransientError("the disk is full"), FrameworkError("who knows")])
def test_any_other_error_leaves_the_loop(error: FrameworkError) -> None:
    """Nothing is known of what all tasks share."""
    world = World()
    world.tasks[0].fails = error
    with pytest.raises(type(error)) as raised:
        world.loop.go_round()
    assert (raised.value.task, world.loop.ended) == ("task-0", [])


def test_a_task_leaves_until_its_sends_are_answered() -> None:
    """Sends of the old life arrive in any case, so a new life must wait for them."""
    world = World()
    first = world.tasks[0]
    pending: Any = first.parts.sends.pending
    pending.sent(1, 10, 0.0)
    pending.sent_other(-3, 0.0)
    first.fails = TaskError("it fails")
    world.loop.go_round()
    assert world.loop.leaves("task-0")
    for token in (1, 1, -2, -3):  # one comes twice; data of a changelog is not counted
        assert world.loop.leaves("task-0")
        world.answers = [Delivery(0, token, 0, 0)]
        world.loop.go_round()
    assert not world.loop.leaves("task-0")
    assert first.taken == []


def test_what_is_never_answered_ends_the_process() -> None:
    """As for a task that goes on (B1); one that is fenced does not come again, so nothing waits for it."""
    for error, leaves in ((TaskError("it fails"), True), (Fenced("it is"), False)):
        world = World()
        pending: Any = world.tasks[0].parts.sends.pending
        pending.sent(1, 10, 0.0)
        world.tasks[0].fails = error
        world.loop.go_round()
        world.now_ms = 101
        assert world.loop.leaves("task-0") is leaves
        if leaves:
            with pytest.raises(LogAway, match="task-0: send 1 of 10 bytes is unacknowledged"):
                world.loop.go_round()
        else:
            world.loop.go_round()


@pytest.mark.parametrize(("tasks", "step_ms", "polls"), [(FEW, 0, FEW), (FEW + 1, 0, 1), (FEW + 1, PUSH_MS, FEW + 1)])
def test_what_is_urgent_leaves_in_a_turn_but_not_for_each_of_many(tasks: int, step_ms: int, polls: int) -> None:
    """Among few tasks each pushes in its turn; among many one does in 2 ms, and the end of the round for the rest."""
    world = World(tasks)

    def works(task: Task) -> Callable[[], bool]:
        def tick() -> bool:
            task.ticks += 1
            world.now_ms += step_ms if task.ticks == 1 else 0
            task.urgent = task.ticks == 1
            return task.ticks == 1

        return tick

    world.now_ms = 100.0
    for task in world.tasks:
        task.tick = works(task)
    world.loop.go_round()
    assert world.polls == polls + 1
