"""The ends of one worker in a row, and the wait before its next start.

A worker that has waited in vain for the log is started again and again: it is not what is broken.
"""

from collections import Counter

from grete.core.supervision.policy import Policy
from grete.core.supervision.process_end import WorkerEnd
from grete.protocol.report import Reason


class Restarts:
    """Restarts of one worker. ``due_s``: of the next. ``last``: the last end, until what it read since is committed.

    ``counts``: its ends by reason, also those of single tasks, for as long as the machine runs.
    """

    def __init__(self) -> None:
        """No end yet."""
        self.crashes = 0  # in a row, without anything read and committed in between: an empty commit is no progress
        self.due_s = 0.0
        self.last: WorkerEnd | None = None
        self.counts = Counter[Reason]()
        self._waits = 0  # the same as ``crashes``, of ends because the log did not answer
        self._told = ""

    def progressed(self) -> None:
        """Count from the beginning: something was read and committed."""
        self.crashes, self._waits, self.last = 0, 0, None

    def begin_again(self) -> None:
        """Wait for nothing, as if the next start was the first one."""
        self.progressed()
        self.due_s, self._told = 0.0, ""

    def note(self, end: WorkerEnd) -> None:
        """Keep an end for those who are told of it."""
        self.last = end
        self.counts[end.reason] += 1

    def wait_ms(self, policy: Policy, now_s: float, *, log_away: bool) -> int | None:
        """Count an end, and plan the next start; return the wait, None: it has crashed too often."""
        if log_away:
            self._waits += 1
        else:
            self.crashes += 1
        if self.crashes > policy.restarts_max:
            return None
        wait_ms = policy.restart_wait_ms(self.crashes + self._waits)
        self.due_s = now_s + wait_ms / 1000
        return wait_ms

    def is_told_again(self, text: str) -> bool:
        """Tell whether the last end was told by the same text, and keep this one."""
        told, self._told = self._told, text
        return told == text
