"""The log's reports while a world runs: each message, trim and loss is traced, then judged by the checker."""

from collections.abc import Sequence

from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.arrivals import Arrivals
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.trace import Trace


class Reports:
    """The Observer of the log."""

    def __init__(self, plan: Plan, trace: Trace, checker: Checker, arrivals: Arrivals) -> None:
        self._plan, self._trace, self._checker, self._arrivals = plan, trace, checker, arrivals

    def appended(self, partition: TopicPartition, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        """Take an internal message that is now in the log."""
        self._trace.message(partition, offset, value)
        self._checker.appended(partition, offset, value, outputs)

    def produced(self, record: ExternalRecord, offset: int, sender: object, *, late: bool) -> None:
        """Take a plain record that is now in the log."""
        self._trace.note(f"{record.partition} {record.value!r}")
        self._checker.produced(record, offset, sender, late=late)

    def unmade(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Forget messages that a power loss has taken back; who feeds the job sends his again."""
        self._trace.note(f"{partition} loses {len(rows)} messages")
        if partition in self._plan.inputs:
            self._arrivals.again(partition, rows)
        else:
            self._checker.unmade(partition, rows)

    def trimmed(self, partition: TopicPartition, before: int) -> None:
        """Take a trim that is about to happen."""
        self._trace.note(f"{partition} is trimmed before {before}")
        self._checker.trimmed(partition, before)
