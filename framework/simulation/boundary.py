"""Where a process touches the outside: each port call crosses the boundary twice, and an armed fault goes off there."""

from collections import Counter

from framework.errors import TransientError


class Crashed(BaseException):
    """The process is gone, at once. Not an Exception: nothing may catch it on its way out."""


class Boundary:
    """Counts the crossings of one process. 0 means: not armed."""

    __slots__ = ("crash_at", "crossed", "full_at", "where")

    def __init__(self) -> None:
        self.crossed = 0
        self.crash_at = 0
        self.full_at = 0
        self.where = ""

    def before(self, call: str) -> None:
        """Cross into a port call. Raises Crashed or TransientError if that is armed."""
        self.crossed += 1
        if self.crash_at and self.crossed >= self.crash_at:
            self.where = f"before {call}"
            raise Crashed
        if self.full_at and self.crossed >= self.full_at:
            self.full_at = 0
            self.where = f"in {call}"
            raise TransientError(f"simulated: the disk is full ({call})")

    def after(self, call: str) -> None:
        """Cross back. Raises Crashed if that is armed."""
        self.crossed += 1
        if self.crash_at and self.crossed >= self.crash_at:
            self.where = f"after {call}"
            raise Crashed

    def arm_crash(self, crossings: int) -> None:
        """Crash at the so-manieth crossing from now."""
        self.crash_at = self.crossed + crossings

    def arm_full(self, crossings: int) -> None:
        """Let the first call after so many crossings find the disk full."""
        self.full_at = self.crossed + crossings

    def disarm(self) -> None:
        """Let nothing go off any more."""
        self.crash_at = self.full_at = 0


Counters = Counter[str]
