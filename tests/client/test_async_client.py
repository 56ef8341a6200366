"""A client of asyncio beside a running job: its streams, its reads, and what it refuses."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import grete
from grete import AsyncClient, Job, Store, int64, utf8
from grete.api.tasks.mode import Mode
from grete.clients.async_client import STREAMS_MAX
from grete.errors import ConfigError, TransientError
from grete.testing.broker import Broker
from tests.client.test_client import NUMBERS_SENT, WAYS, running, summing, topic_of
from tests.worker.workers import LIMIT_S


async def check(client: AsyncClient, job: Job) -> None:
    """Send numbers and read the outputs meanwhile, with waits that are cancelled: each total of each key comes once."""
    totals, sums = topic_of(job, "totals"), job.stages[0].stores["sums"]
    stream, found = client.outputs(totals), list[tuple[str, int]]()

    async def read() -> None:
        while len(found) < NUMBERS_SENT:
            with suppress(TimeoutError):  # a web app gives up a wait, and asks again
                record = await asyncio.wait_for(anext(stream), 0.002)
                found.append((record.key, record.value))

    reading = asyncio.create_task(read())
    for number in range(NUMBERS_SENT):
        await client.send(topic_of(job, "numbers"), f"k{number % 5}", 1)
    assert await client.flush(LIMIT_S)
    await asyncio.wait_for(reading, LIMIT_S)
    assert Counter(found) == {(f"k{key}", total): 1 for key in range(5) for total in range(1, NUMBERS_SENT // 5 + 1)}
    again = client.outputs(totals, after=stream.after, timeout_s=0.0)
    assert [record async for record in again] == []
    assert len([record async for record in client.outputs(totals, timeout_s=0.5)]) == NUMBERS_SENT
    await settled(client, sums)
    assert [await client.get(sums, key, 7) for key in ("k1", "none")] == [NUMBERS_SENT // 5, 7]
    assert sorted(await client.range(sums, "k1", "k4")) == [(f"k{key}", NUMBERS_SENT // 5) for key in (1, 2, 3)]
    assert await client.prefix(sums, "k2") == [("k2", NUMBERS_SENT // 5)]
    assert len(await client.range(sums, limit=2)) == 2


async def settled(client: AsyncClient, sums: Store[str, int]) -> None:
    """Wait until the commits of all outputs are in the store: an output may be seen before."""
    async with asyncio.timeout(LIMIT_S):
        while sum(value for _, value in await client.range(sums)) < NUMBERS_SENT:  # noqa: ASYNC110  # of other processes
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("mode", "kill", "settings"), WAYS)
def test_each_output_is_awaited_once(tmp_path: Path, mode: Mode, kill: bool, settings: dict[str, str]) -> None:
    """Workers die meanwhile, and the one who waits gives up and asks again."""
    job = summing("a", mode)

    async def use(place: Path) -> None:
        async with AsyncClient(job, directory=place) as client:
            await check(client, job)

    with running(tmp_path, job, mode, kill=kill, **settings) as place:
        asyncio.run(use(place))


@pytest.mark.kafka
def test_the_same_is_awaited_on_kafka(kafka_broker: Broker, tmp_path: Path) -> None:
    """On a broker, readers see what is committed."""
    job = summing(f"a{os.urandom(6).hex()}", "aligned")
    log = f"kafka://{kafka_broker.bootstrap}"

    async def use(place: Path) -> None:
        async with grete.async_client(job, log=log, directory=place) as client:
            await check(client, job)

    with running(tmp_path, job, "aligned", log) as place:
        asyncio.run(use(place))


def test_a_stream_ends_when_it_is_stopped_or_its_client_is_closed(tmp_path: Path) -> None:
    """The one who waits for a record is told at once; a client that is closed says so."""
    job = summing("stops", "aligned")
    totals = topic_of(job, "totals")

    async def use(place: Path) -> None:
        client = AsyncClient(job, directory=place)
        streams = [client.outputs(totals) for _ in range(2)]
        waiting = [asyncio.create_task(_all(stream)) for stream in streams]
        await client.send(topic_of(job, "numbers"), "k", 1)
        while not all(stream.after for stream in streams):  # noqa: ASYNC110  # of other processes
            await asyncio.sleep(0.01)
        streams[0].stop()
        assert await asyncio.wait_for(waiting[0], LIMIT_S) == [1]
        await client.close()
        assert await asyncio.wait_for(waiting[1], LIMIT_S) == [1]
        await client.close()
        with pytest.raises(ConfigError, match="this client of job 'stops' is closed: make another one"):
            await client.get(job.stages[0].stores["sums"], "k")

    with running(tmp_path, job, "aligned") as place:
        asyncio.run(use(place))


async def _all(stream: Any) -> list[int]:
    return [record.value async for record in stream]


def test_another_loop_and_no_loop_are_refused(tmp_path: Path) -> None:
    """A client belongs to the loop that uses it first."""
    job = summing("loops", "aligned")
    client, sums = AsyncClient(job, directory=tmp_path / "none"), job.stages[0].stores["sums"]
    with pytest.raises(ConfigError, match="no event loop runs here, which"):
        client.outputs(topic_of(job, "totals"))

    async def get() -> None:
        await client.get(sums, "k")

    def ends(do: Callable[[], Awaitable[None]]) -> str:
        with pytest.raises(ConfigError) as refused:
            asyncio.run(do())  # type: ignore[arg-type]  # a coroutine
        return str(refused.value)

    assert "there is no such log" in ends(get)
    assert "this client of job 'loops' is of another event loop: make a client in each loop" in ends(get)


def test_errors_and_bounds_reach_the_one_who_awaits(tmp_path: Path) -> None:
    """An error ends its stream; there are not too many streams."""
    job = summing("bounds", "aligned")
    totals = topic_of(job, "totals")

    async def use() -> None:
        async with AsyncClient(job, directory=tmp_path / "none") as client:
            stream = client.outputs(totals)
            with pytest.raises(ConfigError, match="there is no such log"):
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            several = [client.outputs(totals) for _ in range(STREAMS_MAX)]
            with pytest.raises(TransientError, match=f"this client has {STREAMS_MAX} streams of outputs: stop one"):
                client.outputs(totals)
            several[0].stop()
            client.outputs(totals)

    asyncio.run(use())


def test_calls_are_made_in_threads_of_the_client(tmp_path: Path) -> None:
    """The loop goes on while a log or a disk is slow: what the job's serde does is not done in its thread."""
    threads = set[int]()

    class Noting:
        """A serde that notes in which thread it works."""

        name = "utf8"

        def encode(self, value: str) -> bytes:
            """Note it."""
            threads.add(threading.get_ident())
            return utf8.encode(value)

        def decode(self, data: bytes) -> str:
            """Return the text."""
            return utf8.decode(data)

    job = summing("threads", "aligned")

    async def use(place: Path) -> None:
        async with AsyncClient(job, directory=place) as client:
            await client.send(grete.Topic("threads-numbers", key=Noting(), value=int64), "k", 1)
            assert await client.flush(LIMIT_S)

    with running(tmp_path, job, "aligned") as place:
        asyncio.run(use(place))
    assert threads
    assert threading.get_ident() not in threads
