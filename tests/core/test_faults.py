"""An error that ends a task names an invariant that its core violates, too, and never hides the cause (C5)."""

import pickle
from collections.abc import Callable

import pytest

from grete.core.faults import NAMED_MAX, names_violations
from grete.core.ports import Core
from grete.errors import Fenced
from tests.core.scenario import running


class Turn:
    """A driver that does one thing with its core."""

    def __init__(self, does: Callable[[Core], int]) -> None:
        self.core: Core = running()[0].core
        self.does = does

    @names_violations
    def tick(self) -> int:
        """Do it."""
        return self.does(self.core)


def _fenced(_: Core) -> int:
    raise Fenced("taken over", task="b-0")


def test_a_turn_without_an_error_is_not_touched() -> None:
    """Its answer comes back as it is."""
    assert Turn(lambda core: core.frozen + 7).tick() == 7


def test_an_error_of_a_task_in_order_stays_as_it_is() -> None:
    """Nothing is added to its text, nor behind it."""
    with pytest.raises(Fenced, match=r"^taken over$") as raised:
        Turn(_fenced).tick()
    assert not hasattr(raised.value, "__notes__")


def test_a_violated_invariant_is_named_beside_the_cause() -> None:
    """The cause comes first, with its class and fields; then the place of the check, and what it found."""
    turn = Turn(_fenced)
    turn.core.frozen = 9
    with pytest.raises(Fenced) as raised:
        turn.tick()
    text = "taken over; besides, b-0 violates an invariant (TaskChangelog.check_invariants, line "
    assert str(raised.value).startswith(text)
    assert raised.value.plain() == {"error": str(raised.value), "task": "b-0"}
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # it goes to the supervisor


def test_a_long_violation_is_cut() -> None:
    """An error has the beginning of what a check prints, which may be all that a task holds."""
    turn = Turn(_fenced)
    turn.core.frozen = 9
    with pytest.raises(Fenced) as raised:
        turn.tick()
    assert NAMED_MAX < len(str(raised.value)) < 2 * NAMED_MAX


def test_an_error_of_another_kind_gets_a_note() -> None:
    """Its text is its own: what else is wrong stands below it in a traceback."""
    turn = Turn(lambda _: 1 // 0)
    turn.core.frozen = 9
    with pytest.raises(ZeroDivisionError, match=r"^integer division or modulo by zero") as raised:
        turn.tick()
    assert raised.value.__notes__[0].startswith("besides, b-0 violates an invariant (")


def test_a_violation_that_is_the_cause_is_named_once() -> None:
    """A commit that finds it raises it: it is no second one."""

    def commits(core: Core) -> int:
        core.check_invariants()
        return 1

    turn = Turn(commits)
    turn.core.frozen = 9
    with pytest.raises(AssertionError) as raised:
        turn.tick()
    assert not hasattr(raised.value, "__notes__")
