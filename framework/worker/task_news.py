"""What a supervisor learns of tasks that have ended while the others of their worker went on."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from grete.worker.ends import Reason

_OF_A_WORKER: tuple[Reason, ...] = (
    "task error",
    "store corrupted",
)  # a halt is to end the worker; fenced is no failure


def failures_of_tasks(
    status: Mapping[str, Mapping[str, Any]], told: Mapping[str, Mapping[str, int]]
) -> Counter[Reason]:
    """Return how often tasks of a worker's ``status`` have failed since what was ``told``, by reason."""
    return Counter(
        {
            reason: sum(_ends(task).get(reason, 0) - told.get(name, {}).get(reason, 0) for name, task in status.items())
            for reason in _OF_A_WORKER
        }
    )


def news_of_tasks(status: Mapping[str, Mapping[str, Any]], told: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield what a person is told of each task that has ended since what was ``told``."""
    for name, task in status.items():
        ended = sum(_ends(task).values()) > sum(told.get(name, {}).values())
        if ended and task["end"] is not None:  # else it has committed again since
            yield _text(name, task["end"])


def _ends(task: Mapping[str, Any]) -> Mapping[str, int]:
    found: Mapping[str, int] = task.get("ends", {})
    return found


def _text(name: str, end: Mapping[str, Any]) -> str:
    if end["reason"] == "fenced":
        return f"{name} was fenced: another process has taken it; the other tasks go on: {end['text']}"
    if end["reason"] == "halted":
        return f"{name} has halted; the other tasks of its worker stop: {end['text']}"
    trace = f"\n{textwrap.indent(end['traceback'], '  ')}" if end["traceback"] else ""
    restart = f"the other tasks go on; it starts again in {end['restart_ms'] / 1000:.1f} s"
    return f"{name} ended ({end['reason']}): {end['text']}; {restart}{trace}"
