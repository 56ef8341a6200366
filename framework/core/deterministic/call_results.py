"""Results of calls are logged before anything that depends on them leaves the task (D8)."""

from collections.abc import Sequence

from grete.core.events import Ran
from grete.protocol.notes import CallsNote


class CallResults:
    """Work that depends on call results that are not in the changelog yet.

    A successor takes recorded results in place of calls, so it makes the same of them. What was not recorded was not
    seen by any task, and is called again.
    """

    def __init__(self) -> None:
        self._ran: Ran | None = None
        self._logged = False  # on its way, or appended

    @property
    def waits(self) -> bool:
        """Whether something that was made waits for the log."""
        return self._ran is not None

    def hold(self, event: Ran) -> None:
        """Keep what was made: nothing else is processed meanwhile."""
        assert self._ran is None, "two answers wait for the results of calls"
        self._ran = event

    def log(self) -> Sequence[CallsNote]:
        """Return the results of calls to append now: once, and behind the decision on the records."""
        if self._ran is None or self._logged:
            return ()
        assert self._ran.calls, self._ran  # else it would not wait
        self._logged = True
        return self._ran.calls

    def valid(self) -> Ran | None:
        """All that was appended counts (C3): return what may count as made now."""
        if not self._logged:
            return None
        ran, self._ran, self._logged = self._ran, None, False
        return ran
