"""A connection of the server: there are not too many, and none waits for ever for its other end."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from grete.worker.logs.open_files import allowed

CONNECTIONS_MAX = 256  # of browsers, scrapers and probes; one more is ended at once
FILES_SHARE = 4  # connections take at most the fourth part of this process's files: workers need them, too
ACCEPTED_MAX = 32  # in one turn of the loop: asyncio takes them all before the first one can be refused
REQUEST_S_MAX = 10.0  # for the head of a request, from the first byte that it may have
ANSWER_S_MAX = 30.0  # for a reader that takes nothing


class BoundedConnection(H11Protocol):
    """Uvicorn bounds only how long a connection rests between two requests."""

    _due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin, or end at once if there are too many."""
        if len(self.connections) >= min(CONNECTIONS_MAX, allowed() // FILES_SHARE):
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._ends_in(REQUEST_S_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._go_on()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; the first part of the next one begins a new time."""
        if self._due is None and not self._answering:
            self._ends_in(REQUEST_S_MAX)
        super().data_received(data)
        if self._answering and not self.flow.write_paused:
            self._go_on()

    def pause_writing(self) -> None:
        """Wait for the reader, but not for ever."""
        self._ends_in(ANSWER_S_MAX)
        super().pause_writing()

    def resume_writing(self) -> None:
        """The reader has taken something."""
        self._go_on()
        super().resume_writing()

    @property
    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _ends_in(self, seconds: float) -> None:
        self._go_on()
        self._due = asyncio.get_running_loop().call_later(seconds, self.transport.abort)

    def _go_on(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
