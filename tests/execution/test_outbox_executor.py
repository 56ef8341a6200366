"""Steps of a sink in a real thread, beside a task that rolls back (S2, R4)."""

import threading
from collections.abc import Callable
from functools import partial
from itertools import count

from grete.errors import TransientError
from grete.execution.sinks.outbox_executor import Background, StepPlan, ThreadExecutor

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

    background = Background(plan, ThreadExecutor(), 1, 1)
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
    """An error of the old plan's step is dropped: nothing waits for it."""
    begun, go_on, attempts = threading.Event(), threading.Event(), count()

    def old() -> None:
        begun.set()
        assert go_on.wait(BOUND_S)
        raise ValueError("the old plan's")

    def plan() -> StepPlan:
        yield old if next(attempts) == 0 else None

    background = Background(plan, ThreadExecutor(), 1, 1)
    assert background.work(0)
    assert begun.wait(BOUND_S)
    background.restart()
    go_on.set()
    worked(background)
    assert not background.work(0)
    assert background.idle
    assert background.retries.trouble is None


def test_trouble_is_over_when_what_failed_succeeds() -> None:
    """A service that never answers in time: to open it again ends no trouble, and each wait is longer (S2)."""
    failing, told = 3, list[tuple[str, str | None]]()

    def opened() -> None:
        told.append(("opened", background.retries.trouble))

    def send(number: int) -> None:
        nonlocal failing
        told.append(("sent", background.retries.trouble))
        failing -= 1
        if failing >= 0:
            raise TransientError(f"no answer to {number}")

    def plan() -> StepPlan:
        yield opened
        yield partial(send, failing)
        yield None

    background, waits = Background(plan, ThreadExecutor(), 1, 1_000), list[float]()
    while not background.idle:
        waits.append(background.due_in_ms(0))
        assert background.work(waits[-1])
        worked(background)  # it is opened
        worked(background)
    no = [f"no answer to {number}" for number in (3, 2, 1)]
    assert told == [(did, trouble) for trouble in (None, *no) for did in ("opened", "sent")]
    assert (waits, background.retries.trouble) == ([0, 1, 2, 4], None)
