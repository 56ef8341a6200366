"""Waiting in tests: each wait names its condition, and its bound counts the machine's time, not seconds."""

import linecache
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

T = TypeVar("T")

PATIENCE_S = 25.0  # of a machine that does nothing else: a test that waits for what does not come fails within 30 s
CROWD_MAX = 8.0  # a crowd that counts: with it a wait takes 200 s, and ends before pytest's limit of 300 s for a test
LOOK_S_MAX = 1.0  # that count between two looks: who was stopped, or waited for a disk, could not see what came
STEP_S = 0.01  # from look to look


def crowd() -> float:
    """Return the number of processes for each core: those that want one now, or did in the last minute, the larger."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanting = os.getloadavg()[0]
    if (path := Path("/proc/loadavg")).exists():  # Linux says what is so at this moment
        wanting = max(wanting, float(path.read_text().split()[3].partition("/")[0]))
    return min(max(wanting / cores, 1.0), CROWD_MAX)


class MachineTime:
    """Counts the seconds that this test, and what it watches, would have had on a machine of their own."""

    def __init__(self) -> None:
        """Begin with none."""
        self.seconds = 0.0
        self._looked_s = time.monotonic()

    def look(self) -> float:
        """Count the time since the last look; return the whole."""
        now_s = time.monotonic()
        self.seconds += min(now_s - self._looked_s, LOOK_S_MAX) / crowd()
        self._looked_s = now_s
        return self.seconds


class Patience:
    """One wait. ``what``: for which; ``saw``: what to say about what was there instead."""

    def __init__(self, what: str, saw: Callable[[], object] | None = None) -> None:
        """Begin to wait."""
        self._what, self._saw = what, saw
        self._time, self._began_s = MachineTime(), time.monotonic()

    def check(self) -> None:
        """Fail if that does not come."""
        if self._time.look() < PATIENCE_S:
            return
        waited = f"waited {time.monotonic() - self._began_s:.0f} s for {self._what}, which does not come"
        raise AssertionError(waited if self._saw is None else f"{waited}; last seen: {self._saw()}")


def pause(seconds: float = STEP_S) -> None:
    """Let others go on: for longer where a look takes long."""
    time.sleep(seconds)


def written(condition: Callable[..., object]) -> str:
    """Return a condition as its test has it: the line in which it begins."""
    code = getattr(condition, "__code__", None)
    return repr(condition) if code is None else linecache.getline(code.co_filename, code.co_firstlineno).strip()


def until(
    happened: Callable[[], T | Literal[False] | None],
    what: str = "",
    *,
    step: Callable[[], object] = pause,
    saw: Callable[[], object] | None = None,
) -> T:
    """Do steps until something has happened; return what was found then. ``what``: what that is, if not as written."""
    patience = Patience(what or written(happened), saw)
    while not (found := happened()):
        patience.check()
        step()
    return found


@contextmanager
def bounded(what: str, saw: Callable[[], object] | None = None) -> Iterator[None]:
    """Fail if a call that blocks, such as a read or the wait for a process, does not return.

    A timer interrupts it to look. pytest's own, of which there is one in a process as well, stands still meanwhile.
    """
    patience, began_s = Patience(what, saw), time.monotonic()
    handler = signal.signal(signal.SIGALRM, lambda *_: patience.check())
    left_s, again_s = signal.setitimer(signal.ITIMER_REAL, LOOK_S_MAX / 2, LOOK_S_MAX / 2)
    try:
        yield
    finally:
        left_s = max(left_s - (time.monotonic() - began_s), STEP_S) if left_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left_s, again_s)
