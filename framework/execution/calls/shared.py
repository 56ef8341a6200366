"""The one maker of calls of this process."""

import os
from functools import cache

from framework.execution.calls.ports import Caller


def shared_calls() -> Caller:
    """Return it; it is made when it is asked for first. A forked process has its own: threads are not forked."""
    return _of_process(os.getpid())


@cache
def _of_process(_pid: int) -> Caller:
    from framework.execution.calls.thread import CallThread  # asyncio and its kin: only where there are calls

    return CallThread()
