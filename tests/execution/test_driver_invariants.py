"""A driver notices a state that its parts must not have: one of them is set wrong, and the next check raises."""

from collections.abc import Callable

import pytest

from tests.execution.driving import Driven, driven

BREAKS: dict[str, Callable[[Driven], None]] = {
    "more bytes are on their way than were sent": lambda task: setattr(task.driver.parts.sends.pending, "bytes", 1),
    "a send is pending with a token that was never given": lambda task: task.driver.parts.sends.pending._pending.update(
        {1 << 40: (0, 0.0)}
    ),
    "an input has two turns": lambda task: task.driver.parts.inputs.reader._turn.extend(
        task.driver.parts.inputs.reader._turn
    ),
    "a batch is cut, and its rest is not here": lambda task: setattr(task.driver.parts.inputs.reader, "more", True),
    "code may not run, and the state is restored": lambda task: setattr(task.driver.parts, "ready", False),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_state_that_must_not_be_is_noticed(name: str) -> None:
    """A driver that is in order passes its check; with one thing wrong it does not."""
    task, a0, _ = driven()
    a0.send(1, "x")
    task.run()
    task.driver.check_invariants()
    BREAKS[name](task)
    with pytest.raises(AssertionError):
        task.driver.check_invariants()
