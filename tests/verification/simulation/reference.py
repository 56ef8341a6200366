"""The reference run of deterministic tasks, from their sources' valid decisions alone: task after task.

No process, no frame, no checkpoint: each task gets all of its records in one list, sorted by their keys.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from grete.api.tasks.context import LogicalContext
from grete.core.deterministic.logical_watermarks import NEVER, step_at
from grete.core.events import Advance
from grete.core.graph.task_topology import TaskWiring
from grete.execution.calls.flight import DRAWS
from grete.execution.timing.event_time import BEFORE_ALL, TimeSource
from grete.execution.timing.timers import DueTimer
from grete.ports import ExternalRecord
from grete.protocol.changelog import InputDecision
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.protocol.notes import CallResult, CallsNote, IdleNote
from tests.verification.simulation.calls_kind import combined
from tests.verification.simulation.feeds import value_for
from tests.verification.simulation.idents import stamp
from tests.verification.simulation.oracle import TaskHistory, Violation
from tests.verification.simulation.plain import Overtaken, PlainRun
from tests.verification.simulation.plain_stores import Content
from tests.verification.simulation.plain_time import PlainTime
from tests.verification.simulation.plan import JOB, Plan
from tests.verification.simulation.stage_codes import StageCode, stage_code
from tests.verification.simulation.steps import ALARM, ALL, OUTSIDE, SLICE, LogicalStep, TimeStep
from tests.verification.simulation.usercode import FILES

Channel = tuple[int, TopicPartition]
Record = tuple[int, int, bytes | None, bytes]  # t, source, key, value


class Reference(NamedTuple):
    """A failure-free run: the records and watermarks of each channel, and each task's in each partition."""

    channels: dict[Channel, list[Record]]
    told: dict[Channel, list[Advance]]
    outside: dict[Channel, list[bytes]]


class PlainTask:
    """A deterministic task without write batches, frames or crashes."""

    def __init__(self, code: StageCode, wiring: TaskWiring, content: Content) -> None:
        self._run = PlainRun(code, wiring, content, self._sent)
        name = f"{JOB}/{code.stage}/{split_producer_id(wiring.producer)[1]}"
        self._context = LogicalContext(name, lambda: self._key)
        self._context.tell_event_time = self._event_time
        self._run.task.ctx = self._context
        self._producer = wiring.producer
        self._key = (-1, -1)
        self._steps: dict[int, tuple[int, bool]] = {}
        self._acted: set[int] = set()  # those in which records, or timers by the clock, may have sent
        self._opened: set[int] = set()  # those in which a decision began that ended in a later one
        self._code = code
        self._number = 0  # of the next record
        self.results: Mapping[int, Sequence[CallResult]] = {}  # what calls have returned, by the number of the record
        self.channels: dict[TopicPartition, list[Record]] = {}
        self.outside: dict[TopicPartition, list[bytes]] = {}
        self.close, self.seen = self._run.close, self._run.seen

    def take(self, value: bytes, key: bytes | None, t: int, source: int, partition: TopicPartition | None) -> None:
        """Process one record; ``partition``: the external one that it comes from, if it is from outside."""
        self.fire_wall(t - 1, tell=partition is None)
        self._key = max(self._key, (t, source))
        read = None if partition is None else (OUTSIDE, partition)
        self._run.take([(value, self._answer(value), stamp(value, self._code.disorder), key)], read)
        self._number += 1
        if partition is None:
            self._run.goes_on()
            self.acted(t)

    def _answer(self, value: bytes) -> int:
        """Return the result of the calls for a record: as many as it makes in this state."""
        if not self._code.calls:
            return 0
        self._context.calls = self._number + 1 << DRAWS
        task: Any = self._run.task
        results = self.results.get(self._number, ())
        if len(results) != task.questions(value):
            raise Violation("calls", f"record {self._number} makes {task.questions(value)} calls, recorded: {results}")
        return combined(results)

    def pass_time(
        self,
        t: int,
        idle: TopicPartition | None,
        marks: Sequence[tuple[TimeSource, int, bool]] = (),
        *,
        ended: bool = False,
    ) -> None:
        """Take watermarks, or that an external partition is idle or has ``ended``."""
        assert self.time is not None
        self.fire_wall(t)
        self._key = max(self._key, (t, self._producer))
        if idle is None:
            self.time.told(marks)
        else:
            self.time.quiet((OUTSIDE, idle), ended=ended)
        self._run.fire()

    def fire_wall(self, t: int, *, tell: bool = True) -> None:
        """Let wall-clock timers fire up to logical time ``t``, at whole milliseconds behind what was before (E8).

        ``tell``: not between records of one decision, which tells behind all of them.
        """
        while (at := min((due.at for due in self._run.alarms.set), default=None)) is not None:
            turn = max(at, self._key[0] // 1_000 + 1)
            if turn * 1_000 > t:
                return
            self._key = max(self._key, (turn * 1_000, self._producer))
            self._run.fire_wall_turn(turn)
            if tell:
                self.acted(turn * 1_000)

    def begin_slice(self, fired: int, *, goes_on: bool) -> None:
        """Fire ``fired`` timers next, or ALL; and ``goes_on`` with those that a commit has left."""
        self._run.begin_slice(None if fired == ALL else fired, goes_on=goes_on)

    @property
    def left(self) -> bool:
        """Whether timers are left."""
        return self._run.has_left

    def _event_time(self) -> int | None:
        return None if self.time is None or self.time.now == BEFORE_ALL else self.time.now

    def acted(self, t: int) -> None:
        """Something was processed at ``t`` that may have sent: consumers take the task for neither idle nor ended."""
        if self.time is not None:
            self._acted.add(step_at(t))
            self._steps[step_at(t)] = self.time.watermark

    def begins(self, first_t: int, last_t: int) -> None:
        """A decision begins."""
        self.fire_wall(first_t - 1)
        if self.time is not None and step_at(first_t) < step_at(last_t):
            self._opened.add(step_at(first_t))
            self._steps[step_at(first_t)] = self.time.watermark_behind_a_record

    def passed(self, t: int) -> None:
        """All that came at ``t``, or with one decision up to it, is processed."""
        if self.time is not None:
            self._steps[step_at(t)] = self.time.watermark

    @property
    def time(self) -> PlainTime | None:
        """The event time, if the task keeps any."""
        return self._run.time

    @property
    def waits(self) -> list[DueTimer]:
        """Return the due times that windows and joins still wait for."""
        return self._run.waits

    @property
    def waits_for_the_clock(self) -> bool:
        """Whether timers by the clock are set."""
        return self._run.waits_for_the_clock

    @property
    def told(self) -> list[Advance]:
        """Return the watermarks for consumers: one at the end of a step of logical time, if it is news or may be."""
        found, last, again = [], (BEFORE_ALL, False), False
        for t, watermark in sorted(self._steps.items()):
            if watermark != last or (t in self._acted and (again or last[1])):
                found.append(Advance(t, *watermark))
                again, last = t in self._opened and (again or last[1]), watermark
        return found

    def _sent(self, partition: TopicPartition, key: bytes | None, value: bytes, _timestamp: int) -> None:
        if partition in self._code.external or partition == FILES:
            self.outside.setdefault(partition, []).append(value)
        else:
            self.channels.setdefault(partition, []).append((*self._key, key, value))


class LogicalHistory(TaskHistory):
    """The commits of a deterministic task, according to the steps of the attempts that won."""

    def __init__(self, wiring: TaskWiring, code: StageCode, external_start: int) -> None:
        super().__init__(wiring, code, external_start)
        self._task = PlainTask(code, wiring, self._state)
        self._task.channels = {partition: [] for partition in wiring.outputs}
        self.records = 0  # processed
        self.watermarks: dict[Channel, int] = {}  # processed: the time of the last of each channel
        self.decided: list[tuple[int, InputDecision | IdleNote]] = []  # valid, with the offset of each
        self.leases: list[tuple[int, int]] = [(-1, 0)]  # valid, with the offset of each
        self.calls: list[tuple[int, CallsNote]] = []  # valid, with the offset of each
        self.cuts: dict[int, int] = {}  # offset of a decision → how many of its rows a commit has left in it (E10)

    @property
    def seen(self) -> Counter[str]:
        """Return the counts of the replay."""
        return self._task.seen

    @property
    def time(self) -> PlainTime | None:
        """The event time after what was replayed last, if the task keeps any."""
        return self._task.time

    @property
    def waits(self) -> list[DueTimer]:
        """Return the due times that windows and joins still wait for, after the last replay."""
        return self._task.waits

    @property
    def waits_for_the_clock(self) -> bool:
        """Whether timers by the clock are set after what was replayed last."""
        return self._task.waits_for_the_clock

    @property
    def results(self) -> Mapping[int, Sequence[CallResult]]:
        """Return the results of calls, as the log has them, by the number of the record."""
        return {number: results for _, note in self.calls for number, results in note.records}

    @property
    def outside(self) -> Mapping[TopicPartition, Sequence[bytes]]:
        """Return the external outputs of the committed checkpoints."""
        return self._task.outside

    def replay(self, steps: Sequence[LogicalStep | TimeStep]) -> list[ExternalRecord]:  # type: ignore[override]  # other steps, by their time
        """Run the steps of the next committed checkpoint."""
        self._task.results = self.results
        try:
            self._replay_logical(steps)
        except Overtaken as error:
            raise Violation("overtaken", str(error)) from error
        for target, records in self._task.channels.items():
            known = self.outputs[target]
            known.extend(record[-1] for record in records[len(known) :])
        return []

    def _replay_logical(self, steps: Sequence[LogicalStep | TimeStep]) -> None:
        for step in steps:
            if step.draw == SLICE:
                self._task.begin_slice(step.offset, goes_on=bool(step.t))
            elif step.draw == ALARM:
                self._task.fire_wall(step.t)
            elif isinstance(step, TimeStep):
                self._task.pass_time(step.t, None if step.marks else step.partition, step.marks, ended=step.ended)
                self.watermarks |= dict.fromkeys((source for source, _, _ in step.marks), step.t)
            else:
                self.records += 1
                partition = step.partition if self.wiring.external else None
                self._task.take(step.value, step.key, step.t, step.source, partition)
        self._task.close()

    @property
    def left(self) -> bool:
        """Whether timers are due that the committed checkpoints have not fired."""
        return self._task.left

    def close(self, commit: Commit, offset: int) -> None:
        """Take a valid commit. If timers are left, it ends the decision under way behind its records."""
        super().close(commit, offset)
        if not self.wiring.is_source or commit.deterministic is None:
            return
        taken = [(at, each) for at, each in self.decided if isinstance(each, InputDecision)]
        lost = sum(self.cuts.get(at, each.records) for at, each in taken) - commit.deterministic.position
        if lost and not self.left:
            raise Violation("decision", f"{self.wiring.name}: {lost} records of decisions are not in the commit behind")
        if lost:
            at, decision = taken[-1]
            self.cuts[at] = decision.records - lost
            self.seen["decisions that end with a commit"] += 1


def reference(
    plan: Plan, histories: Mapping[int, LogicalHistory], rows: Mapping[TopicPartition, Mapping[int, bytes]]
) -> Reference:
    """Run the deterministic tasks once. ``rows``: what each external partition was given, by offset, in order."""
    made = Reference({}, {}, {})
    for producer in sorted(histories):  # stages are numbered in the order of the streams
        wiring = plan.wirings[producer]
        content: dict[tuple[int, bytes], bytes] = {}
        task = PlainTask(stage_code(plan, producer), wiring, content)
        task.results = histories[producer].results
        if wiring.is_source:
            _decide(task, producer, histories[producer], rows)
        else:
            _merge(task, wiring, made)
        task.fire_wall(NEVER)  # what was sent must begin like this
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
    for at, decision in history.decided:
        partition = TopicPartition(decision.topic, decision.partition)
        if isinstance(decision, InputDecision):
            task.begins(decision.first_t, decision.last_t)
            taken = (value for offset, value in rows[partition].items() if offset >= decision.first_offset)
            for index, value in enumerate(islice(taken, history.cuts.get(at, decision.records))):
                seen = value_for(split_producer_id(producer)[1], partition, value)
                task.take(seen, None, decision.first_t + index, producer, partition)
            task.acted(decision.last_t)
        else:
            task.pass_time(decision.t, partition, ended=decision.ended)
        task.passed(decision.last_t)


def _merge(task: PlainTask, wiring: TaskWiring, made: Reference) -> None:
    """Give a task all that its producers make, by logical time: watermarks of a time behind its records."""
    records = [
        (t, 0, source, index, seq, key, value)
        for index, channel in enumerate(sorted(wiring.channels))
        for seq, (t, source, key, value) in enumerate(made.channels.get(channel, ()))
    ]
    marks: dict[int, list[tuple[TimeSource, int, bool]]] = {}
    for channel in wiring.channels:
        for advance in made.told.get(channel, ()):
            marks.setdefault(advance.t, []).append((channel, advance.watermark, advance.idle))
    for t, is_time, source, _, _, key, value in sorted([*records, *((t, 1, 0, 0, 0, None, b"") for t in marks)]):
        if is_time:
            task.pass_time(t, None, marks[t])
            task.passed(t)
        else:
            task.take(value, key, t, source, None)
