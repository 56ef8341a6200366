"""A source of speculative tasks: it may send a row before its input decision is valid, and not its bound (D2)."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from framework.core.speculative.messages import ALL, NOTHING, Bound, Passed, Records, Revision
from framework.core.speculative.task import Send

Row = bytes
Parse = Callable[[Row], Sequence[tuple[int, Records]]]  # of a row: bundles for outputs, in order


@dataclass(frozen=True, slots=True)
class Decision:
    """Rows from ``first`` on have the times ``times``, in µs."""

    first: int
    times: tuple[int, ...]


class SpeculativeSource:
    """Gives rows their times. ``speculative``: what comes of them leaves before the decision is known to be valid."""

    def __init__(self, source: int, outputs: Sequence[int], parse: Parse, *, speculative: bool) -> None:
        self.source = source
        self.position = 0  # the next row
        self.generation = -1
        self.lease = 0  # valid: a successor gives no time up to it
        self._floor = 0
        self.passed: Bound = NOTHING
        self._pending: deque[tuple[Decision, list[Send]]] = deque()
        self._outputs, self._parse, self._speculative = outputs, parse, speculative

    def start(self, generation: int, decided: Sequence[tuple[Decision, Sequence[Row]]], lease: int) -> list[Send]:
        """Begin a generation: send again what was decided."""
        self.generation, self.lease = generation, lease
        sends: list[Send] = []
        last = 0
        for decision, rows in decided:
            sends += self._sends(decision, rows)
            self.position, last = decision.first + len(rows), decision.times[-1]
        self._floor = max(last, lease)
        return sends + self._pass(self._floor)

    def take(self, rows: Sequence[Row], now: int) -> tuple[Decision, list[Send]]:
        """Decide on the next rows; return the decision for the changelog, and what may leave at once."""
        first = max(self._floor + 1, now)
        decision = Decision(self.position, tuple(range(first, first + len(rows))))
        self.position, self._floor = self.position + len(rows), decision.times[-1]
        sends = self._sends(decision, rows)
        self._pending.append((decision, [] if self._speculative else sends))
        return decision, sends if self._speculative else []

    def logged(self) -> list[Send]:
        """The oldest decision that was not valid is."""
        decision, sends = self._pending.popleft()
        return sends + self._pass(decision.times[-1])

    def advance(self, now: int) -> list[Send]:
        """Announce that no row will get a time up to now, within the lease."""
        if self._pending:
            return []
        self._floor = max(self._floor, min(now, self.lease))
        return self._pass(self._floor)

    def _pass(self, t: int) -> list[Send]:
        if (t, ALL) <= self.passed:
            return []
        self.passed = t, ALL
        return [(output, Passed(self.generation, (t, ALL))) for output in self._outputs]

    def _sends(self, decision: Decision, rows: Sequence[Row]) -> list[Send]:
        return [
            (output, Revision(self.generation, t, self.source, (number,), records))
            for t, row in zip(decision.times, rows, strict=True)
            for number, (output, records) in enumerate(self._parse(row))
        ]
