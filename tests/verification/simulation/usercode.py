"""The task of every simulated stage: keyed counts, a hash chain, deletes, scans, timers, a window, random routing.

What it draws for a record is its only randomness, so the recorder can keep it and the oracle can run the same record
again; to the protocol an aligned task is non-deterministic: each attempt draws again. A deterministic task draws from
the order of all that it has seen, and from nothing else.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any
from zlib import crc32

from grete.api.jobs.graph import FIRST_USER_STORE, StageGraph, describe
from grete.api.record import Record
from grete.api.serdes.serde import bytes_serde
from grete.api.sinks.files import Files
from grete.api.stateful.windows import Window, WindowStore
from grete.api.store import Store
from grete.api.tasks.calls import Call
from grete.api.tasks.task import Task
from grete.api.tasks.timers import Timer, Timers
from grete.api.topics.deduplicate import ById, BySequence, Deduplicate
from grete.api.topics.topic import DeadLetter, Input, Output, Topic
from grete.protocol.ids import TopicPartition
from tests.verification.simulation.calls_kind import ask, combined, result_of
from tests.verification.simulation.expiry_kind import FRESH, TTL_MS
from tests.verification.simulation.feeds import BROADCAST
from tests.verification.simulation.idents import OF_TIMER, ident_of, number_of, session_of
from tests.verification.simulation.join_kind import NEAR, STORE_IDS, BytesPair
from tests.verification.simulation.plan import WALL_MS
from tests.verification.simulation.sink import DIRECTORY
from tests.verification.simulation.stage_codes import StageCode
from tests.verification.simulation.ways import send_by
from tests.verification.simulation.window_kinds import TUMBLING, WINDOWS

COUNTS, CHAINS, PANES = FIRST_USER_STORE, FIRST_USER_STORE + 1, FIRST_USER_STORE + 2  # store ids
LATE = b"~late"  # in COUNTS: records whose windows were closed
CAME = b"~came"  # in COUNTS of a task with a store that expires: a hash of what it has shown
ORDER = b"~order"  # in COUNTS of a deterministic task: a hash of all that was processed, in its order
FOR_EVER_MS = 1 << 40
IN, TABLE = "in.", "table."  # begin the names of external inputs; a table is read first
OUTSIDE_OUTPUT, FILES_OUTPUT = "outside", "files"  # attributes of a task
FILES = TopicPartition("files", 0)  # where records go that the outbox writes
BURST = 4  # timers of a record, at most one less
MORE_TIMERS = 5  # characters: a wall-clock timer with a shorter key sets the next one


class Unwanted(Exception):
    """A task does not want this record."""


class SimTask(Task):
    """The task of one stage. The oracle runs ``take``, ``on_timer`` and ``on_window``, too, over a plain dict."""

    counts = Store("counts", bytes_serde, bytes_serde)
    chains = Store("chains", bytes_serde, bytes_serde)
    code: StageCode
    drawn: Callable[[int, bytes], int]  # by offset and value, in one attempt
    suffix = b""  # of all that goes to the outside: another one makes it another task
    begun: Callable[[int, bytes], None]  # is called with each record that begins: offset, value

    def one(self, record: Record[bytes | None, bytes]) -> None:
        """Take a record."""
        draw = 0 if self.code.deterministic else self.drawn(record.offset, record.value)
        self.take(record.value, draw, record.timestamp)

    def all(self, records: list[Record[bytes | None, bytes]]) -> None:
        """Take the records of a batch."""
        for record in records:
            self.one(record)

    def take(self, value: bytes, draw: int, at: int) -> None:
        """Process one record ``ident;path;rest`` of a time. Raises Unwanted when all is done."""
        code = self.code
        draw = self._next(value) ^ draw if code.deterministic else draw
        ident, path, _ = value.split(b";", 2)
        path += code.name
        count, chain = self._count(crc32(ident) % code.keys, value, draw)
        # a batch has one time: each of its records keeps its own all the same
        self._send(draw, ident, b"%s;%s;%d.%d.%x" % (ident, path, count, chain, draw), at if code.batch else None)
        if code.timed:
            self.set_timers(draw, at)
        if code.letters and draw % 9 == 2:
            raise Unwanted

    def _count(self, number: int, value: bytes, draw: int) -> tuple[int, int]:
        counts, chains = self.counts, self.chains
        if self.code.wide:
            number = 0 if draw & 3 else number
            for each in range(self.code.keys) if draw % 6 == 1 else ():
                counts.put(b"k%02d" % each, b"%d" % (draw + each))
        key = b"k%02d" % number
        count = int(counts.get(key) or 0) + 1
        counts.put(key, b"%d" % count)
        chain = crc32(value, int(chains.get(key) or 0))
        chains.put(key, b"%d" % chain)
        if draw % 4 == 0:
            chains.delete(key)
        if draw % 7 == 0:
            counts.delete(key)
        if draw % 5 == 0:
            start = b"k%02d" % (draw // 5 % self.code.keys)
            for found, text in (*counts.range(start), *chains.range(b"", start)):
                chain = crc32(found + text, chain)
        return count, chain

    def _next(self, value: bytes) -> int:
        """Return the number that a deterministic task draws: it depends on all that came before."""
        draw = crc32(value, int(self.counts.get(ORDER) or 0))
        self.counts.put(ORDER, b"%d" % draw)
        return draw ^ self.ctx.random().getrandbits(32) if draw % 4 == 0 else draw

    def _send(self, draw: int, key: bytes | None, value: bytes, at: int | None = None) -> None:
        """Send to all streams, and to the outside: by key, in turns, or to a partition that is named."""
        code, way = self.code, draw >> 12 & 3
        for index, (attribute, partitions) in enumerate(zip(code.outputs, code.streams, strict=True)):
            named = (draw >> 8 * index & 255) % len(partitions)
            send_by(getattr(self, attribute), way, key, value, named, at)
        if code.external:
            send_by(getattr(self, OUTSIDE_OUTPUT), way, key, value + self.suffix, draw % len(code.external), at)
        if code.files and key is not None:
            getattr(self, FILES_OUTPUT).send(None, value + self.suffix)

    def set_timers(self, draw: int, at: int) -> None:
        """Do nothing: this task has none."""


class CallingTask(SimTask):
    """The same, with many records in flight: it asks for what it draws."""

    in_flight = 4
    ask = Call(ask, result=bytes_serde)

    async def asking(self, record: Record[bytes | None, bytes]) -> None:
        """Take a record once all that it asks is answered."""
        self.begun(record.offset, record.value)
        drawn = 0 if self.code.deterministic else self.drawn(record.offset, record.value)
        calls = [self.ask(0, drawn) for _ in range(self.questions(record.value))]
        results = [await result_of(call) for call in calls]
        draw = combined(results) if self.code.deterministic else int(results[-1].data) if results else drawn
        self.take(record.value, draw, record.timestamp)

    def questions(self, value: bytes) -> int:
        """Return the number of calls that a record makes: it depends on the state, too."""
        return (int(self.counts.get(b"k00") or 0) + crc32(value)) % 3


class BurstTask(SimTask):
    """The same, by event time: its records set several timers each."""

    timers = Timers()

    def set_timers(self, draw: int, at: int) -> None:
        """Set some, and cancel one now and then."""
        for each in range(draw % BURST):
            self.timers.schedule(at + 1 + (draw >> each) % 24, f"b{each}")
        if draw % 8 == 1:
            self.timers.cancel(at + 1 + draw % 4, "b1")

    def on_timer(self, timer: Timer) -> None:
        """Send something that depends on all that came before."""
        if self.code.drained and not timer.key.endswith("+"):
            self.timers.schedule(timer.at + 1 + timer.at % 60, timer.key + "+")
        what = b"%d %s" % (timer.at, timer.key.encode())
        draw = crc32(what, int(self.counts.get(ORDER) or 0))
        self.counts.put(ORDER, b"%d" % draw)
        self._send(draw, None, b"%s%d;%s;%x" % (OF_TIMER, timer.at, self.code.name, draw))


class CallingBurst(CallingTask, BurstTask):
    """Both: a record has its turn behind the timers of those before it."""


class TimedTask(SimTask):
    """The same, by event time."""

    panes: WindowStore[bytes, bytes] = WINDOWS[TUMBLING]
    timers = Timers()
    alarms: Timers

    def set_timers(self, draw: int, at: int) -> None:
        """Count in a window, or count the record as late; set a timer or cancel one."""
        if not self.panes.update(b"k%02d" % (draw % 3), at, lambda seen: b"%d" % crc32(b"%d" % draw, int(seen or 0))):
            self.counts.put(LATE, b"%d" % (int(self.counts.get(LATE) or 0) + 1))
        if draw % 3 == 0:
            self.timers.schedule(at + 1 + draw % 16, f"k{draw % self.code.keys:02}")
        if draw % 8 == 1:
            self.timers.cancel(at + 1 + draw % 4, f"k{draw // 8 % self.code.keys:02}")
        if self.code.wall and draw % 5 < 2:  # perhaps for a time that the clock has passed
            (self.alarms.schedule if draw % 5 else self.alarms.cancel)(draw // 5 % WALL_MS, f"k{draw // 8 % 3}")

    def on_timer(self, timer: Timer) -> None:
        """Fire: what a timer does depends on the order in which they fire."""
        on_wall, at = timer.clock == "wall", timer.at
        if on_wall and self.code.deterministic:
            at = max(at, self.ctx.event_time() or at)
            if len(timer.key) < MORE_TIMERS:  # perhaps for a time that has passed
                self.alarms.schedule(timer.at + crc32(timer.key.encode(), timer.at) % 9 - 5, timer.key + "+")
        if self.code.drained and not on_wall and len(timer.key) < MORE_TIMERS:
            self.timers.schedule(timer.at + 1 + timer.at % 60, timer.key + "+")
        sends = self.code.deterministic or not on_wall
        self._fire(b"%d" % timer.at + b" by the clock" * on_wall, timer.key.encode(), at if sends else None)

    def on_window(self, window: Window[bytes, bytes]) -> None:
        """Take the value of a window that closes, or of one that has changed: then the state alone changes."""
        text = b"%d %s" % (window.end, window.value)
        if window.final:
            self._fire(text, window.key, window.end - 1)
            return
        replaced = b"".join(b" %d" % start for start in window.replaces)
        self._fire(b"%s so far%s" % (text, replaced), window.key)

    def _fire(self, what: bytes, key: bytes, at: int | None = None) -> None:
        """Change the state; a deterministic task sends, too, at the time given, as does one of a drained job."""
        chain = crc32(what, int(self.chains.get(key) or 0))
        self.chains.put(key, b"%d" % chain)
        if (self.code.deterministic or self.code.drained) and at is not None:
            draw = self._next(what + key) if self.code.deterministic else crc32(what + key)
            self._send(draw, None, b"%s%d;%s;%x" % (OF_TIMER, at, self.code.name, draw))


class ExpiringTask(TimedTask):
    """The same, with a store whose entries expire."""

    fresh = Store("fresh", bytes_serde, bytes_serde, ttl_ms=TTL_MS)

    def set_timers(self, draw: int, at: int) -> None:
        """Count how often a key came without a pause, and chain all that is there now and then."""
        super().set_timers(draw, at)
        key = b"k%02d" % (draw // 16 % 24)
        before = self.fresh.get(key)
        self.fresh.put(key, b"%d" % (int(before or 0) + 1))
        shown = b"".join(b"%s %s;" % row for row in self.fresh.all()) if draw % 4 == 2 else b""
        chain = crc32(b"%d %s" % (int(before or 0), shown), int(self.counts.get(CAME) or 0))
        self.counts.put(CAME, b"%d" % chain)


class JoinTask(TimedTask):
    """The same, with a join of its odd and even records."""

    near = NEAR

    def set_timers(self, draw: int, at: int) -> None:
        """Put the record on one side, too."""
        super().set_timers(draw, at)
        put = self.near.put_left if draw & 16 else self.near.put_right
        if not put(b"k%02d" % (draw % 3), at, b"%d" % draw):
            self.counts.put(LATE, b"%d" % (int(self.counts.get(LATE) or 0) + 1))

    def on_join(self, pair: BytesPair) -> None:
        """Take a pair, which changes the state alone, or a record without a match."""
        alone = pair.left is None or pair.right is None
        self._fire(b"%s+%s" % (pair.left or b"", pair.right or b""), pair.key, pair.timestamp if alone else None)


def draws_of(salt: int) -> Callable[[int, bytes], int]:
    """Return a function that draws a number for a record in this attempt, by its offset and value."""
    odd = salt * 2 + 1
    return lambda offset, value: crc32(value, offset & 0xFFFFFFFF) * odd >> 16 & 0xFFFFFFFF


@lru_cache(256)
def task_class(code: StageCode) -> type[SimTask]:
    """Return the class of a stage, with its inputs and outputs."""
    errors: Any = DeadLetter(_topic(code.external[0].topic)) if code.letters else "fail"
    once: Deduplicate[bytes | None, bytes] | None = None
    if code.once:
        once = BySequence(session_of, number_of, FOR_EVER_MS) if code.numbered else ById(ident_of, FOR_EVER_MS)
    declared: dict[str, object] = {
        f"input{index}": Input(
            _topic(name),
            errors,
            deduplicate=once if name.startswith(IN) else None,
            bootstrap=name.startswith(TABLE),
            time="record",  # of a table, too: by itself it would tell none beside a stream
            priority=code.priorities[index],
            broadcast=name.startswith(BROADCAST) or name in code.whole,
        )
        for index, name in enumerate(code.topics)
    }
    declared |= {name: Output(_topic(topic)) for name, topic in zip(code.outputs, code.sends_to, strict=True)}
    if code.external:
        declared[OUTSIDE_OUTPUT] = Output(_topic(code.external[0].topic))
    if code.files:
        declared[FILES_OUTPUT] = Output(Files(DIRECTORY, bytes_serde))
    if code.timed and not code.bursts:
        declared["panes"] = WINDOWS[code.window]
    declared |= {"alarms": Timers(clock="wall")} if code.wall else {}
    base = JoinTask if code.timed and code.joins else TimedTask if code.timed else SimTask
    base = ExpiringTask if code.expires else CallingTask if code.calls else base
    base = (CallingBurst if code.calls else BurstTask) if code.bursts else base
    process = CallingTask.asking if code.calls else base.one
    declared["process_batch" if code.batch else "process"] = base.all if code.batch else process
    return type("Stage", (base,), {"name": code.stage, "code": code, **declared})


@lru_cache(256)
def stage_graph(code: StageCode) -> StageGraph:
    """Return the declarations of a stage, as the framework reads them from its class."""
    stage = describe(task_class(code), int(code.name), "deterministic" if code.deterministic else "aligned")
    if not (code.timed and (code.joins or code.expires)):
        return stage
    more = {"fresh": FRESH} if code.expires else STORE_IDS
    return replace(stage, pinned_ids={"counts": COUNTS, "chains": CHAINS, "panes": PANES, **more})


def _topic(name: str) -> Topic[Any, Any]:
    return Topic(name, bytes_serde, bytes_serde)
