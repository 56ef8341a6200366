"""The event time of a task in the oracle."""

from collections.abc import Sequence

from grete.core.graph.task_topology import TaskWiring
from grete.execution.timing.event_time import AFTER_ALL, BEFORE_ALL, TimeSource
from tests.verification.simulation.steps import OUTSIDE


class PlainTime:
    """Event time by the rule alone (E1, E4, E7): all sources are looked at each time."""

    def __init__(self, wiring: TaskWiring, held_ms: int) -> None:
        """``held_ms``: by how much what a window sends may be older than event time."""
        self.now = BEFORE_ALL
        self._held_ms = held_ms
        self._read = {(OUTSIDE, partition) for partition in wiring.external}
        self.reached = dict.fromkeys([*wiring.channels, *sorted(self._read)], BEFORE_ALL)
        self._logged = wiring.deterministic
        self._idle: set[TimeSource] = set()
        self._ended: set[TimeSource] = set()

    @property
    def ended(self) -> bool:
        """Whether all sources have ended."""
        return len(self._ended) == len(self.reached)

    @property
    def watermark(self) -> tuple[int, bool]:
        """The time that consumers may count on, and whether all sources are idle."""
        if self.ended:
            return AFTER_ALL, True
        return max(BEFORE_ALL, self.now - self._held_ms), len(self._idle) == len(self.reached)

    @property
    def watermark_behind_a_record(self) -> tuple[int, bool]:
        """The time that consumers may count on once a source has brought a record."""
        return max(BEFORE_ALL, self.now - self._held_ms), False

    def record(self, source: TimeSource, at: int) -> None:
        """Take a record."""
        self._idle.discard(source)
        self._ended.discard(source)
        if source in self._read:
            self.reached[source] = max(self.reached[source], at)
        self._advance()

    def quiet(self, source: TimeSource, *, ended: bool) -> None:
        """Take it that nothing comes from a source, or that it has ended."""
        self._idle.add(source)
        if ended:
            self._ended.add(source)
        self._advance()

    def told(self, marks: Sequence[tuple[TimeSource, int, bool]]) -> None:
        """Take watermarks that are true at one time."""
        for source, watermark, idle in marks:
            if watermark == AFTER_ALL:
                self._idle.add(source)
                self._ended.add(source)
            elif watermark >= self.reached[source]:
                self.reached[source] = watermark
                self._ended.discard(source)
                (self._idle.add if idle else self._idle.discard)(source)
        self._advance()

    def restarted(self) -> None:
        """A new generation goes on from a commit: what its clock has said begins again, what is logged does not."""
        if not self._logged:
            self._idle -= self._read - self._ended

    def _advance(self) -> None:
        counted = [reached for source, reached in self.reached.items() if source not in self._idle]
        self.now = max(self.now, min(counted) if counted else max(self.reached.values()))
