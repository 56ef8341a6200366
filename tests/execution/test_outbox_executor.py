"""Steps of a sink in a real thread, beside a task that rolls back (S2, R4)."""

import threading
from collections.abc import Callable
from itertools import count

from grete.execution.outbox_executor import Background, OwnThread, StepPlan

BOUND_S = 60


def worked(background: Background) -> None:
    """Let the step that is under way end, and take its result."""
    while not background.work(0):
        pass


def test_a_step_under_way_at_a_rollback_ends_first_and_its_result_is_dropped() -> None:
    """No step of the new plan begins beside the old one, which still writes; and the new plan gets its own results."""
    begun, go_on, attempts = threading.Event(), threading.Event(), count()
    did: list[str] = []
    given: list[tuple[int, object]] = []

    def old() -> str:
        begun.set()
        assert go_on.wait(BOUND_S)
        did.append("old")
        return "of the old plan"

    def new() -> str:
        did.append("new")
        return "of the new plan"

    steps: list[Callable[[], str]] = [old, new]

    def plan() -> StepPlan:
        attempt = next(attempts)
        given.append((attempt, (yield steps[attempt])))
        yield None

    background = Background(plan, OwnThread(), 1, 1)
    assert background.work(0)
    assert begun.wait(BOUND_S)
    background.restart()
    assert not background.work(0), "a step begins beside one that is under way"
    go_on.set()
    worked(background)
    assert (did, given) == (["old"], [])
    assert background.work(0)
    worked(background)
    assert (did, given) == (["old", "new"], [(1, "of the new plan")])
    assert background.idle


def test_a_step_that_fails_after_a_rollback_is_no_trouble_of_the_new_plan() -> None:
    """What the old plan's step raises is dropped, too: nothing waits for it."""
    begun, go_on, attempts = threading.Event(), threading.Event(), count()

    def old() -> None:
        begun.set()
        assert go_on.wait(BOUND_S)
        raise ValueError("the old plan's")

    def plan() -> StepPlan:
        yield old if next(attempts) == 0 else None

    background = Background(plan, OwnThread(), 1, 1)
    assert background.work(0)
    assert begun.wait(BOUND_S)
    background.restart()
    go_on.set()
    worked(background)
    assert not background.work(0)
    assert background.idle
    assert background.trouble is None
