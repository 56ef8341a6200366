"""The oracle: a recorder keeps each attempt's order of records, and a plain interpreter replays it.

The recorder lives outside of the crash domain. Of all attempts at a checkpoint the log chooses one: the one whose
commit is valid (C2). Its steps are replayed on dicts, by the same user code, without failures, checkpoints or write
batches. What a task has sent, written to the outside and stored must be just that: an explicit witness of a
failure-free run.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from grete.core.graph.task_topology import TaskWiring
from grete.execution.timing.timers import DueTimer
from grete.ports import ExternalRecord
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.plain import Overtaken, PlainRun, Record
from tests.verification.simulation.plain_stores import Content
from tests.verification.simulation.plain_time import PlainTime
from tests.verification.simulation.stage_codes import StageCode
from tests.verification.simulation.steps import ALARM, ALL, QUIET, SLICE, Step
from tests.verification.simulation.steps import OUTSIDE as NO_TASK
from tests.verification.simulation.usercode import FILES


class Violation(Exception):
    """Something happened that must never happen. ``name``: of the invariant."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)  # as given: it travels between processes
        self.name = name

    def __str__(self) -> str:
        """Render as ``name: text``."""
        return f"{self.name}: {self.args[1]}"


class Recorder:
    """The steps of every checkpoint that any attempt has frozen."""

    def __init__(self) -> None:
        self._frozen: dict[tuple[bytes, int, int], list[Step]] = {}
        self._taken = set[object]()
        self.closed: dict[tuple[int, int], set[int]] = {}  # (task, generation) -> checkpoints that it has frozen

    def took(self, task: int, step: Step) -> None:
        """Keep that some process of a task has processed a record. Raises Violation: another has, or this one."""
        record = step.value.split(b";")[:2]
        what = (step.partition, step.offset) if step.producer == NO_TASK else (step.producer, *record)
        if (task, what) in self._taken:
            raise Violation("at most once", f"task {task} processes {step.value!r} of {step.partition} again")
        self._taken.add((task, what))

    def froze(self, task: int, nonce: bytes, generation: int, checkpoint_id: int, steps: list[Step]) -> None:
        """Keep what a process did for a checkpoint, as one of its generations."""
        self._frozen[nonce, generation, checkpoint_id] = steps
        self.closed.setdefault((task, generation), set()).add(checkpoint_id)

    def take(self, commit: Commit) -> list[Step]:
        """Return the steps of the attempt that won. Raises Violation if no attempt froze that."""
        steps = self._frozen.pop((commit.nonce, commit.generation, commit.checkpoint_id), None)
        if steps is None:
            raise Violation(
                "recorder",
                f"checkpoint {commit.checkpoint_id} of generation {commit.generation} was committed and never frozen",
            )
        return steps


class TaskHistory:
    """The commits of one task so far, according to the reference interpreter."""

    def __init__(self, wiring: TaskWiring, code: StageCode, external_start: int) -> None:
        self.wiring = wiring
        self.commit: Commit | None = None  # the last valid one
        self.offsets: dict[int, int] = {}  # of each checkpoint's commit in the changelog
        self.generations: dict[int, int] = {}  # of each checkpoint's commit
        self.states: dict[int, Content] = {}
        self.files: dict[int, list[bytes]] = {}  # of each checkpoint, what the outbox is to write
        self.outputs: dict[TopicPartition, list[bytes]] = {partition: [] for partition in wiring.outputs}
        self.cursors: dict[tuple[int, TopicPartition], int] = dict.fromkeys(wiring.channels, 0)
        self.received: set[bytes] = set()
        self.external: dict[TopicPartition, int] = dict.fromkeys(wiring.external, external_start)
        self.resume: dict[TopicPartition, int] = {partition: 0 for _, partition in wiring.channels}
        self._state: Content = {}
        self._run = PlainRun(code, wiring, self._state, self._sent)
        self._told: dict[TopicPartition, list[int]] = {p: [] for p in wiring.outputs}  # time before each record
        self._time_before = 0  # the step that is replayed
        self._checkpoint_ids: list[int] = []
        self._external: list[ExternalRecord] = []  # of the checkpoint that is replayed
        self._for_files: list[bytes] = []
        self._counts: dict[TopicPartition, list[int]] = {partition: [0] for partition in wiring.outputs}

    @property
    def checkpoint_id(self) -> int:
        """The last committed checkpoint; -1 before the genesis."""
        return -1 if self.commit is None else self.commit.checkpoint_id

    def state(self, place: tuple[int, bytes]) -> bytes | None:
        """Return the value of a (store, key) after what was replayed last."""
        return self._state.get(place)

    def sent_up_to(self, partition: TopicPartition, checkpoint_id: int) -> int:
        """Return the number of records to ``partition`` that carry a checkpoint id of at most ``checkpoint_id``."""
        return self._counts[partition][bisect_right(self._checkpoint_ids, checkpoint_id)]

    @property
    def seen(self) -> Counter[str]:
        """Return the counts of the replay."""
        return self._run.seen

    @property
    def time(self) -> PlainTime | None:
        """The event time after what was replayed last, if the task keeps any."""
        return self._run.time

    @property
    def waits(self) -> list[DueTimer]:
        """Return the due times that windows and joins still wait for, after the last replay."""
        return self._run.waits

    @property
    def waits_for_the_clock(self) -> bool:
        """Whether timers by the clock are set after what was replayed last."""
        return self._run.waits_for_the_clock

    def replay(self, steps: Sequence[Step]) -> list[ExternalRecord]:
        """Run the steps of the next committed checkpoint; return what they write to the outside.

        Raises Violation if something came before timers that were due.
        """
        try:
            return self._replay(steps)
        except Overtaken as error:
            raise Violation("overtaken", str(error)) from error

    def _replay(self, steps: Sequence[Step]) -> list[ExternalRecord]:
        self._external, time = [], self.time
        turn: list[Record] = []
        for step in steps:
            if not self._run.left:
                self._time_before = 0 if time is None else time.watermark[0]
            if step.draw == SLICE:
                self._run.begin_slice(None if (may := int(step.value)) == ALL else may, goes_on=step.more)
                continue
            if step.draw >= 0:
                turn.append((step.value, step.draw, step.timestamp, step.key))
                if not step.more:
                    self._run.take(turn, (step.producer, step.partition))
                    turn.clear()
                continue
            if step.draw == ALARM:
                self._run.fire_wall(*map(int, step.value.split(b";")))
                continue
            assert time is not None
            if step.draw == QUIET:
                time.quiet((step.producer, step.partition), ended=step.ended)
            else:
                watermark, idle = map(int, step.value.split(b";")[:2])
                time.told([((step.producer, step.partition), watermark, bool(idle))])
            self._run.fire()
        self._run.close()
        return self._external

    def _sent(self, partition: TopicPartition, key: bytes | None, value: bytes, timestamp: int) -> None:
        if partition in self.outputs:
            self.outputs[partition].append(value)
            self._told[partition].append(self._time_before)
        elif partition == FILES:
            self._for_files.append(value)
        else:
            self._external.append(ExternalRecord(partition, key, value, timestamp))

    def time_before(self, partition: TopicPartition, record: int) -> int:
        """Return the time that a task could tell before it sent a partition's record of this number (from 1).

        Or now, if it has not sent that record.
        """
        assert self.time is not None
        told = self._told[partition]
        return told[record - 1] if record <= len(told) else self.time.watermark[0]

    def close(self, commit: Commit, offset: int) -> None:
        """Take a valid commit, after its steps were replayed."""
        if self._for_files:
            self.files[commit.checkpoint_id], self._for_files = self._for_files, []
        self._checkpoint_ids.append(self.checkpoint_id + 1)
        for partition, counts in self._counts.items():
            counts.append(len(self.outputs[partition]))
        self.commit = commit
        self.offsets[commit.checkpoint_id], self.generations[commit.checkpoint_id] = offset, commit.generation
        self.states[commit.checkpoint_id] = dict(self._state)
        self.resume |= {TopicPartition(i.topic, i.partition): i.resume for i in commit.inputs}
