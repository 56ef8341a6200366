"""Invariants of files of deterministic tasks: in order, each output once, a logical time whole (D5)."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from grete.api.sinks.sink import Released
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.outside import Outside
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.sink import EarlyAccount
from tests.verification.simulation.usercode import FILES


class EarlyFiles:
    """Progress of the simulated directory for each task: the same for all processes of a task."""

    def __init__(
        self,
        plan: Plan,
        outside: dict[tuple[int, TopicPartition], list[bytes]],
        seen: Counter[str],
        marks: Outside,
    ) -> None:
        """``outside`` gets what becomes visible, and ``marks`` checks it."""
        self._plan = plan
        self._outside = outside
        self._seen = seen
        self._marks = marks
        self._accounts: dict[int, EarlyAccount] = {}

    def account(self, task: int) -> EarlyAccount:
        """Return the account of a task."""
        if task not in self._accounts:
            self._accounts[task] = EarlyAccount(self._plan.wirings[task].name, partial(self._released, task))
        return self._accounts[task]

    def _released(self, task: int, at: Released, upto: Released, values: Sequence[bytes]) -> None:
        name, released = self._plan.wirings[task].name, self._outside.setdefault((task, FILES), [])
        self._seen["releases to files"] += 1
        if at.seq != len(released) or upto.seq != len(released) + len(values):
            text = f"{name}: {len(values)} outputs up to {upto.seq}, behind {at.seq} of {len(released)}"
            raise Violation("release", text)
        if upto.t <= at.t:
            raise Violation("time", f"{name}: outputs of {upto.t} µs are released behind those of {at.t}")
        released.extend(values)
        self._marks.written(values, f"files of {name}")
