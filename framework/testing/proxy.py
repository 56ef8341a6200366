"""A TCP proxy in front of a broker, in a thread of its own: what it does to the bytes is said by its subclasses."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

CHUNK_BYTES = 1 << 16  # of one read: what a socket holds, about


class Proxy(ABC):
    """Listens on ``port`` of ``host`` and passes what comes to a port of this host, within a ``with`` block."""

    def __init__(self, port: int, to: int, host: str = "127.0.0.1", others: Mapping[int, int] | None = None) -> None:
        """``others``: more ports to listen at, and where each leads, as to the other brokers of a cluster."""
        self.port, self._host = port, host
        self._ways = {port: to} | dict(others or {})
        self._loop = asyncio.new_event_loop()
        self._opened: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=type(self).__name__)

    @abstractmethod
    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection that has come, to its end."""

    async def reach(self, client: asyncio.StreamWriter) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the broker that a client has asked for by its port."""
        to = self._ways[client.get_extra_info("sockname")[1]]
        reader, writer = await asyncio.open_connection("127.0.0.1", to)
        self._opened.add(writer)
        return reader, writer

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._opened.add(writer)
        try:
            await self.connected(reader, writer)
        except OSError:  # nothing listens there: so it looks without the proxy, too
            writer.close()
        except asyncio.CancelledError:  # the proxy ends; a cancelled handler is an error to asyncio
            writer.transport.abort()

    def __enter__(self) -> Self:
        self._thread.start()
        self._servers = [
            asyncio.run_coroutine_threadsafe(
                asyncio.start_server(self._connected, self._host, port), self._loop
            ).result()
            for port in self._ways
        ]
        return self

    def __exit__(self, *_: object) -> None:
        """Close all."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # connections that have just come begin: only then are they closed when cancelled
        for writer in self._opened:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def read(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that have come, b"" at the end of the connection, however it ended."""
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        return b""
