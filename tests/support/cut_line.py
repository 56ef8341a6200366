"""A TCP proxy in front of a broker, which a test cuts off: all bytes are lost in silence, and no connection closes.

So it looks from a machine whose network is gone: nothing is refused, nothing is reset, nothing answers. A connection
that was open when the line was cut stays lost, as when its owner and the broker have both given up sending again.
"""

import asyncio
import threading
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16


class CutLine:
    """Listens on ``port`` and passes what comes to a port of this host, within a ``with`` block."""

    def __init__(self, port: int, to: int) -> None:
        self.port, self._to = port, to
        self._is_cut = False
        self._cuts = 0  # so far: a connection from before the last one is lost
        self._loop = asyncio.new_event_loop()
        self._opened: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cut line")

    def cut(self) -> None:
        """Lose every byte from now on."""
        self._is_cut, self._cuts = True, self._cuts + 1

    def heal(self) -> None:
        """Let new connections through."""
        self._is_cut = False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._opened.add(writer)
        if self._is_cut:
            await self._lose(reader)
            return
        cuts = self._cuts
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._opened.add(to_writer)
        await asyncio.gather(self._pass(reader, to_writer, cuts), self._pass(to_reader, writer, cuts))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cuts: int) -> None:
        """Pass bytes on; the end of a connection as well, unless it is lost."""
        while data := await _read(reader):
            if self._cuts != cuts:
                await self._lose(reader)
                return
            writer.write(data)
        if self._cuts == cuts:
            writer.close()

    async def _lose(self, reader: asyncio.StreamReader) -> None:
        while await _read(reader):
            pass

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        for writer in self._opened:
            writer.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return what has come, b"" at the end of the connection, however it ended."""
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        return b""
