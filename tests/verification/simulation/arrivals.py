"""Arrivals of records at a world's external inputs."""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.idents import stamp
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.plan import Plan

REPEATED = 0.2  # of the records of an input that brings some twice
REORDERED_MS = 40  # of the records' own time, by which one may be behind others: up to a dozen of them


class Arrivals:
    """The feeder of the job."""

    def __init__(self, plan: Plan, log: SharedLog, rand: Callable[[], float], seen: Counter[str]) -> None:
        due = [
            (int(at * plan.steps), partition, value) for partition, rows in plan.inputs.items() for at, value in rows
        ]
        due += _repeats(plan)
        due.sort()
        if plan.timers:  # by number, not by its digits: in order, unless the world is to have disorder
            due.sort(key=lambda arrival: (*arrival[:2], stamp(arrival[2], 0)))
        if plan.reordered:
            _reorder(plan, due)
        self._due = deque(due)
        self._plan, self._log, self._rand, self._seen = plan, log, rand, seen

    @property
    def over(self) -> bool:
        """Whether nothing more comes, or is still to be seen."""
        return not self._due and not self._log.opened

    def feed(self, step: int) -> None:
        """Append what is due."""
        while self._due and self._due[0][0] <= step:
            _, partition, value = self._due.popleft()
            self._leave_out(partition)
            self._begin(partition)
            self._log.append(partition, None, value, stamp(value, self._plan.disorder), None)

    def again(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Send again at once what a power loss has taken back."""
        self._due.extendleft((0, partition, row.value or b"") for row in reversed(rows))

    def _leave_out(self, partition: TopicPartition) -> None:
        """At times, let offsets before a record hold nothing: aborted records, marks of transactions, compaction."""
        holes = self._plan.unkind.holes
        if holes and self._rand() < holes:
            self._log.partition(partition).leave_out(1 + int(self._rand() * 3))
            self._seen["offsets of inputs without a message"] += 1

    def _begin(self, partition: TopicPartition) -> None:
        """At times, let a record come within a transaction, which stays open for a while; those behind it wait, too."""
        unkind, into = self._plan.unkind, self._log.partition(partition)
        if unkind.strangers and into.open_from is None and self._rand() < unkind.strangers:
            self._log.begin_transaction(partition)
            into.open_until = self._log.clock() + 1 + int(self._rand() * unkind.stranger_ms)
            self._log.opened.append(partition)
            self._seen["transactions of others in inputs"] += 1


def _reorder(plan: Plan, due: list[tuple[int, TopicPartition, bytes]]) -> None:
    """Let records of inputs that bring some twice come behind others that were made later."""
    r, topics = random.Random(f"order {plan.seed}"), {f"in.{stage}" for stage in plan.once}
    late = {arrival: r.random() * REORDERED_MS for arrival in due if arrival[1].topic in topics}
    due.sort(key=lambda arrival: (*arrival[:2], stamp(arrival[2], 0) + late.get(arrival, 0.0)))


def _repeats(plan: Plan) -> list[tuple[int, TopicPartition, bytes]]:
    """Return the records that come a second time, some time after the first."""
    r, repeated = random.Random(f"repeats {plan.seed}"), {f"in.{stage}" for stage in plan.once}
    return [
        (int((at + r.random() * (0.6 - at)) * plan.steps), partition, value)
        for partition, rows in plan.inputs.items()
        if partition.topic in repeated
        for at, value in rows
        if r.random() < REPEATED
    ]
