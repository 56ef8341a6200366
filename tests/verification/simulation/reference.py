"""What deterministic tasks must do, from their sources' valid decisions alone: task after task, record after record.

No process, no frame, no checkpoint: each task gets all of its records in one list, sorted by their keys (design 1.6).
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from framework.core.deterministic.logical_watermarks import step_at
from framework.core.events import Advance
from framework.core.task_topology import TaskWiring
from framework.execution.event_time import BEFORE_ALL
from framework.execution.timers import Due
from framework.ports import ExternalRecord
from protocol.changelog import InputDecision
from protocol.ids import TopicPartition
from protocol.notes import IdleNote
from tests.verification.simulation.logical import LogicalStep, Sent, TimeStep, fire, take
from tests.verification.simulation.oracle import PlainStore, PlainTime, PlainTimers, Source, TaskHistory
from tests.verification.simulation.usercode import CHAINS, COUNTS, OUTSIDE, StageCode, stage_code, stamp
from tests.verification.simulation.world import Plan

Channel = tuple[int, TopicPartition]
Record = tuple[int, int, bytes]  # t, source, value


class Reference(NamedTuple):
    """What a failure-free run makes: the records and watermarks of each channel, and each task's in each partition."""

    channels: dict[Channel, list[Record]]
    told: dict[Channel, list[Advance]]
    outside: dict[Channel, list[bytes]]


class PlainTask:
    """A deterministic task without layers, frames or crashes."""

    def __init__(
        self,
        code: StageCode,
        wiring: TaskWiring,
        stores: tuple[PlainStore, PlainStore],
        timers: PlainTimers,
        time: PlainTime | None,
    ) -> None:
        self._code = code
        self._producer = wiring.producer
        self._stores = stores
        self._timers = timers
        self._time = time
        self._key = (-1, -1)
        self._steps: dict[int, tuple[int, bool]] = {}
        self.channels: dict[TopicPartition, list[Record]] = {}
        self.outside: dict[TopicPartition, list[bytes]] = {}

    def take(self, value: bytes, t: int, source: int, partition: TopicPartition | None) -> None:
        """Process one record; ``partition``: the external one that it comes from, if it is from outside."""
        self._key = max(self._key, (t, source))
        counts, chains = self._stores
        time = self._time
        now = 0 if time is None else time.now
        self._sent(*take(self._code, counts, chains, None if time is None else self._timers, value, now))
        if time is not None:
            if partition is not None:
                time.record((OUTSIDE, partition), stamp(value, self._code.disorder))
            self._fire(time)

    def pass_time(self, t: int, idle: TopicPartition | None, marks: Sequence[tuple[Source, int, bool]]) -> None:
        """Take watermarks, or that an external partition is idle."""
        assert self._time is not None
        self._key = max(self._key, (t, self._producer))
        if idle is None:
            self._time.told(marks)
        else:
            self._time.quiet((OUTSIDE, idle))
        self._fire(self._time)

    def passed(self, t: int) -> None:
        """All that came at ``t``, or with one decision up to it, is processed."""
        if self._time is not None:
            self._steps[step_at(t)] = self._time.watermark

    @property
    def told(self) -> list[Advance]:
        """What consumers are told: at the end of each step of logical time, if it is news."""
        found, last = [], (BEFORE_ALL, False)
        for t, watermark in sorted(self._steps.items()):
            if watermark != last:
                found.append(Advance(t, *watermark))
                last = watermark
        return found

    def _fire(self, time: PlainTime) -> None:
        due: Due | None
        while (due := self._timers.pop(time.now)) is not None:
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
        self._task = PlainTask(code, wiring, self._stores, self._timers, self.time)
        self._task.channels = {partition: [] for partition in wiring.outputs}
        self.records = 0  # processed
        self.watermarks: dict[Channel, int] = {}  # processed: the time of the last of each channel
        self.decided: list[tuple[int, InputDecision | IdleNote]] = []  # valid, with the offset of each
        self.leases: list[tuple[int, int]] = [(-1, 0)]  # valid, with the offset of each

    @property
    def outside(self) -> Mapping[TopicPartition, Sequence[bytes]]:
        """What the committed checkpoints have written to the outside."""
        return self._task.outside

    def replay(self, steps: Sequence[LogicalStep | TimeStep]) -> list[ExternalRecord]:  # type: ignore[override]  # other steps, by their time
        """Run the steps of the next committed checkpoint."""
        for step in steps:
            if isinstance(step, TimeStep):
                self._task.pass_time(step.t, None if step.marks else step.partition, step.marks)
                self.watermarks |= dict.fromkeys((source for source, _, _ in step.marks), step.t)
            else:
                self.records += 1
                partition = step.partition if self.wiring.external else None
                self._task.take(step.value, step.t, step.source, partition)
        for target, records in self._task.channels.items():
            self.outputs[target] = [value for _, _, value in records]
        return []


def reference(
    plan: Plan, histories: Mapping[int, LogicalHistory], rows: Mapping[TopicPartition, Mapping[int, bytes]]
) -> Reference:
    """Run the deterministic tasks once. ``rows``: what each external partition was given, by offset, in order."""
    made = Reference({}, {}, {})
    for producer in sorted(histories):  # stages are numbered in the order of the streams
        wiring = plan.wirings[producer]
        content: dict[tuple[int, bytes], bytes] = {}
        stores = PlainStore(COUNTS, content), PlainStore(CHAINS, content)
        time = PlainTime(wiring) if wiring.keeps_time else None
        task = PlainTask(stage_code(plan, producer), wiring, stores, PlainTimers(content), time)
        if wiring.is_source:
            _decide(task, producer, histories[producer], rows)
        else:
            _merge(task, wiring, made)
        made.channels.update({(producer, partition): records for partition, records in task.channels.items()})
        made.told.update({(producer, partition): task.told for partition in wiring.timed_outputs})
        made.outside.update({(producer, partition): values for partition, values in task.outside.items()})
    return made


def _decide(
    task: PlainTask,
    producer: int,
    history: LogicalHistory,
    rows: Mapping[TopicPartition, Mapping[int, bytes]],
) -> None:
    """Give a source what it has decided to take."""
    for _, decision in history.decided:
        partition = TopicPartition(decision.topic, decision.partition)
        if isinstance(decision, InputDecision):
            taken = (value for offset, value in rows[partition].items() if offset >= decision.first_offset)
            for index, value in enumerate(islice(taken, decision.records)):
                task.take(value, decision.first_t + index, producer, partition)
        else:
            task.pass_time(decision.t, partition, ())
        task.passed(decision.last_t)


def _merge(task: PlainTask, wiring: TaskWiring, made: Reference) -> None:
    """Give a task all that its producers make, by logical time: watermarks of a time behind its records."""
    records = [
        (t, 0, source, index, seq, value)
        for index, key in enumerate(sorted(wiring.channels))
        for seq, (t, source, value) in enumerate(made.channels.get(key, ()))
    ]
    marks: dict[int, list[tuple[Source, int, bool]]] = {}
    for key in wiring.channels:
        for advance in made.told.get(key, ()):
            marks.setdefault(advance.t, []).append((key, advance.watermark, advance.idle))
    for t, is_time, source, _, _, value in sorted([*records, *((t, 1, 0, 0, 0, b"") for t in marks)]):
        if is_time:
            task.pass_time(t, None, marks[t])
            task.passed(t)
        else:
            task.take(value, t, source, None)
