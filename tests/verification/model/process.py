"""One process of a task: the real core, over a store, a queue to each partition and user code as small as can be.

A process is a value here: ``freeze`` turns it into bytes, ``thaw`` brings it back, ``digest`` tells two apart by all
that can matter later. Nothing is shared but constants.
"""

import pickle
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from hashlib import blake2b
from marshal import dumps
from typing import Any, NamedTuple

from msgspec import Struct

from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.core.commit_pipeline import FrozenCheckpoint
from grete.core.graph.graph_check import check_aligned
from grete.core.lifecycle import StartupPhase
from grete.core.startup import StartUp
from grete.protocol.changelog import ChangelogHeader, ChangelogType, decode_data, encode_data
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.envelope import decode_header
from grete.protocol.frames import decode_columns, encode_columns
from grete.protocol.ids import TopicPartition
from tests.verification.model.world import IN, World
from tests.verification.simulation.oracle import Violation

OUTSIDE = -1  # instead of a producer id: the record came from the external topic


class Step(NamedTuple):
    """One record, as an attempt processed it; ``seq`` is its number in its channel, or its offset in the topic."""

    partition: TopicPartition
    producer: int
    seq: int
    value: bytes


class Witness(NamedTuple):
    """The work of an attempt for the checkpoint that a commit closes.

    It lies beside the message, outside of the protocol.
    """

    steps: tuple[Step, ...]
    outputs: tuple[tuple[TopicPartition, bytes], ...]


class Row(NamedTuple):
    """A message of the log."""

    value: bytes
    witness: Witness | None = None


class Store(NamedTuple):
    """The store of a host: the number of times each record is in the state, and the changelog position."""

    counts: tuple[tuple[bytes, int], ...] = ()
    changelog_position: ChangelogPosition | None = None


@dataclass(slots=True)
class Queued:
    """A message on its way to the log; ``token`` as in Send, None for data messages, 0 for a claim or commit."""

    row: Row
    token: int | None


class Process:
    """One instance of a task. Each method does one thing, and all that follows without the log."""

    def __init__(self, world: World, task: int, number: int, store: Store) -> None:
        self.world = world
        self.task = task
        self.wiring = world.wirings[task]
        self.number = number
        self.core = TaskCore(self.wiring, world.limits, aligned=True)
        self.position: dict[TopicPartition, int] = {}
        self.queues: dict[TopicPartition, list[Queued]] = {}
        self.steps: list[Step] = []
        self.outputs: list[tuple[TopicPartition, bytes]] = []
        self.frozen = Witness((), ())
        self.counts = dict(store.counts)
        self.changelog_position = store.changelog_position
        self.trims: list[tuple[TopicPartition, int]] = []  # asked for since the last freeze()
        self._collected: dict[TopicPartition, list[bytes]] = {}
        self._todo: deque[do.Action] = deque()
        self._reading: deque[on.Event] = deque()
        self._route = 0
        self._sent = self._acked = 0  # tokens: the last one, and up to which all are in the log
        self._changelog: Sequence[Row] = ()

    # --- what may happen ----------------------------------------------------------------------------------------------

    def start(self, changelog: Sequence[Row]) -> None:
        """Begin on the log as it is now."""
        bounds = dict.fromkeys(self.core.inputs.position, (0, 0))
        bounds |= dict.fromkeys(self.wiring.external, (0, self.world.bounds.records))
        bounds[self.wiring.changelog] = (0, len(changelog))
        self._changelog = changelog
        nonce = (self.task * 256 + self.number).to_bytes(16, "big")
        self._run(on.Start(0, nonce, "host", self.number, 0, self.changelog_position, bounds))

    def deliver(self, partition: TopicPartition, row: Row, route: int) -> None:
        """Take the next message of an input partition."""
        offset, self._route = self.position[partition], route
        self.position[partition] += 1
        self._run(on.Message(partition, offset, 0, row.value))

    def take(self, route: int) -> None:
        """Take the next external record."""
        partition, self._route = TopicPartition(IN, self.wiring.external[0].partition), route
        offset = self.core.external.position[partition]
        self._work(Step(partition, OUTSIDE, offset, self.world.origins(self.task)[offset]))
        self._run(on.ExternalProcessed(partition, offset + 1, ended=False))

    def tick(self, now: int) -> None:
        """Let the timer of a source go off at a time: any time, so that sources and clocks differ as they like."""
        self._run(on.Tick(now))

    def sent(self, partition: TopicPartition, offset: int, changelog: Sequence[Row]) -> None:
        """Learn that the first message of a queue is in the log; ``changelog`` is the own one, it included."""
        token = self.queues[partition].pop(0).token
        if not self.queues[partition]:
            del self.queues[partition]
        if token == 0:
            self._changelog = changelog
            self._run(on.ChangelogAppended(offset, 0, 0, fenced=False))
        elif token is not None:
            waiting = [q.token for queue in self.queues.values() for q in queue if q.token]
            self._acked = min(waiting, default=self._sent + 1) - 1
            self._run(on.Acked(self._acked))

    # --- what follows -------------------------------------------------------------------------------------------------

    def _run(self, event: on.Event) -> None:
        self._do(event)
        while True:
            if self._todo:
                self._perform(self._todo.popleft())
            elif self._reading:
                self._do(self._reading.popleft())
            elif self._collected:
                self._do(on.OutputFrames(self._frames()))
            else:
                break
        self._changelog, self._route = (), 0

    def _do(self, event: on.Event) -> None:
        self._todo.extend(self.core.step(event))
        try:
            self.core.check_invariants()
        except AssertionError as error:
            raise Violation("core", f"{self.core.task.name}: after {event}: {error}") from error

    def _perform(self, action: do.Action) -> None:
        match action:
            case do.ReadChangelog(offset):
                rows = self._changelog[offset:]
                self._reading.extend(on.ChangelogRow(offset + n, 0, row.value) for n, row in enumerate(rows))
                self._reading.append(on.ChangelogEnd(len(self._changelog)))
            case do.AppendChangelog(value, _, with_outputs):
                self._queue(self.wiring.changelog, Row(value, self.frozen if with_outputs else None), 0)
            case do.Send(token, partition, value):
                self._sent = token
                self._queue(partition, Row(value), token)
            case do.Process():
                self._process(action)
            case do.FlushOutputs():
                self._do(on.OutputFrames(self._frames()))
            case do.Seek(partition, offset):
                self.position[partition] = offset
            case do.Trim(partition, offset):
                self.trims.append((partition, offset))
            case do.WriteData():
                self._write_data(action)
            case _:
                self._keep(action)

    def _keep(self, action: do.Action) -> None:
        """Perform what concerns the state."""
        match action:
            case do.Freeze():
                self.frozen = Witness(tuple(self.steps), tuple(self.outputs))
                self.steps, self.outputs = [], []
            case do.ApplyFrozen(changelog_position):
                self.counts |= self._dirty()
                self.changelog_position, self.frozen = changelog_position, Witness((), ())
                self._do(on.Applied())
            case do.DropOpen():
                self.steps, self.outputs, self._collected = [], [], {}
            case do.WipeStore():
                self.counts, self.changelog_position = {}, None
            case do.ApplySegment(messages):
                for data in map(decode_data, messages):
                    self.counts |= {k: int(v or b"0") for k, v in zip(data.keys, data.values, strict=True)}
            case do.WriteChangelogPosition(changelog_position):
                self.changelog_position = changelog_position
            case _:
                assert isinstance(action, do.ClearSpill | do.DropSpilled | do.Committed), f"no place for {action}"

    def _queue(self, partition: TopicPartition, row: Row, token: int | None) -> None:
        self.queues.setdefault(partition, []).append(Queued(row, token))

    def _process(self, action: do.Process) -> None:
        assert action.value is not None
        header = decode_header(action.value)
        for n, value in enumerate(decode_columns(action.value).values[action.skip :]):
            self._work(Step(action.partition, header.producer, header.seq + action.skip + n, value or b""))
        self._do(on.Processed(0))

    def _work(self, step: Step) -> None:
        """User code: each attempt gives another result, and may choose another partition."""
        self.steps.append(step)
        value = b"%s>%d.%d" % (step.value, self.number, self.core.generation)
        for topic in dict.fromkeys(partition.topic for partition in self.wiring.outputs):
            partition = TopicPartition(topic, self._route)
            self.outputs.append((partition, value))
            self._collected.setdefault(partition, []).append(value)

    def _frames(self) -> list[tuple[TopicPartition, int, bytes]]:
        collected, self._collected = self._collected, {}
        return [
            (partition, len(values), encode_columns([None] * len(values), values, [0] * len(values)))
            for partition, values in collected.items()
        ]

    def _dirty(self) -> dict[bytes, int]:
        dirty: dict[bytes, int] = {}
        for step in self.frozen.steps:
            dirty[step.value] = dirty.get(step.value, self.counts.get(step.value, 0)) + 1
        return dirty

    def _write_data(self, action: do.WriteData) -> None:
        dirty = self._dirty()
        messages = []
        if dirty:
            header = ChangelogHeader(ChangelogType.DATA, action.generation, action.first_seq, 0)
            values = [b"%d" % count for count in dirty.values()]
            messages = [encode_data(header, [0] * len(dirty), list(dirty), values)]
        for message in messages:
            self._queue(self.wiring.changelog, Row(message), None)
        self._do(on.DataWritten(len(messages), zlib.crc32(b"".join(messages)), b"", round_done=True))

    # --- as a value ---------------------------------------------------------------------------------------------------

    def store(self) -> Store:
        """Return the store that the host keeps when the process is gone."""
        return Store(tuple(sorted(self.counts.items())), self.changelog_position)

    def freeze(self) -> bytes:
        """Return the process as bytes, without what never changes."""
        core = self.core
        kept = self.world, self.wiring, core.task, core.limits, core.commits.task, core.start_up._check
        self.world = self.wiring = core.task = core.limits = None  # type: ignore[assignment]  # put back below
        core.commits.task = core.start_up._check = None  # type: ignore[assignment]  # likewise
        self.trims = []
        try:
            return pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        finally:
            self.world, self.wiring, core.task, core.limits, core.commits.task, core.start_up._check = kept

    @staticmethod
    def thaw(world: World, task: int, frozen: bytes) -> "Process":
        """Bring a process back."""
        process: Process = pickle.loads(frozen)
        process.world, process.wiring = world, world.wirings[task]
        core, wiring = process.core, process.wiring
        core.task, core.limits, core.commits.task = wiring, world.limits, wiring
        core.start_up._check = partial(check_aligned, wiring)
        return process

    def digest(self) -> bytes:
        """Return 16 bytes, equal for two processes of which nothing that can still matter differs."""
        core = self.core
        state = {name: value for name, value in vars(core).items() if name not in _PASSING}
        run = core.commits.pending
        what = (
            self.number,
            self.store(),
            self.steps,
            self.outputs,
            self.frozen,
            self.position,
            {p: [(q.row, q.token and q.token - self._acked) for q in queue] for p, queue in self.queues.items()},
            state,
            self._sent - self._acked,
            None if run is None else max(run.frozen.last_token - self._acked, 0),
        )
        return blake2b(dumps(_plain(what), 2), digest_size=16).digest()


# Of the core: constants, counters, what is counted from the last acknowledgement (see digest), and the time of the last
# tick, which is never beyond the open checkpoint.
_PASSING = {"task", "limits", "aligned", "seen", "_mono_ms"}
_SKIPPED = {
    "AlignedClosing": {"clock", "idleness", "_inputs", "_external", "_commits", "_limits", "_seen"},
    "AlignedSender": {"_task", "_sender", "_ownership"},
    "Channel": {"task"},
    "Inputs": {"seen", "name", "aligned", "checkpoint_ahead_ms"},
    "Rollbacks": {"fingerprints"},
    "CommitPipeline": {"task", "_ownership", "_sender"},
    "Sender": {"token", "acked"},
    "TaskChangelog": {"_start_up", "ownership", "commits", "_seen"},
    "EarlyBuffer": {"_key", "bytes", "memory_bytes"},
    "EarlyFrame": {"key"},
    "StartUp": {"name", "ownership", "bounds", "_changelog", "_check"},
}


def _plain(value: object) -> Any:
    """Return a value as nested tuples of numbers, bytes and strings, the same for equal values."""
    if value is None or isinstance(value, int | bytes | str):
        return value if not isinstance(value, Enum) else value.name
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return tuple(sorted(((_plain(k), _plain(v)) for k, v in value.items()), key=repr))
    if isinstance(value, StartUp) and value.phase is StartupPhase.DONE:
        return "done"
    if isinstance(value, FrozenCheckpoint):
        value = value._replace(last_token=0)
    if isinstance(value, tuple | list | deque):
        return tuple(map(_plain, value))
    skipped = _SKIPPED.get(type(value).__name__, set())
    return tuple((name, _plain(getattr(value, name))) for name in _names(value) if name not in skipped)


def _names(value: object) -> Iterable[str]:
    if isinstance(value, Struct):
        return value.__struct_fields__
    if hasattr(value, "__dataclass_fields__"):
        return [each.name for each in fields(value)]  # type: ignore[arg-type]  # a dataclass
    return sorted(vars(value))
