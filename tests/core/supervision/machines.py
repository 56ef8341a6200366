"""Machines that the tests of supervision begin with."""

import itertools

from grete.core.supervision.assignment import HostedState
from grete.core.supervision.process_end import ExitKind, ProcessExit
from tests.core.supervision.world import Crashes, Machine

STARTING, RUNNING, STOPPING = HostedState.STARTING, HostedState.RUNNING, HostedState.STOPPING
SOON_S = 5.0  # all that is healthy has started, or ended
ABORT = ProcessExit(ExitKind.ABORTED, -6, "aborted by SIGABRT", None, None, "w.log", disk_full=False, at_ms=0)


def machine(*active: int, processes: int | None = None) -> Machine:
    """Return a machine that runs these partitions."""
    made = Machine(processes=processes)
    made.assign(*active)
    made.run(SOON_S)
    assert made.hosted() == dict.fromkeys(active, RUNNING)
    return made


def crashing(end: ProcessExit, times: int = 1 << 30) -> Crashes:
    """Return a rule by which that many processes end in this way as soon as they work."""
    left = itertools.repeat(end, times)
    return lambda _number, _process: next(left, None)
