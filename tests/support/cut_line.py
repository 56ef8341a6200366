"""A TCP proxy in front of a broker, which a test cuts off: all bytes are lost in silence, and no connection closes.

So it looks from a machine whose network is gone: nothing is refused, nothing is reset, nothing answers. A connection
that was open when the line was cut stays lost, as when its owner and the broker have both given up sending again.
"""

import asyncio

from grete.testing.proxy import Proxy, read


class CutLine(Proxy):
    """Passes what comes, unless it is cut."""

    _is_cut = False
    _cuts = 0  # so far: a connection from before the last one is lost

    def cut(self) -> None:
        """Lose every byte from now on."""
        self._is_cut, self._cuts = True, self._cuts + 1

    def heal(self) -> None:
        """Let new connections through."""
        self._is_cut = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass both directions on, or lose what comes."""
        if self._is_cut:
            await self._lose(reader)
            return
        cuts = self._cuts
        to_reader, to_writer = await self.reach(writer)
        await asyncio.gather(self._pass(reader, to_writer, cuts), self._pass(to_reader, writer, cuts))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cuts: int) -> None:
        """Pass bytes on; the end of a connection as well, unless it is lost."""
        while data := await read(reader):
            if self._cuts != cuts:
                await self._lose(reader)
                return
            writer.write(data)
        if self._cuts == cuts:
            writer.close()

    async def _lose(self, reader: asyncio.StreamReader) -> None:
        while await read(reader):
            pass
