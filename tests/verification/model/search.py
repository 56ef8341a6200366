"""Breadth first through all states of a world: complete, or it says so. The first violation is one of the shortest."""

import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.verification.model.states import MUST, Move, State
from tests.verification.model.system import System
from tests.verification.simulation.oracle import Violation

STATES_MAX = 20_000_000


@dataclass(slots=True)
class Report:
    """The result of a search. ``complete``: all states within the world's bounds were seen."""

    states: int = 0
    transitions: int = 0
    depth: int = -1  # moves on the longest of the shortest ways
    at_rest: int = 0  # states in which nothing is left to do
    processes: int = 0  # distinct states of one process: each step of these went through the real core
    seconds: float = 0.0  # of the processor, so that it means the same on a busy machine
    complete: bool = True
    violation: Violation | None = None
    path: tuple[tuple[State, Move], ...] = ()  # to the violation


def explore(
    system: System,
    *,
    only: str | None = None,
    states_max: int = STATES_MAX,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Visit every state of a world, or ``states_max`` of them, or up to the first violation (of ``only``, if given)."""
    started = time.process_time()
    first = system.initial()
    numbers, states = {first: 0}, [first]
    parents, choices = array("q", [-1]), array("H", [0])  # how each state was reached first
    report = Report()
    level_end = at = 0
    while at < len(states) and report.violation is None:
        if len(states) > states_max:
            report.complete = False
            break
        if at == level_end:
            report.depth, level_end = report.depth + 1, len(states)
            if progress is not None:
                progress(len(states), report.depth)
        for chosen, after in _next(system, states[at], report):
            report.transitions += chosen >= 0
            if isinstance(after, Violation):
                if only in (None, after.name):
                    report.violation, report.complete = after, False
                    report.path = _path(system, states, parents, choices, at, chosen)
                    break
            elif numbers.setdefault(after, len(states)) == len(states):
                states.append(after)
                parents.append(at)
                choices.append(chosen)
        at += 1
    report.states, report.processes, report.seconds = len(states), len(system.faces), time.process_time() - started
    return report


def _next(system: System, state: State, report: Report) -> Iterator[tuple[int, State | Violation]]:
    """Yield the state after each move, by its number; a violation of the state itself has the number -1."""
    moves = system.moves(state)
    if not any(move.kind in MUST for move in moves):
        report.at_rest += 1
        try:
            system.checks.at_rest(system.log(state))
        except Violation as error:
            yield -1, error
    for chosen, move in enumerate(moves):
        try:
            yield chosen, system.after(state, move)
        except Violation as error:
            yield chosen, error


def _path(
    system: System, states: list[State], parents: "array[int]", choices: "array[int]", at: int, chosen: int
) -> tuple[tuple[State, Move], ...]:
    """Return states and the moves out of them, from the first to the violation; ``chosen`` is -1 if it is a state's."""
    path = [] if chosen < 0 else [(states[at], system.moves(states[at])[chosen])]
    while parents[at] >= 0:
        before, move = states[parents[at]], choices[at]
        path.append((before, system.moves(before)[move]))
        at = parents[at]
    return tuple(reversed(path))
