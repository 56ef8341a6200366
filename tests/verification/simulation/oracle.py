"""What is right: a recorder keeps the order in which each attempt processed records; a plain interpreter replays it.

The recorder lives outside of the crash domain. Of all attempts at a checkpoint the log chooses one: the one whose
commit is valid (C2). Its steps are replayed on dicts, by the same user code, without failures, checkpoints or layers.
What a task has sent, written to the outside and stored must be just that: an explicit witness of a failure-free run
(design 3.2).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from framework.core.task_topology import TaskWiring
from framework.execution.event_time import BEFORE_ALL
from framework.execution.reserved_stores import TIMERS
from framework.execution.timers import Due
from framework.ports import ExternalRecord
from protocol.commit import Commit
from protocol.ids import TopicPartition
from tests.verification.simulation.usercode import (
    CHAINS,
    CLOCK,
    COUNTS,
    OUTSIDE,
    QUIET,
    StageCode,
    Step,
    on_timer,
    set_timers,
    work,
)

Content = dict[tuple[int, bytes], bytes]


class Violation(Exception):
    """Something happened that must never happen. ``name``: of the invariant."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)  # as given: it travels between processes
        self.name = name

    def __str__(self) -> str:
        """Render as ``name: text``."""
        return f"{self.name}: {self.args[1]}"


class PlainStore:
    """A store without layers."""

    def __init__(self, store: int, content: Content) -> None:
        self._store = store
        self._content = content

    def get(self, key: bytes) -> bytes | None:
        """Return the value or None."""
        return self._content.get((self._store, key))

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value."""
        self._content[self._store, key] = value

    def delete(self, key: bytes) -> None:
        """Delete the key."""
        self._content.pop((self._store, key), None)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield what lies between, in key order."""
        for (store, key), value in sorted(self._content.items()):
            if store == self._store and start <= key and (end is None or key < end):
                yield key, value


def timer_key(at: int, key: str) -> bytes:
    """Return where the timer of a task, not of a window, is in the store of timers."""
    return (at + (1 << 63)).to_bytes(8, "big") + b"\0" + key.encode()


Source = tuple[int, TopicPartition]  # producer or OUTSIDE


class PlainTimers:
    """Timers in a dict, looked through from the first to the last each time: no heap, nothing to reload."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.set: set[Due] = set()

    def schedule(self, owner: str, at: int, key: str = "") -> None:
        """Set a timer."""
        self.set.add(Due(at, owner, key))
        self._content[TIMERS, timer_key(at, key)] = b""

    def cancel(self, owner: str, at: int, key: str = "") -> None:
        """Remove a timer."""
        self.set.discard(Due(at, owner, key))
        self._content.pop((TIMERS, timer_key(at, key)), None)

    def pop(self, now: int) -> Due | None:
        """Remove and return the first timer that is due."""
        due = min(self.set, default=None)
        if due is None or due.at > now:
            return None
        self.cancel(due.owner, due.at, due.key)
        return due


class PlainTime:
    """Event time by the rule alone (E1, E4): all sources are looked at each time."""

    def __init__(self, wiring: TaskWiring) -> None:
        self.now = BEFORE_ALL
        self._read = {(OUTSIDE, partition) for partition in wiring.external}
        self.reached = dict.fromkeys([*wiring.channels, *sorted(self._read)], BEFORE_ALL)
        self._logged = wiring.deterministic
        self._idle: set[Source] = set()

    @property
    def watermark(self) -> tuple[int, bool]:
        """The time, and whether all sources are idle."""
        return self.now, len(self._idle) == len(self.reached)

    def take(self, step: Step, at: int) -> None:
        """Take a step; ``at``: the timestamp of its record, if it is one."""
        source = step.producer, step.partition
        if step.draw >= 0:
            self.record(source, at)
        elif step.draw == QUIET:
            self.quiet(source)
        else:
            watermark, idle = map(int, step.value.split(b";")[:2])
            self.told([(source, watermark, bool(idle))])

    def record(self, source: Source, at: int) -> None:
        """Take a record."""
        self._idle.discard(source)
        if source in self._read:
            self.reached[source] = max(self.reached[source], at)
        self._advance()

    def quiet(self, source: Source) -> None:
        """Take it that nothing comes from a source."""
        self._idle.add(source)
        self._advance()

    def told(self, marks: Sequence[tuple[Source, int, bool]]) -> None:
        """Take watermarks that are true at one time."""
        for source, watermark, idle in marks:
            if watermark >= self.reached[source]:
                self.reached[source] = watermark
                (self._idle.add if idle else self._idle.discard)(source)
        self._advance()

    def restarted(self) -> None:
        """A new generation goes on from a commit: what its clock has said begins again, what is logged does not."""
        if not self._logged:
            self._idle -= self._read

    def _advance(self) -> None:
        counted = [reached for source, reached in self.reached.items() if source not in self._idle]
        self.now = max(self.now, min(counted) if counted else max(self.reached.values()))


class Recorder:
    """The steps of every checkpoint that any attempt has frozen."""

    def __init__(self) -> None:
        self._frozen: dict[tuple[bytes, int, int], list[Step]] = {}
        self.closed: dict[tuple[int, int], set[int]] = {}  # (task, generation) -> checkpoints that it has frozen

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
    """What one task has committed so far, according to the reference interpreter."""

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
        self._code = code
        self._state: Content = {}
        self._stores = PlainStore(COUNTS, self._state), PlainStore(CHAINS, self._state)
        self._timers = PlainTimers(self._state)
        self.time = PlainTime(wiring) if wiring.keeps_time else None
        self._told: dict[TopicPartition, list[int]] = {p: [] for p in wiring.outputs}  # time before each record
        self._labels: list[int] = []
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
        """Return how many records to ``partition`` carry a checkpoint id of at most ``checkpoint_id``."""
        return self._counts[partition][bisect_right(self._labels, checkpoint_id)]

    def replay(self, steps: Sequence[Step]) -> list[ExternalRecord]:
        """Run the steps of the next committed checkpoint; return what they write to the outside."""
        external: list[ExternalRecord] = []
        for step in steps:
            if step.draw < 0:
                self._pass_time(step, 0)
                continue
            streams, records = work(self._code, *self._stores, step.value, step.draw)
            for partition, sent in streams:
                self.outputs[partition].append(sent)
                self._told[partition].append(0 if self.time is None else self.time.now)
            external += records
            if self.time is not None:
                self._pass_time(step, set_timers(self._code, self._stores[0], self._timers, step, self.time.now))
        if self.time is not None:
            self._stores[0].put(CLOCK, b"%d" % self.time.now)
        if self._code.files:
            self._for_files = [record.value or b"" for record in external]
            return []
        return external

    def _pass_time(self, step: Step, at: int) -> None:
        assert self.time is not None
        self.time.take(step, at)
        while (due := self._timers.pop(self.time.now)) is not None:
            on_timer(self._stores[1], due)

    def time_before(self, partition: TopicPartition, record: int) -> int:
        """Return the task's time before it sent the record of this number (from 1) to a partition; or now."""
        assert self.time is not None
        told = self._told[partition]
        return told[record - 1] if record <= len(told) else self.time.now

    def close(self, commit: Commit, offset: int) -> None:
        """Take a valid commit, after its steps were replayed."""
        if self._for_files:
            self.files[commit.checkpoint_id], self._for_files = self._for_files, []
        self._labels.append(self.checkpoint_id + 1)
        for partition, counts in self._counts.items():
            counts.append(len(self.outputs[partition]))
        self.commit = commit
        self.offsets[commit.checkpoint_id], self.generations[commit.checkpoint_id] = offset, commit.generation
        self.states[commit.checkpoint_id] = dict(self._state)
        self.resume |= {TopicPartition(i.topic, i.partition): i.resume for i in commit.inputs}
