"""The line between clients and a broker on which the end of a transaction comes late: in the middle of the next one."""

import asyncio
import struct
import threading
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from grete.testing.late_end.requests import END, PRODUCE, Request, decode, end_code
from grete.testing.proxy import Proxy

STEP_S = 0.002  # of looking whether what is held may go on
ALONE_S = 0.5  # what is held and is all of its transaction goes on after that long: the next one may have both halves


class LateStage(IntEnum):
    """The stages of an attempt."""

    ARMED = 0  # the next end of a transaction is taken off the line
    TAKEN = 1  # it is off the line, and the client's connection is closed; the broker's is open
    REPEATED = 2  # the client has asked again, and has its answer
    HALFWAY = 3  # of the next transaction one half is in the log, the other is held
    LATE = 4  # the first end has arrived, and has been answered


class LateEnd:
    """One end of a transaction that comes late. ``first``: the topic that the next transaction writes first."""

    def __init__(self, transactional_id: str, first: str = "", second: str = "") -> None:
        """Hold messages to ``second`` until the late end has arrived; without names, the second topic of any name."""
        self.transactional_id, self.first, self.second = transactional_id, first, second
        self.stage = LateStage.ARMED
        self.code: int | None = None  # the broker's answer to the late end: 0 is "done"
        self.released = False
        self.dropped = False  # what is held never arrives: its sender is dead
        self._changed = threading.Condition()

    def reaches(self, stage: LateStage, seconds: float) -> bool:
        """Wait until it has come so far."""
        with self._changed:
            return self._changed.wait_for(lambda: self.stage >= stage, seconds)

    def go_on(self) -> None:
        """Let what is held arrive."""
        self.released = True

    def drop(self) -> None:
        """Lose what is held."""
        self.dropped = self.released = True

    def come_to(self, stage: LateStage) -> None:
        """Note how far it is."""
        with self._changed:
            self.stage = stage
            self._changed.notify_all()


class _Taken(NamedTuple):
    frame: bytes
    request: Request
    writer: asyncio.StreamWriter


class LateEndLine(Proxy):
    """Passes what comes; of the transactional id of the attempt under way the end of one transaction comes late.

    A client that comes by this line must be told of no other way: see the package's text.
    """

    def __init__(self, port: int, to: int, host: str = "127.0.0.1", others: Mapping[int, int] | None = None) -> None:
        super().__init__(port, to, host, others)
        self._attempt: LateEnd | None = None
        self._taken: _Taken | None = None
        self._passed: list[str] = []  # topics of the open transaction whose first records the broker has
        self._lost: list[asyncio.StreamWriter] = []  # kept: else they are closed when they are collected

    def attempt(self, transactional_id: str, first: str = "", second: str = "") -> LateEnd:
        """Begin an attempt: the next end of a transaction of this id is taken off the line."""
        self._taken, self._passed = None, []
        self._attempt = made = LateEnd(transactional_id, first, second)
        return made

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass both directions on, request by request."""
        to_reader, to_writer = await self.reach(writer)
        waiting: dict[int, tuple[Request, LateEnd | None]] = {}
        back = asyncio.ensure_future(self._answers(to_reader, writer, waiting))
        held: set[asyncio.Future[None]] = set()
        while (frame := await _frame(reader)) is not None:
            request = decode(frame[4:])
            attempt = self._of(request)
            if attempt is not None and request.api == END and attempt.stage is LateStage.ARMED:
                waiting[request.correlation] = request, attempt
                self._taken = _Taken(frame, request, to_writer)
                self._lost.append(writer)
                writer.transport.abort()  # the client sees its connection die; the broker does not
                attempt.come_to(LateStage.TAKEN)
                await back
                return
            waiting[request.correlation] = request, None
            if attempt is not None and self._is_second(request, attempt):
                held.add(asyncio.ensure_future(self._hold(frame, to_writer, attempt)))
                continue
            to_writer.write(frame)
        await asyncio.gather(*held)
        to_writer.close()
        await back

    def _of(self, request: Request) -> LateEnd | None:
        attempt = self._attempt
        return attempt if attempt is not None and request.transactional_id == attempt.transactional_id else None

    def _is_second(self, request: Request, attempt: LateEnd) -> bool:
        """Whether a request is the half of the next transaction that the late end is to come before."""
        if request.api != PRODUCE or attempt.stage not in (LateStage.REPEATED, LateStage.HALFWAY):
            return False
        return attempt.second in request.topics if attempt.second else bool(self._passed)

    async def _hold(self, frame: bytes, writer: asyncio.StreamWriter, attempt: LateEnd) -> None:
        """Keep a request until the attempt goes on; what is behind it on its connection may overtake it."""
        clock = asyncio.get_running_loop().time
        alone = clock() + ALONE_S
        while not (attempt.released or (attempt.stage is LateStage.REPEATED and clock() > alone)):  # noqa: ASYNC110  # a thread says when
            await asyncio.sleep(STEP_S)
        if attempt.dropped:
            writer.transport.abort()
        else:
            writer.write(frame)

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waiting: dict[int, tuple[Request, LateEnd | None]],
    ) -> None:
        """Pass answers on, and look at those that an attempt is about."""
        while (frame := await _frame(reader)) is not None:
            (correlation,) = struct.unpack_from(">i", frame, 4)
            request, late = waiting.pop(correlation, (Request(-1, 0, correlation), None))
            if late is not None:
                late.code = end_code(request, frame[4:])
                late.come_to(LateStage.LATE)
                continue
            writer.write(frame)
            attempt = self._of(request)
            if attempt is None:
                continue
            if request.api == END and attempt.stage is LateStage.TAKEN and end_code(request, frame[4:]) == 0:
                self._passed = []
                attempt.come_to(LateStage.REPEATED)
            elif request.api == PRODUCE and attempt.stage is LateStage.REPEATED:
                self._passed.extend(request.topics or ("?",))
                self._deliver(attempt)
        writer.close()

    def _deliver(self, attempt: LateEnd) -> None:
        """Send the late end where it was to go, once the first half of the next transaction is in the log."""
        taken = self._taken
        if taken is not None and (not attempt.first or attempt.first in self._passed):
            attempt.come_to(LateStage.HALFWAY)
            taken.writer.write(taken.frame)


async def _frame(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next request or answer, with its length before it; None at the end of the connection."""
    found = bytearray()
    wanted = 4
    while len(found) < wanted:
        try:
            found += await reader.readexactly(wanted - len(found))
        except (asyncio.IncompleteReadError, OSError):
            return None
        if len(found) == 4:
            wanted += struct.unpack(">i", found)[0]
    return bytes(found)
