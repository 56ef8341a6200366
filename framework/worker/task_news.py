"""The ends of tasks while the others of their worker went on, as a supervisor learns of them."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from grete.protocol.report import Reason, TaskEnd, TaskEndReason, TaskReport

_OF_A_WORKER: tuple[Literal["task error", "store corrupted"], ...] = (
    "task error",
    "store corrupted",
)  # a halt is to end the worker; fenced is no failure
EndsTold = Mapping[str, Mapping[TaskEndReason, int]]  # task → its ends by reason


def failures_of_tasks(tasks: Mapping[str, TaskReport], told: EndsTold) -> Counter[Reason]:
    """Return how often tasks of a worker have failed since what was ``told``, by reason."""
    failures = Counter[Reason]()
    for name, task in tasks.items():
        for reason in _OF_A_WORKER:
            failures[reason] += task.ends.get(reason, 0) - told.get(name, {}).get(reason, 0)
    return failures


def news_of_tasks(tasks: Mapping[str, TaskReport], told: EndsTold) -> Iterator[str]:
    """Yield what a person is told of each task that has ended since what was ``told``."""
    for name, task in tasks.items():
        ended = sum(task.ends.values()) > sum(told.get(name, {}).values())
        if ended and task.end is not None:  # else it has committed again since
            yield _text(name, task.end)


def _text(name: str, end: TaskEnd) -> str:
    if end.reason == "fenced":
        return f"{name} was fenced: another process has taken it; the other tasks go on: {end.text}"
    if end.restart_ms is None:
        return f"{name} has halted; the other tasks of its worker stop: {end.text}"
    trace = f"\n{textwrap.indent(end.traceback, '  ')}" if end.traceback else ""
    restart = f"the other tasks go on; it starts again in {end.restart_ms / 1000:.1f} s"
    return f"{name} ended ({end.reason}): {end.text}; {restart}{trace}"
