"""The pipe between a worker and its supervisor: statuses as lines of JSON, and empty lines as signs of life."""

import contextlib
import json
import os
import select
from collections.abc import Callable


def has_reader(handle: int) -> bool:
    """Tell whether a process still has the other end of a pipe open."""
    poller = select.poll()
    poller.register(handle, 0)  # errors are reported in any case
    return not poller.poll(0)


def show_life_to(handle: int) -> Callable[[], None]:
    """Return what tells a supervisor, by an empty line, that the loop goes on, perhaps in a long batch."""

    def show_life() -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):  # it is slow; or gone, as the loop will see
            os.write(handle, b"\n")

    return show_life


def report_to(handle: int, gone: Callable[[], None]) -> Callable[[dict[str, object]], None]:
    """Return a reporter that writes JSON lines to a supervisor's pipe; ``gone`` is called when no process reads it.

    A supervisor that is slow is no reason to wait. One that is gone has a successor that needs to start this worker's
    successor.
    """
    os.set_blocking(handle, False)

    def report(status: dict[str, object]) -> None:
        try:
            os.write(handle, json.dumps(status).encode() + b"\n")
        except BlockingIOError:
            return
        except BrokenPipeError:
            gone()

    return report
