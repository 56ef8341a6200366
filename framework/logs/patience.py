"""Waiting for a log that does not answer: its bounds, and one line a minute meanwhile."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator

ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
CONNECT_S_MAX = 15.0  # a person who mistyped an address waits no longer
FIRST_S = 5.0  # without an answer before the first line: shorter pauses are usual
EVERY_S = 60.0  # between two lines
MINUTE_S = 60.0  # in seconds

logger = logging.getLogger("grete")


def _log(text: str) -> None:
    logger.warning("log availability", extra={"state": text})


class Patience:
    """The bounds of waiting in one process. Its owner may change ``seconds`` and ``connect_seconds`` at any time."""

    def __init__(
        self,
        seconds: float | None = None,
        connect_seconds: float | None = None,
        *,
        say: Callable[[str], None] = _log,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``seconds``: of one question; ``connect_seconds``: at the start; ``say`` takes the lines."""
        self.seconds = ANSWER_S_MAX if seconds is None else seconds
        self.connect_seconds = CONNECT_S_MAX if connect_seconds is None else connect_seconds
        self.brief = False  # the owner only asks by the way
        self.meanwhile: Callable[[], None] = lambda: None  # called some times a second while an answer is to come
        self.clock_s = clock_s
        self._say = say
        self._end_s = math.inf
        self._since_s: float | None = None  # the first question that is not answered yet
        self._said_s: float | None = None
        self._trouble = ""
        self._answered_s = -math.inf

    @property
    def ended(self) -> bool:
        """Whether the owner wants to stop, and waits no longer."""
        return self.clock_s() >= self._end_s

    @property
    def has_answered(self) -> bool:
        """Whether the log has answered once."""
        return self._answered_s > -math.inf

    @property
    def silent(self) -> bool:
        """Whether the log has not answered for so long that it was said."""
        return self._said_s is not None

    @property
    def trouble(self) -> str | None:
        """Return the last report about a log that does not answer; None: it does, or has not been silent for long."""
        return self._trouble if self.silent else None

    @property
    def waiting(self) -> bool:
        """Whether something was asked that is not answered yet."""
        return self._since_s is not None

    def unanswered_since(self, began_s: float) -> bool:
        """Tell whether something was asked, and nothing was answered since ``began_s``."""
        return self.waiting and self._answered_s < began_s

    def end_within(self, seconds: float) -> None:
        """Wait no longer than this from now on, whatever is asked. Safe to call from a signal handler."""
        self._end_s = min(self._end_s, self.clock_s() + seconds)

    def over(self, began_s: float, *, connecting: bool = False) -> bool:
        """Tell whether what began then has waited for long enough.

        An owner that is to stop and only asks by the way waits for nothing more: it has its workers to tell.
        """
        if self.ended or (self.brief and self._end_s < math.inf):
            return True
        return self.clock_s() - began_s > (self.connect_seconds if connecting else self.seconds)

    @contextlib.contextmanager
    def briefly(self, seconds: float) -> Iterator[None]:
        """Wait no longer than this for each answer inside of the block: it is asked again later."""
        before, self.seconds, self.brief = self.seconds, min(seconds, self.seconds), True
        try:
            yield
        finally:
            self.seconds, self.brief = before, False

    def waits(self, whom: str, why: str) -> None:
        """Note that an answer is still to come from ``whom``; say so after a while, and then once a minute."""
        self.meanwhile()
        now = self.clock_s()
        if self._since_s is None:
            self._since_s = now
        due = self._since_s + FIRST_S if self._said_s is None else self._said_s + EVERY_S
        if now >= due:
            self._said_s = now
            reason = f" ({why})" if why else ""
            self._trouble = f"{whom} has not answered for {_length(now - self._since_s)}{reason}"
            self._say(f"{self._trouble}: waiting, nothing is lost")

    def answered(self, whom: str) -> None:
        """Note an answer; say so if the silence was mentioned."""
        self._answered_s = self.clock_s()
        if self._since_s is None:
            return
        if self._said_s is not None:
            self._say(f"{whom} answers again, after {_length(self._answered_s - self._since_s)}")
        self._since_s = self._said_s = None


def _length(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE_S else f"{seconds / MINUTE_S:.0f} min"
