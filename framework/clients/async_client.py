"""A client for programs of asyncio, such as web apps: its calls are awaited, and no loop waits for a log or a disk."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from grete.api.jobs.job import Job
from grete.api.record import Record
from grete.api.registry.schema_registry import RecordHeaders
from grete.api.store import Store
from grete.api.topics.topic import Topic
from grete.clients.client import Client
from grete.errors import ConfigError, TransientError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

WAITING_MAX = 1_000  # calls that are answered or wait; one more is refused
ROWS_MAX = 1_000  # entries of a scan, unless it names another limit
STREAMS_MAX = 64  # of outputs, each of which asks again and again
REST_S = 0.05  # of a stream for which there was no record
STEP_RECORDS = 200  # of an output that are read at once: other calls take turns with them


class AsyncClient:
    """A ``Client`` whose calls are awaited. For one event loop, the first that uses it, and refused to others.

    One thread reads and another one writes, call after call: a call that takes long holds up those behind it.
    Cancelling a call does not end what its thread does.
    """

    def __init__(
        self, job: Job, *, log: str = "embedded", kafka_config: Path | None = None, directory: Path | None = None
    ) -> None:
        """Take what ``Client`` takes, and open nothing yet. Raises ConfigError: a log of another kind."""
        self.job = job
        self._client = Client(job, log=log, kafka_config=kafka_config, directory=directory)
        self._reads = _Thread("grete-client-reads")
        self._writes = _Thread("grete-client-writes")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._streams: set[OutputStream[Any, Any]] = set()
        self._closed = False

    async def send(
        self,
        topic: Topic[K, V],
        key: K | None,
        value: V | None,
        *,
        timestamp: int | None = None,
        headers: RecordHeaders = (),
    ) -> None:
        """Write a record to a topic that the job reads: it is in a file when this returns. Raises as ``Client.send``.

        A call that is cancelled may have written its record.
        """
        send = partial(self._client.send, topic, key, value, timestamp=timestamp, headers=headers)
        await self._thread(self._writes).call(send)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until the log has all that was sent, or the time is over; return whether it has."""
        return await self._thread(self._writes).call(partial(self._client.flush, timeout_s))

    async def get(self, store: Store[K, V], key: K, default: Any = None) -> Any:
        """Return the committed value of a key, or ``default``. Raises as ``Client.get``."""
        return await self._thread(self._reads).call(partial(self._client.get, store, key, default))

    async def range(
        self, store: Store[K, V], start: K | None = None, end: K | None = None, *, limit: int = ROWS_MAX
    ) -> list[tuple[K, V]]:
        """Return committed (key, value), start <= key < end, ``limit`` at most, in key order within a partition."""
        found = partial(self._client.range, store, start, end)
        return await self._thread(self._reads).call(lambda: list(islice(found(), limit)))

    async def prefix(
        self, store: Store[K, V], prefix: K | tuple[Any, ...], *, limit: int = ROWS_MAX
    ) -> list[tuple[K, V]]:
        """Return committed (key, value) whose encoded key starts with the encoded ``prefix``, ``limit`` at most."""
        found = partial(self._client.prefix, store, prefix)
        return await self._thread(self._reads).call(lambda: list(islice(found(), limit)))

    def outputs(
        self, topic: Topic[K, V], *, after: Mapping[int, int] | None = None, timeout_s: float | None = None
    ) -> "OutputStream[K, V]":
        """Return the records of a topic that the job writes for others, those to come included: ``async for``.

        ``after``: as of ``Client.outputs``. ``timeout_s``: the stream ends when none has come for so long, None: never.
        Raises ConfigError, as all calls of the client; TransientError: it has STREAMS_MAX streams.
        """
        thread = self._thread(self._reads)
        if len(self._streams) >= STREAMS_MAX:
            raise TransientError(
                f"this client has {STREAMS_MAX} streams of outputs: stop one, or share one among readers"
            )
        stream = OutputStream(thread, partial(self._client.steps, topic, after=after or {}), after or {}, timeout_s)
        stream.ended = partial(self._streams.discard, stream)
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """End all streams, wait for the log, but not for long, as ``Writer.close`` does, and disconnect."""
        if self._closed:
            return
        reads, writes = self._thread(self._reads), self._thread(self._writes)
        self._closed = True
        for stream in [*self._streams]:
            stream.stop()
        await writes.last(lambda: None)
        await reads.last(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    def _thread(self, thread: "_Thread") -> "_Thread":
        """Return a thread to call. Raises ConfigError: the client is closed, or of another event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise ConfigError("no event loop runs here, which grete.async_client is for: use grete.client") from error
        if self._closed:
            raise ConfigError(f"this client of job {self.job.name!r} is closed: make another one (grete.async_client)")
        if self._loop is None:
            self._loop = loop
        if self._loop is not loop:
            raise ConfigError(
                f"this client of job {self.job.name!r} is of another event loop: make a client in each loop "
                "(grete.async_client), as a web app does where it starts, and close it there"
            )
        return thread


class OutputStream(Generic[K, V]):
    """Records of an output as they come, each once. ``after``: partition → offset of the last one that was given.

    It ends when ``stop`` is called, when its client is closed, or after its time-out without a record. A task that is
    cancelled while it waits loses no record: the next one to ask gets it.
    """

    def __init__(
        self,
        thread: "_Thread",
        begin: Callable[[], Iterator[Record[K, V] | None]],
        after: Mapping[int, int],
        timeout_s: float | None,
    ) -> None:
        """``begin`` returns the records; None among them: no more for now."""
        self.after = {**after}
        self.ended: Callable[[], None] = lambda: None
        self._thread, self._begin, self._timeout_s = thread, begin, timeout_s
        self._steps: Iterator[Record[K, V] | None] | None = None
        self._found: deque[Record[K, V]] = deque()
        self._ahead: asyncio.Task[list[Record[K, V]]] | None = None  # what is being read
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End the stream, also for who waits for its next record."""
        self._stopped.set()
        if self._ahead is not None:
            self._ahead.add_done_callback(_forget)
        self.ended()

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self

    async def __anext__(self) -> Record[K, V]:
        """Return the next record, when it is there. Raises StopAsyncIteration; else as ``Client.outputs``."""
        loop = asyncio.get_running_loop()
        until_s = None if self._timeout_s is None else loop.time() + self._timeout_s
        while not self._found:
            if self._stopped.is_set() or (until_s is not None and loop.time() >= until_s):
                self.stop()
                raise StopAsyncIteration
            if self._ahead is None:
                self._ahead = asyncio.ensure_future(self._thread.call(self._step))
            try:
                found = await asyncio.shield(self._ahead)
            except asyncio.CancelledError:
                raise
            except BaseException:
                self._ahead = None
                self.stop()
                raise
            self._ahead = None
            self._found += found
            if not found:
                await self._rest(REST_S)
        record = self._found.popleft()
        self.after[record.partition] = record.offset
        return record

    async def _rest(self, seconds: float) -> None:
        """Wait, or until the stream is stopped."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    def _step(self) -> list[Record[K, V]]:
        """Read some records, in the thread; none: there are no more now."""
        if self._steps is None:
            self._steps = self._begin()
        found = islice(takewhile(lambda record: record is not None, self._steps), STEP_RECORDS)
        return [record for record in found if record is not None]


def _forget(read: asyncio.Task[Any]) -> None:
    """Take what a stream that has ended had still asked for: else asyncio tells of an error that is of no use."""
    if not read.cancelled():
        read.exception()


class _Thread:
    """A thread that makes calls, one after another."""

    def __init__(self, name: str) -> None:
        self._pool, self._waiting = ThreadPoolExecutor(1, name), 0

    async def call(self, do: Callable[[], T]) -> T:
        """Return the result of a call. Raises as the call does; TransientError: too many wait."""
        if self._waiting >= WAITING_MAX:
            raise TransientError(f"{WAITING_MAX} calls of this client wait already: ask again in a moment, or less")
        self._waiting += 1
        done = asyncio.get_running_loop().run_in_executor(self._pool, do)
        done.add_done_callback(self._made)
        return await done

    async def last(self, do: Callable[[], None]) -> None:
        """Make a last call, and end the thread."""
        await asyncio.get_running_loop().run_in_executor(self._pool, do)
        self._pool.shutdown(wait=True)

    def _made(self, _: object) -> None:
        self._waiting -= 1
