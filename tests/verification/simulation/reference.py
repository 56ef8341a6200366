"""What deterministic tasks must do, from their sources' valid decisions alone: task after task, record after record.

No process, no frame, no checkpoint: each task gets all of its records in one list, sorted by their keys (design 1.6).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from framework.core.task_topology import TaskWiring
from framework.execution.timers import Due
from framework.ports import ExternalRecord
from protocol.changelog import InputDecision
from protocol.ids import TopicPartition
from tests.verification.simulation.logical import TIME, LogicalStep, Sent, fire, take
from tests.verification.simulation.oracle import PlainStore, PlainTimers, TaskHistory
from tests.verification.simulation.usercode import CHAINS, COUNTS, StageCode, stage_code
from tests.verification.simulation.world import Plan

Record = tuple[int, int, bytes]  # t, source, value


class Reference(NamedTuple):
    """What a failure-free run makes: the records of each channel, and of each task in each partition outside."""

    channels: dict[tuple[int, TopicPartition], list[Record]]
    outside: dict[tuple[int, TopicPartition], list[bytes]]


class PlainTask:
    """A deterministic task without layers, frames or crashes."""

    def __init__(
        self, code: StageCode, producer: int, stores: tuple[PlainStore, PlainStore], timers: PlainTimers
    ) -> None:
        self._code = code
        self._producer = producer
        self._stores = stores
        self._timers = timers
        self._key = (-1, -1)
        self.channels: dict[TopicPartition, list[Record]] = {}
        self.outside: dict[TopicPartition, list[bytes]] = {}

    def take(self, value: bytes, t: int, source: int) -> None:
        """Process one record, after the timers before it."""
        self.reach(t - 1)
        self._key = max(self._key, (t, source))
        counts, chains = self._stores
        self._sent(*take(self._code, counts, chains, self._timers if self._code.timers else None, value, t))

    def reach(self, upto: int) -> None:
        """Fire what is due up to a time."""
        due: Due | None
        while (due := self._timers.pop(upto // 1000)) is not None:
            self._key = max(self._key, (due.at * 1000, self._producer))
            self._sent(*fire(self._code, self._stores[0], due))

    def _sent(self, streams: list[Sent], external: list[ExternalRecord]) -> None:
        for partition, value in streams:
            self.channels.setdefault(partition, []).append((*self._key, value))
        for record in external:
            self.outside.setdefault(record.partition, []).append(record.value or b"")


class LogicalHistory(TaskHistory):
    """What a deterministic task has committed, according to the steps of the attempts that won."""

    def __init__(self, wiring: TaskWiring, code: StageCode, external_start: int) -> None:
        super().__init__(wiring, code, external_start)
        self._task = PlainTask(code, wiring.producer, self._stores, self._timers)
        self._task.channels = {partition: [] for partition in wiring.outputs}
        self.records = 0  # processed
        self.decided: list[tuple[int, InputDecision]] = []  # valid, with the offset of each
        self.leases: list[tuple[int, int]] = [(-1, 0)]  # valid, with the offset of each

    @property
    def outside(self) -> Mapping[TopicPartition, Sequence[bytes]]:
        """What the committed checkpoints have written to the outside."""
        return self._task.outside

    def replay(self, steps: Sequence[LogicalStep]) -> list[ExternalRecord]:  # type: ignore[override]
        """Run the steps of the next committed checkpoint."""
        for step in steps:
            if step.producer == TIME:
                self._task.reach(step.t)
            else:
                self.records += 1
                self._task.take(step.value, step.t, step.source)
        for partition, records in self._task.channels.items():
            self.outputs[partition] = [value for _, _, value in records]
        return []


def reference(
    plan: Plan, histories: Mapping[int, LogicalHistory], rows: Mapping[TopicPartition, Sequence[bytes]]
) -> Reference:
    """Run the deterministic tasks once. ``rows``: what each external partition was given, from its first offset on."""
    channels: dict[tuple[int, TopicPartition], list[Record]] = {}
    outside: dict[tuple[int, TopicPartition], list[bytes]] = {}
    for producer in sorted(histories):  # stages are numbered in the order of the streams
        wiring = plan.wirings[producer]
        content: dict[tuple[int, bytes], bytes] = {}
        stores = PlainStore(COUNTS, content), PlainStore(CHAINS, content)
        task = PlainTask(stage_code(plan, producer), producer, stores, PlainTimers(content))
        for t, source, _, _, value in sorted(_inputs(plan, wiring, histories[producer], rows, channels)):
            task.take(value, t, source)
        task.reach(1 << 60)
        channels |= {(producer, partition): records for partition, records in task.channels.items()}
        outside |= {(producer, partition): values for partition, values in task.outside.items()}
    return Reference(channels, outside)


def _inputs(
    plan: Plan,
    wiring: TaskWiring,
    history: LogicalHistory,
    rows: Mapping[TopicPartition, Sequence[bytes]],
    channels: Mapping[tuple[int, TopicPartition], list[Record]],
) -> list[tuple[int, int, int, int, bytes]]:
    """Return (t, source, channel, seq, value) of all that a task is to process."""
    if wiring.is_source:
        taken = []
        for _, d in history.decided:
            first = d.first_offset - plan.external_start
            values = rows[TopicPartition(d.topic, d.partition)][first : first + d.records]
            taken += [(d.first_t + index, wiring.producer, 0, 0, value) for index, value in enumerate(values)]
        return taken
    return [
        (t, source, index, seq, value)
        for index, key in enumerate(sorted(wiring.channels))
        for seq, (t, source, value) in enumerate(channels.get(key, ()))
    ]
