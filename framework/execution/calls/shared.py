"""The one maker of calls of this process."""

import os
from typing import TYPE_CHECKING

from grete.execution.calls.ports import Caller

if TYPE_CHECKING:
    from grete.execution.calls.thread import CallThread

_made = dict[int, "CallThread"]()  # process → its caller


def shared_calls() -> Caller:
    """Return it; it is made when it is asked for first. A forked process has its own: threads are not forked."""
    if (pid := os.getpid()) not in _made:
        from grete.execution.calls.thread import CallThread  # asyncio and its kin: only where there are calls

        _made[pid] = CallThread()
    return _made[pid]


def loop_of_calls() -> tuple[int | None, int]:
    """Return the thread in which async functions of users run, and the turns of its loop; None: there is no call."""
    made = _made.get(os.getpid())
    return (None, 0) if made is None else (made.ident, made.turns)
