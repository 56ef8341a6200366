"""A task stepped by hand: the real core over logs that are lists, with a user task that keeps the names of its records.

Actions are answered at once, in order, as a driver on a perfect log would; what is in ``hold`` waits for ``release``.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import replace
from typing import TypeVar

from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.core.graph.task_topology import TaskWiring
from grete.core.limits import Limits
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    decode_data,
    encode_data,
)
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import Header, MessageType, decode_header
from grete.protocol.frames import decode_columns, encode_columns
from grete.protocol.ids import TopicPartition
from tests.core.streams import (
    A0,
    A1,
    IN,
    INNER,
    Log,
    Producer,
    T,
    decoded,
    encoded,
)

LIMITS = Limits(
    checkpoint_interval_ms=100,
    early_memory_bytes_max=1 << 20,
    early_bytes_max=1 << 20,
    uncommitted_state_bytes_max=1 << 20,
    changelog_retention_ms=1_000_000,
    checkpoint_ahead_ms=60_000,
)
NONCE = b"0123456789abcdef"
ActionT = TypeVar("ActionT")


class Scenario:
    """One process of a task. ``store``: how often each record was processed; ``committed``: what each commit added."""

    def __init__(
        self, log: Log, task: TaskWiring = INNER, *, aligned: bool = True, nonce: bytes = NONCE, limits: Limits = LIMITS
    ) -> None:
        self.log = log
        self.task = task
        self.nonce = nonce
        self.limits = limits
        self.core = TaskCore(task, limits, aligned=aligned)
        self.done: list[do.Action] = []  # everything that was asked for, in order
        self.hold: set[type[do.Action]] = set()  # asked for, but not done until release()
        self.held: list[do.Action] = []
        self.acks = True  # whether sends are acknowledged at once
        self.open: list[str] = []
        self.frozen: list[str] = []
        self.store: dict[str, int] = {}
        self.committed: dict[int, list[str]] = {}
        self.changelog_position: ChangelogPosition | None = None
        self.position: dict[TopicPartition, int] = {}
        self.exit: do.Exit | None = None
        self.mono_ms = 0
        self.open_bytes: int | None = None  # what the write batch claims to hold; None: 10 for each record
        self.rewrite_keys = 1_000  # keys that a commit rewrites
        self.collected: list[tuple[TopicPartition, int, bytes]] = []
        self._spilled: dict[int, bytes] = {}
        self._reading: deque[on.Event] = deque()
        self._todo: deque[do.Action] = deque()

    def start(self) -> Scenario:
        """Start on the log as it is now."""
        partitions = (self.task.changelog, *self.core.inputs.position, *self.task.external)
        bounds = {p: (self.log.start[p], len(self.log.rows[p])) for p in partitions}
        self.step(on.Start(self.mono_ms, self.nonce, "here", 2, 0, self.changelog_position, bounds))
        return self

    def successor(self, *, same_host: bool = True, nonce: bytes = b"another process!") -> Scenario:
        """Return a process for the same task that has not started; on the same host it finds the store."""
        after = Scenario(self.log, self.task, aligned=self.core.aligned, nonce=nonce, limits=self.limits)
        if same_host:
            after.store, after.changelog_position = dict(self.store), self.changelog_position
        return after

    @property
    def state(self) -> list[str]:
        """The records that the store holds, in the order in which they came into it."""
        return [name for name, times in self.store.items() for _ in range(times)]

    def step(self, event: on.Event) -> list[do.Action]:
        """Report an event and do all that follows; return what was asked for."""
        begin = len(self.done)
        self._tell(event)
        self._settle()
        return self.done[begin:]

    def read(self, partition: TopicPartition | None = None, count: int = 1_000) -> list[do.Action]:
        """Feed messages while the core wants them and there are some; return what was asked for."""
        begin = len(self.done)
        for _ in range(count):
            ready = [p for p in ([partition] if partition else self.position) if self._has_more(p)]
            if not ready or not self.core.wants_input:
                break
            offset = self.position[ready[0]]
            self.position[ready[0]] += 1
            append_time_ms, value = self.log.rows[ready[0]][offset]
            self.step(on.Message(ready[0], offset, append_time_ms, value))
        return self.done[begin:]

    def commit(self, checkpoint_id: int, *producers: Producer) -> None:
        """Have all producers send the marker of a checkpoint, and read it: the task commits."""
        for producer in producers:
            producer.mark(checkpoint_id)
        self.read()
        assert self.core.frozen == checkpoint_id

    def deliver(self, offset: int, value: bytes, partition: TopicPartition = T) -> list[do.Action]:
        """Feed one message, whatever the position."""
        return self.step(on.Message(partition, offset, self.log.now_ms, value))

    def tick(self, ms: int) -> list[do.Action]:
        """Let time pass."""
        self.mono_ms += ms
        self.log.now_ms += ms
        return self.step(on.Tick(self.mono_ms, self._open_bytes()))

    def take_external(self, *names: str, ended: bool = False) -> list[do.Action]:
        """Process records of the external input."""
        self.open += names
        next_offset = self.core.external.position[IN] + len(names)
        return self.step(on.ExternalProcessed(IN, next_offset, ended, self._open_bytes()))

    def emit(self, partition: TopicPartition, *names: str) -> None:
        """Collect output, as user code does while it processes."""
        self.collected.append(
            (partition, len(names), encode_columns([None] * len(names), encoded(names), [0] * len(names)))
        )

    def flush(self) -> list[do.Action]:
        """End a batch: what was collected is sent."""
        frames, self.collected = self.collected, []
        return self.step(on.OutputFrames(frames))

    def ack(self) -> list[do.Action]:
        """Acknowledge all sends, and from now on each at once."""
        self.acks = True
        return self.step(on.Acked(max(send.token for send in self.all(do.Send))))

    def release(self) -> list[do.Action]:
        """Do what was held, in order, and hold nothing any more."""
        begin = len(self.done)
        held, self.held, self.hold = self.held, [], set()
        for action in held:
            self.done.append(action)
            self._answer(action)
            self._settle()
        return self.done[begin:]

    def holding(self, kind: type[ActionT]) -> ActionT:
        """Return the one action that is held; it must be of this kind."""
        [action] = self.held
        assert isinstance(action, kind)
        return action

    def all(self, kind: type[ActionT]) -> list[ActionT]:
        """Return all actions of a kind so far."""
        return [action for action in self.done if isinstance(action, kind)]

    def sent(self, partition: TopicPartition) -> list[Header]:
        """Return the headers of what this process has sent to a partition."""
        return [decode_header(send.value) for send in self.all(do.Send) if send.partition == partition]

    # --- the world's answers ------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        while self._todo or self._reading:
            if self._todo:
                self._perform(self._todo.popleft())
            else:
                self._tell(self._reading.popleft())

    def _tell(self, event: on.Event) -> None:
        self._todo.extend(self.core.step(event))
        self.core.check_invariants()

    def _perform(self, action: do.Action) -> None:
        if type(action) in self.hold:
            self.held.append(action)
        else:
            self.done.append(action)
            self._answer(action)

    def _answer(self, action: do.Action) -> None:
        match action:
            case do.ReadChangelog(offset):
                rows = self.log.rows[self.task.changelog]
                assert offset >= self.log.start[self.task.changelog], f"offset {offset} of the changelog was trimmed"
                self._reading = deque(on.ChangelogRow(o, *rows[o]) for o in range(offset, len(rows)))
                self._reading.append(on.ChangelogEnd(len(rows)))
            case do.AppendChangelog(value):
                offset = self.log.append(self.task.changelog, value)
                self._tell(on.ChangelogAppended(offset, self.log.now_ms, self.mono_ms, fenced=False))
            case do.Send(token, partition, value):
                self.log.append(partition, value)
                if self.acks:
                    self._tell(on.Acked(token))
            case do.FlushOutputs():
                frames, self.collected = self.collected, []
                self._tell(on.OutputFrames(frames))
            case do.WriteData():
                self._write_data(action)
            case do.Process():
                self._process(action)
            case do.Trim(partition, offset):
                self.log.start[partition] = max(self.log.start[partition], offset)
            case do.Exit():
                self.exit = action
            case _:
                self._answer_state(action)

    def _answer_state(self, action: do.Action) -> None:
        match action:
            case do.Freeze():
                self.frozen, self.open = self.open, []
            case do.ApplyFrozen(changelog_position):
                self.store |= self._dirty()
                self.committed[changelog_position.checkpoint_id], self.changelog_position = (
                    self.frozen,
                    changelog_position,
                )
                self._tell(on.Applied())
            case do.DropOpen():
                self.open, self.collected = [], []
            case do.Seek(partition, offset):
                self.position[partition] = offset
            case do.Spill(key, value):
                self._spilled[key] = value
            case do.DropSpilled(keys):
                for key in keys:
                    del self._spilled[key]
            case do.ClearSpill():
                self._spilled.clear()
            case do.WipeStore():
                self.store, self.changelog_position = {}, None
            case do.ApplySegment(messages):
                for data in map(decode_data, messages):
                    self.store |= zip(decoded(data.keys), map(int, decoded(data.values)), strict=True)
            case do.WriteChangelogPosition(changelog_position):
                self.changelog_position = changelog_position
            case _:
                assert isinstance(action, do.Committed)

    def _write_data(self, action: do.WriteData) -> None:
        dirty = self._dirty()
        rest = sorted(name for name in self.store if name.encode() > action.cursor)
        rewritten, rest = rest[: self.rewrite_keys], rest[self.rewrite_keys :]
        writes = dirty | {name: self.store[name] for name in rewritten if name not in dirty}
        header = ChangelogHeader(ChangelogType.DATA, action.generation, action.first_seq, 0)
        values = [str(times).encode() for times in writes.values()]
        messages = [encode_data(header, [0] * len(writes), encoded(list(writes)), values)] if writes else []
        self.log.append(self.task.changelog, *messages)
        cursor = rewritten[-1].encode() if rest else b""
        self._tell(on.DataWritten(len(messages), zlib.crc32(b"".join(messages)), cursor, not cursor))

    def _dirty(self) -> dict[str, int]:
        return {name: self.store.get(name, 0) + self.frozen.count(name) for name in self.frozen}

    def _process(self, action: do.Process) -> None:
        value = self._spilled.pop(action.key) if action.value is None else action.value
        if decode_header(value).type is MessageType.WATERMARK:
            self.open.append(f"@{decode_watermark(value).watermarks[-1]}")  # state, as a record leaves some
        else:
            self.open += decoded(decode_columns(value).values)[action.skip :]
        self._tell(on.Processed(self._open_bytes()))

    def _open_bytes(self) -> int:
        return 10 * len(self.open) if self.open_bytes is None else self.open_bytes

    def _has_more(self, partition: TopicPartition) -> bool:
        return partition in self.log.rows and self.position[partition] < len(self.log.rows[partition])


def running(*, generations: tuple[int, ...] = (1, 1), **limits: int) -> tuple[Scenario, Producer, Producer]:
    """Return INNER, running on checkpoint 0, and its two producers, announced."""
    log = Log()
    producers = Producer(log, A0), Producer(log, A1)
    for producer, generation in zip(producers, generations, strict=True):
        producer.rollback_marker(0, generation=generation)
    task = Scenario(log, limits=replace(LIMITS, **limits)).start()
    task.read()
    return task, *producers
