"""Each action says what must be done before it, what only after it, and which event answers it; breaking it shows."""

import re
from collections import Counter
from functools import cache
from typing import get_args

import pytest

from grete.core import actions as do
from grete.core import events as on
from tests.execution.permuting import ALONE, THEN, WORLDS, Exchange, Killed, live

LINE = re.compile(r"Before: (.+?)\. After: (.+?)\. Answer: (.+?)\.$")
ACTIONS = {action.__name__: action for action in get_args(do.Action)}
EVENTS = {event.__name__: event for event in get_args(on.Event)}
FROM_OUTSIDE = {  # they answer nothing
    on.Start,
    on.Stop,
    on.Tick,
    on.CheckpointObserved,
    on.InputGone,
    on.Message,
    on.Messages,
    on.ExternalProcessed,
    on.InputRead,
    on.ExternalBatch,
    on.InputIdle,
    on.Fired,
}
TURNS_MAX = 12  # of each world, so that a test takes seconds at most
HARMLESS_TURNS = 3  # of an exchange that nothing notices: each of them is a whole run, and the first ones are alike


def said(action: type[do.Action]) -> tuple[list[str], list[str], list[str]]:
    """Return the names in an action's docstring: before, after, and of its answers."""
    found = LINE.search(" ".join((action.__doc__ or "").split()))
    assert found, f"{action.__name__}: its docstring ends with: Before: …. After: …. Answer: …."
    before, after, answer = ([] if names == "none" else names.split(", ") for names in found.groups())
    return before, after, answer


OBLIGATIONS = [
    (earlier, later) for later, action in ACTIONS.items() for earlier in said(action)[0]
]  # (what must be done first, what only then)


@pytest.mark.parametrize("name", ACTIONS)
def test_each_action_says_its_place(name: str) -> None:
    """Before names actions, Answer names events, and After is the same obligations seen from the other side."""
    before, after, answers = said(ACTIONS[name])
    assert set(before) <= set(ACTIONS)
    assert set(answers) <= set(EVENTS)
    assert after == [later for earlier, later in OBLIGATIONS if earlier == name]


def test_each_event_answers_an_action_or_comes_from_outside() -> None:
    """A driver's author finds for each event when it is due."""
    answers = {answer for action in ACTIONS.values() for answer in said(action)[2]}
    outside = {event.__name__ for event in FROM_OUTSIDE}
    assert answers | outside == set(EVENTS)
    assert not answers & outside


@cache
def undisturbed(world: str) -> tuple[list[object], Counter[type[do.Action]]]:
    """Return the result of a world in which every order is kept, and the number of times each action is asked for."""
    counting = Exchange(do.Exit, do.Exit, 1 << 30, "performed late")
    return live(world, counting), counting.asked


def test_every_action_but_four_is_asked_for() -> None:
    """All actions but four occur in the worlds, so that their order is tested.

    An outcome is looked for only behind a bulk write, an input becomes idle only where timers are, only files and
    tables get outputs by ReleaseToSinks, and only tasks beside others announce with them.
    """
    asked = {action.__name__ for world in (ALONE, *WORLDS) for action in undisturbed(world)[1]}
    assert set(ACTIONS) - asked == {"Announce", "FindOutcome", "ProcessIdle", "ReleaseToSinks"}


def noticed(earlier: str, later: str, turns: int = TURNS_MAX) -> str:
    """Return the error, or the difference, by which an exchange of two actions is noticed, "" if it is not."""
    refused = ""
    for world in (ALONE, *WORLDS):
        expected, asked = undisturbed(world)
        if not (asked[ACTIONS[earlier]] and asked[ACTIONS[later]]):
            continue
        for turn in range(min(turns, asked[ACTIONS[earlier]])):
            for then in THEN:
                exchange = Exchange(ACTIONS[earlier], ACTIONS[later], turn, then)
                where = f"{world}, {earlier} number {turn} {then}"
                try:
                    differs = live(world, exchange) != expected
                except Killed:
                    continue  # a task alone is not started again
                except Exception as error:  # noqa: BLE001  # a core, a store, a log, an assertion: all of them notice
                    if exchange.made:
                        return f"{where}: {type(error).__name__}: {error}"
                    refused = f"{where}, before {later} is asked for: {type(error).__name__}: {error}"
                    break  # the others would end there, too
                if exchange.made and differs:
                    return f"{where}: the job's state or its outputs are others"
    return refused


@pytest.mark.parametrize(("earlier", "later"), OBLIGATIONS)
def test_an_order_that_is_broken_is_noticed(earlier: str, later: str) -> None:
    """The obligation is real: once broken, a core, store or log refuses, or the job ends with other results.

    Where the action that is missing is needed to ask for the later one, that is refused before it comes to that.
    """
    assert noticed(earlier, later)


@pytest.mark.parametrize(("earlier", "later"), [("Committed", "Trim"), ("DropOpen", "AppendChangelog")])
def test_an_order_that_does_not_matter_is_not_noticed(earlier: str, later: str) -> None:
    """The exchange itself does no harm: what is noticed elsewhere is the order."""
    assert noticed(earlier, later, HARMLESS_TURNS) == ""
