"""The oracle's task: stores, outputs, timers and a window on one dict, without checkpoints."""

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sortedcontainers import SortedSet

from grete.api.stateful.windows import Window
from grete.api.tasks.timers import Timer
from grete.core.graph.task_topology import TaskWiring
from grete.execution.timing.event_time import BEFORE_ALL, TimeSource
from grete.execution.timing.reserved_stores import META, STREAM_TIME, TURN
from grete.execution.timing.timers import WALL, DueTimer
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from tests.verification.simulation.expiry_kind import FRESH, PlainExpiring, is_expired
from tests.verification.simulation.join_kind import HELD_MS, LEFTS, RIGHTS, BytesPair, PlainJoin
from tests.verification.simulation.join_kind import NAME as JOIN
from tests.verification.simulation.plain_stores import Content, PlainStore, PlainTimers
from tests.verification.simulation.plain_time import PlainTime
from tests.verification.simulation.stage_codes import StageCode
from tests.verification.simulation.usercode import (
    CHAINS,
    COUNTS,
    FILES,
    FILES_OUTPUT,
    IN,
    OUTSIDE_OUTPUT,
    PANES,
    SimTask,
    Unwanted,
    task_class,
)
from tests.verification.simulation.window_kinds import NAME, WINDOWS, held_plainly

Sent = Callable[[TopicPartition, bytes | None, bytes, int], None]  # partition, key, value, timestamp
Record = tuple[bytes, int, int, bytes | None]  # value, draw, timestamp, key
_NUMBER = struct.Struct(">q")


class Overtaken(Exception):
    """Something was processed before timers that come before it (E10)."""


class PlainOutput:
    """An output that hands each record on. ``turns`` are the task's, in its state."""

    def __init__(self, partitions: Sequence[TopicPartition], run: "PlainRun", *, copied: bool = False) -> None:
        """``copied``: each of the partitions gets each record (A2d)."""
        self._partitions, self._run, self._copied = partitions, run, copied

    def send(
        self, key: bytes | None, value: bytes, *, timestamp: int | None = None, partition: int | None = None
    ) -> None:
        """Send a record."""
        count = len(self._partitions)
        if partition is None and key is None:
            partition = self._run.turn % count
            self._run.turn += 1
        at = partition_of(key, count) if partition is None else partition
        for each in self._partitions if self._copied else (self._partitions[at],):
            self._run.send(each, key, value, timestamp)
        self._run.seen["records of broadcast streams"] += self._copied


class PlainFiles:
    """The output to files: the task does not choose the partition."""

    def __init__(self, run: "PlainRun") -> None:
        self._run = run

    def send(self, _key: None, value: bytes) -> None:
        """Write a value."""
        self._run.send(FILES, None, value, None)


class PlainRun:
    """The task of a stage over one dict: a failure-free run, record by record, without any of the framework's code."""

    def __init__(self, code: StageCode, wiring: TaskWiring, content: Content, sent: Sent) -> None:
        held_ms = WINDOWS[code.window].held_ms if code.timed and not code.bursts else 0
        held_ms = max(held_ms, HELD_MS) if code.timed and code.joins else held_ms
        self.time = PlainTime(wiring, held_ms) if wiring.keeps_time else None
        self.timestamp = 0
        self.turn = 0
        self.code = code
        self.content = content
        self._sent = sent
        self._drained = False  # what was set when all sources had ended has fired, or a drain is under way
        self._until: int | None = None  # the time up to which that goes, BEFORE_ALL: it is about to begin
        self._before_drain = Counter[str]()
        self.left = False  # timers that are due and have not fired
        self._may: int | None = None  # fire in this call; None: all
        self._unsent: list[tuple[TopicPartition, bytes | None, bytes, int]] = []
        self._known: set[bytes] = set()  # idents from the outside
        self._highest: dict[tuple[bytes, ...], int] = {}  # (stage, partition) → number of its records from the outside
        self.seen: Counter[str] = Counter()
        self._letters = PlainOutput(code.external, self)
        task: Any = task_class(code)()
        task.counts, task.chains = PlainStore(COUNTS, content), PlainStore(CHAINS, content)
        for attribute, partitions, copied in zip(code.outputs, code.streams, code.copied, strict=True):
            setattr(task, attribute, PlainOutput(partitions, self, copied=copied))
        setattr(task, OUTSIDE_OUTPUT, PlainOutput(code.external, self))
        setattr(task, FILES_OUTPUT, PlainFiles(self))
        self._timers = PlainTimers(content)
        if code.timed:
            task.timers = self._timers
            rows, of_window = PlainStore(PANES, content), partial(self._timers.schedule, owner=NAME)
            task.panes = self._window = held_plainly(code.window, rows, of_window, lambda: self._now, self._give)
        self.alarms = task.alarms = PlainTimers(content, WALL)
        if code.timed and code.joins:
            sides = PlainStore(LEFTS, content), PlainStore(RIGHTS, content)
            of_join = partial(self._timers.schedule, owner=JOIN)
            task.near = self._join = PlainJoin(sides, of_join, lambda: self._now, self._give_pair)
        if code.expires:
            task.fresh = PlainExpiring(content, lambda: self._now, lambda: self.timestamp)
        self.task: SimTask = task

    @property
    def _now(self) -> int:
        return BEFORE_ALL if self.time is None else self.time.now

    def take(self, records: Sequence[Record], source: TimeSource | None, *, alone: bool = False) -> None:
        """Process records in one turn, and let time pass to them. ``source``: None if they do not say how far it is.

        A batch that fails is undone, and each of its records has a turn ``alone``. A record that fails leaves its
        letter only.
        """
        self._nothing_is_left()
        before, turn = self._keep() if self.code.letters else None, self.turn
        try:
            for value, draw, timestamp, _ in records:
                self.timestamp = timestamp
                if self._is_new(value, source):
                    self.task.take(value, draw, timestamp)
            at = max(timestamp for _, _, timestamp, _ in records)
        except Unwanted:
            assert before is not None
            self._undo(before)
            self.turn = turn if self.code.calls else self.turn  # a record in flight has sent nothing before it fails
            if self.code.batch and not alone:
                self.seen["batches that fail and go record by record"] += 1
                for record in records:
                    if self.left:  # the others come again behind the timers
                        break
                    self.take([record], source, alone=True)
                return
            _, _, self.timestamp, key = records[0]
            self.seen["records that fail and leave a letter"] += 1
            self._letters.send(key, records[0][0])
            at = BEFORE_ALL  # what leaves nothing behind does not move time
        self._sent_now()
        if self.time is not None and source is not None:
            self.time.record(source, at)
        (self._fire_due if source is None else self.fire)()

    def _is_new(self, value: bytes, source: TimeSource | None) -> bool:
        if not self.code.once or source is None or not source[1].topic.startswith(IN):
            return True
        ident = value.partition(b";")[0]
        new = ident not in self._known
        self._known.add(ident)
        self.seen["duplicates dropped"] += not new
        if self.code.numbered:
            self._count_numbers(*ident.split(b"."), new=new)
        return new

    def _count_numbers(self, *place: bytes, new: bool) -> None:
        number, highest = int(place[2]), self._highest.get(place[:2], -1)
        self.seen["repeats known by their numbers"] += not new
        self.seen["numbers out of order"] += new and number < highest
        self._highest[place[:2]] = max(number, highest)

    def _keep(self) -> tuple[Content, SortedSet[DueTimer], SortedSet[DueTimer]]:
        return dict(self.content), self._timers.set.copy(), self.alarms.set.copy()

    def _undo(self, before: tuple[Content, SortedSet[DueTimer], SortedSet[DueTimer]]) -> None:
        """Go back, but for the turns: what has had none of them comes to no harm."""
        self.content.clear()
        self.content.update(before[0])
        _, self._timers.set, self.alarms.set = before
        self._unsent.clear()

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, timestamp: int | None) -> None:
        """Send once what is at work has not failed. ``timestamp``: None for that of what is at work."""
        self._unsent.append((partition, key, value, self.timestamp if timestamp is None else timestamp))

    def _sent_now(self) -> None:
        for sent in self._unsent:
            self._sent(*sent)
        self._unsent.clear()

    def begin_slice(self, may: int | None, *, goes_on: bool) -> None:
        """Begin a call that fires as many timers, None: all; and ``goes_on`` with those that are left."""
        self._may = may
        if goes_on:
            self._fire_left()

    @property
    def has_left(self) -> bool:
        """Whether timers are left, or a drain is under way."""
        return self.left or self._until is not None

    def _nothing_is_left(self) -> None:
        if self.has_left:
            raise Overtaken(f"a step comes before timers that are due at {self._now}: {self._timers.set[:3]}")

    def fire(self) -> None:
        """Run what is due; once all sources have ended, that is all that is set (E7)."""
        self._nothing_is_left()
        drained, self._drained = self._drained, self.time is not None and self.time.ended
        if self._drained and not drained:
            self._until = BEFORE_ALL
        self._fire_left()

    def goes_on(self) -> None:
        """Note records of channels that are merged: the next watermarks say whether all have ended again."""
        self._drained = False

    def _fire_left(self) -> None:
        """Fire what is due. In a drain let time pass: up to the last timer that is set, then for windows and joins."""
        self._fire_due()
        while self._until is not None and not self.left:
            assert self.time is not None
            if self._until == BEFORE_ALL:
                self.seen["timers that a drain finds"] += len(self._timers.set)
                self._before_drain = self.seen.copy()
                self._until = max((due.at for due in self._timers.set), default=None)
            elif self._timers.set and (first := self._timers.set[0]).at <= self._until:
                self.time.now = max(self.time.now, first.at)
                self._fire_due()
            else:
                self._until = max((due.at for due in self._timers.set if due.owner), default=None)
            if self._until is None:
                alone = "records without a match"
                self.seen[f"{alone} that a drain tells of"] += self.seen[alone] - self._before_drain[alone]
                self.seen["timers that a drain leaves"] += len(self._timers.set)

    @property
    def waits(self) -> list[DueTimer]:
        """Return the due times that windows and joins still wait for."""
        return [due for due in self._timers.set if due.owner]

    @property
    def waits_for_the_clock(self) -> bool:
        """Whether timers by the clock are set."""
        return bool(self.alarms.set)

    def _fire_due(self) -> None:
        task: Any = self.task
        while self._may != 0 and (due := self._timers.pop(self._now)) is not None:
            self._may = None if self._may is None else self._may - 1
            if due.owner == JOIN:
                self._join.fire(due.at, due.key)
            elif due.owner:
                self._window.fire(due.at, due.key)
            else:
                self.timestamp = due.at
                task.on_timer(Timer(due.at, due.key))
            self._sent_now()
        self.left = bool(self._timers.set) and self._timers.set[0].at <= self._now

    def fire_wall(self, now: int, at_most: int) -> None:
        """Run wall-clock timers that are due at a time."""
        self._nothing_is_left()
        task: Any = self.task
        for _ in range(at_most):
            if (due := self.alarms.pop(now)) is None:
                return
            self.timestamp = max(due.at, self._now)
            task.on_timer(Timer(due.at, due.key, "wall"))
            self._sent_now()

    def fire_wall_turn(self, now: int) -> None:
        """Run the wall-clock timers that are due at a time, but for those that are set by others of these."""
        task: Any = self.task
        for due in sorted(due for due in self.alarms.set if due.at <= now):
            self.alarms.cancel(due.at, due.key)
            self.timestamp = max(due.at, self._now)
            task.on_timer(Timer(due.at, due.key, "wall"))
            self._sent_now()

    def _give(self, window: Window[bytes, bytes], timestamp: int | None) -> None:
        task: Any = self.task
        self.timestamp = self.timestamp if timestamp is None else timestamp
        self.seen["early results of windows"] += not window.final
        self.seen["early results that replace others"] += bool(window.replaces)
        task.on_window(window)

    def _give_pair(self, pair: BytesPair, timestamp: int) -> None:
        task: Any = self.task
        before, self.timestamp = self.timestamp, timestamp
        alone = pair.left is None or pair.right is None
        self.seen["records without a match" if alone else "pairs of a join"] += 1
        task.on_join(pair)
        self.timestamp = before

    def close(self) -> None:
        """Keep what the runtime keeps in a task's state."""
        self.content[META, STREAM_TIME] = _NUMBER.pack(self._now)
        self.content[META, TURN] = _NUMBER.pack(self.turn)
        content = self.content
        gone = [place for place in content if place[0] == FRESH and is_expired(content, FRESH, content[place])]
        self.seen["entries that expire"] += len(gone)
        for place in gone:
            del self.content[place]
