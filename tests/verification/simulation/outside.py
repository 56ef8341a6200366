"""Checks of the job's outputs: each record leaves each of its marks once, or its letter in their place.

Behind a broadcast stream it is as many records as the stream has partitions, and leaves each mark that many times.
"""

from collections import Counter
from collections.abc import Iterable

from grete.ports import ExternalRecord
from tests.verification.simulation.idents import OF_TIMER
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.plan import Plan


class Outside:
    """The marks (ident;path) in external topics and files. ``missing``: those that are still to come."""

    def __init__(self, plan: Plan, seen: Counter[str]) -> None:
        self.missing = set(plan.expected)
        self._plan, self._seen = plan, seen
        self._found: Counter[bytes] = Counter()
        self._gone = set[bytes]()
        streams = plan.topology.streams
        self._copied = {b"%d%d" % (s.producer, s.consumer): s.partitions for s in streams if s.broadcast}

    def left(self, records: Iterable[ExternalRecord]) -> None:
        """Take records that are in external topics."""
        for record in records:
            self._seen["outputs of timers outside"] += (record.value or b"").startswith(OF_TIMER)
            for mark, copies in self._marks(record):
                self._leaves(mark, str(record.partition), copies)

    def written(self, values: Iterable[bytes], file: str) -> None:
        """Take what a file holds."""
        for value in values:
            if not value.startswith(OF_TIMER):
                self._leaves(_mark(value), file)

    def skipped(self, value: bytes) -> None:
        """Take what no task will process any more: nothing of it may be outside, now or later."""
        for mark in [each for each in self._plan.expected if each.startswith(value.split(b";")[0] + b";")]:
            if self._found[mark]:
                raise Violation("at most once", f"{mark!r} is outside, and its record was skipped at its source")
            self.missing.discard(mark)
            self._gone.add(mark)

    def unmade(self, records: Iterable[ExternalRecord]) -> None:
        """Forget records that were lost with the power: no commit relies on them."""
        for mark, copies in (mark for record in records for mark in self._marks(record)):
            self._found[mark] -= copies
            if self._found[mark] < self._copies(mark):
                self.missing.add(mark)

    def _copies(self, mark: bytes) -> int:
        """Return the number of records that a record becomes on its way."""
        way, count = mark.partition(b";")[2], 1
        for at in range(len(way) - 1) if self._copied else ():
            count *= self._copied.get(way[at : at + 2], 1)
        return count

    def _marks(self, record: ExternalRecord) -> list[tuple[bytes, int]]:
        """Return the marks that an external record stands for, each with its number of copies.

        A letter stands for all that would have been made of its record.
        """
        value, stage = record.value or b"", record.partition.topic.removeprefix("out.").encode()
        if value.startswith(OF_TIMER):
            return []
        mark = _mark(value)
        if mark.endswith(stage):
            return [(mark, 1)]
        self._seen["dead letters"] += 1
        ways = sorted(expected for expected in self._plan.expected if expected.startswith(mark + stage))
        return [(way, self._copies(way) // self._copies(mark + stage)) for way in ways] or [(mark, 1)]

    def _leaves(self, mark: bytes, where: str, copies: int = 1) -> None:
        if mark in self._gone:
            raise Violation("at most once", f"{mark!r} is in {where}, and its record was skipped at its source")
        if mark not in self._plan.expected:
            raise Violation("exactly once", f"{mark!r} is in {where} and should not exist")
        self._found[mark] += copies
        if self._found[mark] >= self._copies(mark):
            self.missing.discard(mark)
        if self._found[mark] > self._copies(mark):
            self._seen["repeated in at-least-once mode"] += 1
            if self._plan.aligned or self._plan.settings.loses:
                raise Violation("exactly once", f"{mark!r} is outside once too often, now in {where}")


def _mark(value: bytes) -> bytes:
    return b";".join(value.split(b";", 2)[:2])
