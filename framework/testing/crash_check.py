"""Runs one script again and again, each time with a crash at another place, and compares what comes of it."""

import difflib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from grete.api.jobs.job import Job


class ScriptRun(NamedTuple):
    """The result of a script, and its number of steps. ``crashed``: the tasks that were killed on the way."""

    result: object
    steps: int
    crashed: list[str]


Play = Callable[[int, bool], ScriptRun]  # the step behind which to crash, 0: none; and whether that takes the disk


def check_crashes(play: Play, at_most: int, job: Job) -> int:
    """Compare the script without a crash with the script with one; return how many crashes were tried.

    Raises AssertionError: at which crash something else came of it, and the difference.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    plain, again = play(0, False), play(0, False)
    if plain.result != again.result:
        raise AssertionError(
            "two runs of the same feed without a crash differ, so a crash would prove nothing: the task's code depends "
            f"on more than its records and its stores\n{_difference(plain.result, again.result)}"
        )
    tried, late = 0, _late(job)
    for step, other_host in _places(plain.steps, at_most):
        how = f"crash_at({step}{', other_host=True' if other_host else ''})"
        try:
            crashed = play(step, other_host)
        except Exception as error:
            raise AssertionError(f"with {how} the run fails: {type(error).__name__}: {error}") from error
        tried += 1
        if crashed.result != plain.result:
            raise AssertionError(
                f"with {how}, which kills {', '.join(crashed.crashed)}, the result is another: the task has an effect "
                f"outside of its declared stores and outputs, or its results depend on the order between tasks{late}\n"
                f"{_difference(plain.result, crashed.result)}"
            )
    return tried


def _places(steps: int, at_most: int) -> Iterator[tuple[int, bool]]:
    """Yield each step with and without the disk; if these are too many, steps at equal distances, in turn."""
    if 2 * steps <= at_most:
        yield from ((step, other_host) for step in range(1, steps + 1) for other_host in (False, True))
    else:
        yield from ((1 + number * steps // at_most, number % 2 == 1) for number in range(at_most))


def _late(job: Job) -> str:
    """Return another possible cause where event time goes by several topics: a crash is a pause of one of them."""
    read = [(stage.topics_timed(), job.topology().externals_of(stage.ordinal)) for stage in job.live]
    telling = [[topic for topic in topics if times.get(topic) != "none"] for times, topics in read]
    several = [topics for topics in telling if len(topics) > 1]
    if not several or not any(stage.goes_by_time for stage in job.live):
        return ""
    return (
        f"; or records were late in one of the runs, since event time goes by {' and '.join(several[0])}, and by one "
        'of them alone while the other pauses: a table beside a stream needs time="none" (docs/guides/tables.md)'
    )


def _difference(plain: object, other: object) -> str:
    """Return the lines that differ, or both results."""
    if isinstance(plain, str) and isinstance(other, str):
        lines = difflib.unified_diff(plain.splitlines(), other.splitlines(), "first", "then", lineterm="", n=2)
        return "\n".join(lines)
    return f"first: {plain!r}\nthen:  {other!r}"
