"""A TCP proxy in front of a broker, by which it is far for some of those who come: every byte takes its time.

The delay is of each direction, and that of a peer's address: it may begin and end while connections are open. A
connection itself is made without one.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from grete.testing.proxy import Proxy, read

CHUNKS_MAX = 1_000  # of a connection that are on their way: who sends more waits, as for a window of TCP


class Delay(NamedTuple):
    """The delay of a byte: ``ms``, up to ``jitter_ms`` less or more."""

    ms: float = 0.0
    jitter_ms: float = 0.0


NEAR = Delay()


class Clock(Protocol):
    """A clock that can be waited for."""

    def now_s(self) -> float:
        """Return it."""

    async def until(self, at_s: float) -> None:
        """Wait until it is that late."""


class LoopClock:
    """The time of the event loop."""

    def now_s(self) -> float:
        """Return it."""
        return asyncio.get_running_loop().time()

    async def until(self, at_s: float) -> None:
        """Sleep."""
        await asyncio.sleep(at_s - self.now_s())


class Arrivals:
    """Arrival times of one direction of a connection: after the send, and never before an earlier send's arrival."""

    def __init__(self, delay: Callable[[], Delay], rng: random.Random) -> None:
        """``delay`` returns that of now."""
        self._delay, self._rng = delay, rng
        self._last_s = 0.0

    def at_s(self, sent_s: float) -> float:
        """Return the time at which a message that is sent then arrives."""
        ms, jitter_ms = self._delay()
        self._last_s = max(self._last_s, sent_s + (ms + self._rng.uniform(-jitter_ms, jitter_ms)) / 1000)
        return self._last_s


class FarLine(Proxy):
    """``delays``: by the address of the one who comes; others are near. Changes of it hold for the next bytes."""

    def __init__(
        self,
        port: int,
        to: int,
        host: str = "127.0.0.1",
        *,
        delays: Mapping[str, Delay],
        seed: int,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(port, to, host)
        self._delays, self._rng, self._clock = delays, random.Random(seed), clock or LoopClock()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass both directions on, each byte when it is due."""
        peer: str = writer.get_extra_info("peername")[0]
        to_reader, to_writer = await self.reach(writer)
        await asyncio.gather(self._pass(peer, reader, to_writer), self._pass(peer, to_reader, writer))

    async def _pass(self, peer: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrivals = Arrivals(lambda: self._delays.get(peer, NEAR), random.Random(self._rng.random()))
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_MAX)
        arriving = asyncio.ensure_future(self._arrive(under_way, writer))
        data = b"?"
        while data and not arriving.done():
            data = await read(reader)
            await under_way.put((arrivals.at_s(self._clock.now_s()), data))
        await arriving

    async def _arrive(self, under_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        """Write what has come when it is due, and close where the sender did; lose it if the other side is gone."""
        data = b"?"
        while data:
            at_s, data = await under_way.get()
            if at_s > self._clock.now_s():
                await self._clock.until(at_s)
            writer.write(data)
            with suppress(OSError):
                await writer.drain()
        writer.close()
