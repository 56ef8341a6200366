"""Invariants of the answer that all input is processed, as ``grete run`` asks for it (A2c)."""

import random
from collections import Counter
from collections.abc import Mapping

from grete.logs.memory import MemoryLog
from grete.logs.open_transactions import HiddenInput
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.oracle import TaskHistory, Violation

ASKS = 0.2  # of the steps
LOOKS = 0.5  # of those, in which it asks again where the inputs end: a run may know it from a while ago


class AsksForTheEnd:
    """Somebody who runs the job until its input is processed, again and again; draws of its own, and does nothing."""

    def __init__(self, seed: int, log: SharedLog, histories: Mapping[int, TaskHistory], seen: Counter[str]) -> None:
        self._rand = random.Random(f"asks for the end {seed}").random
        self._log, self._histories, self._seen = log, histories, seen
        self._reader = MemoryLog(log)
        self._inputs = list(dict.fromkeys(p for each in histories.values() for p in each.wiring.external))
        self._hidden: HiddenInput | None = None
        self._first: dict[TopicPartition, int] = {}  # where all inputs ended when this run asked first
        self._ends: dict[TopicPartition, int] = {}

    def step(self) -> None:
        """At times, ask whether all is processed. Raises Violation: it is said, and a record is not."""
        if self._rand() >= ASKS:
            return
        if self._hidden is None:
            self._hidden = HiddenInput(self._reader, self._inputs, lambda _: None)
            self._first = {each: self._log.partition(each).end for each in self._inputs}
            self._ends = {each: self._log.partition(each).stable_end for each in self._inputs}
        if self._rand() < LOOKS:
            self._ends = {each: self._log.partition(each).stable_end for each in self._inputs}
        if self._left(self._ends):
            return
        if not self._hidden.is_over(self._ends):
            self._seen["ends that wait for what a transaction hides"] += 1
            return
        if left := self._left(self._first):
            raise Violation("complete", f"all input is said to be processed, but {left}")
        self._hidden = None

    def _left(self, ends: Mapping[TopicPartition, int]) -> str:
        """Return the first record before the ends that a task has not committed; empty: there is none."""
        for each in self._histories.values():
            for source, at in each.external.items():
                if self._log.next_row(source, at) < ends[source]:
                    return f"{each.wiring.name} has come to {at} of {ends[source]} in {source}"
        return ""
