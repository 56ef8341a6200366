"""The start of a task whose changelog is empty, and whose streams have messages of it (A2)."""

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.changelog.ownership import Ownership
from grete.core.startup import StartUp
from grete.errors import Halted
from grete.halts import HaltCode
from tests.core.scenario import NONCE
from tests.core.streams import INNER, OUT


def begun(end: int) -> list[do.Action]:
    """Return the first actions of a task whose changelog ends there, and which has sent."""
    start = on.Start(0, NONCE, "here", 1, 0, None, {INNER.changelog: (0, end)}, OUT[0])
    return StartUp("b-0", INNER.changelog, Ownership(INNER.changelog), lambda _commit: None).begin(start)


def test_an_empty_changelog_of_a_task_that_has_sent_halts() -> None:
    """Nothing is sent before the genesis commit, so its changelog was cut; and nothing is written (C1)."""
    with pytest.raises(Halted, match=r"is empty, but .* has messages that the task has sent") as halted:
        begun(0)
    assert halted.value.code is HaltCode.CHANGELOG_GONE


def test_a_twin_may_have_begun_and_sent_meanwhile() -> None:
    """Then the changelog has something, and says what."""
    assert begun(1) == [do.WipeStore(), do.ReadChangelog(0)]
