"""A line on which each byte takes its time: by a clock of the test's, which nothing but the test moves."""

import asyncio
import queue
import random
import socket

from grete.testing.broker.settings import free_port
from tests.support.far_line import NEAR, Arrivals, Delay, FarLine

LIMIT_S = 60.0
HERE = "127.0.0.1"


class HandClock:
    """Stands still until the test moves it. ``asked``: the times that somebody has begun to wait for."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._waiting: list[tuple[float, asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.asked: queue.Queue[float] = queue.Queue()

    def now_s(self) -> float:
        """Return it."""
        return self._at_s

    async def until(self, at_s: float) -> None:
        """Wait until it was moved there."""
        reached = asyncio.Event()
        self._waiting.append((at_s, asyncio.get_running_loop(), reached))
        self.asked.put(at_s)
        await reached.wait()

    def move(self, at_s: float) -> None:
        """Let it be that late."""
        self._at_s = at_s
        for due_s, loop, reached in self._waiting:
            if due_s <= at_s:
                loop.call_soon_threadsafe(reached.set)


def test_what_is_sent_arrives_late_and_in_its_order() -> None:
    """Within the jitter, not before what was sent earlier, and a line that gets near again overtakes nothing."""
    delay = Delay(300, 100)
    arrivals = Arrivals(lambda: delay, random.Random(7))
    sent = [number / 100 for number in range(200)]
    came = [arrivals.at_s(sent_s) for sent_s in sent]
    assert came == sorted(came)
    assert all(0.2 <= came_s - sent_s <= 0.4 for came_s, sent_s in zip(came, sent, strict=True))
    assert len({round(came_s - sent_s, 3) for came_s, sent_s in zip(came, sent, strict=True)}) > 50
    again = Arrivals(lambda: Delay(300, 100), random.Random(7))
    assert [again.at_s(sent_s) for sent_s in sent] == came  # the seed repeats them
    delay = NEAR
    assert (arrivals.at_s(2.0), arrivals.at_s(9.0)) == (came[-1], 9.0)


def test_no_byte_is_there_before_its_time() -> None:
    """In both directions; the end of a connection comes behind the last byte; without a delay nothing waits."""
    delays, clock = {HERE: Delay(300)}, HandClock()
    with socket.create_server((HERE, 0)) as broker:
        port = free_port()
        with FarLine(port, broker.getsockname()[1], delays=delays, seed=1, clock=clock):
            client = socket.create_connection((HERE, port), LIMIT_S)
            there, _ = broker.accept()
            there.settimeout(LIMIT_S)
            client.sendall(b"question")
            assert clock.asked.get(timeout=LIMIT_S) == 0.3
            assert is_silent(there)  # it waits, so it was not sent
            clock.move(0.3)
            assert there.recv(100) == b"question"
            there.sendall(b"answer")
            assert clock.asked.get(timeout=LIMIT_S) == 0.6
            assert is_silent(client)
            clock.move(0.6)
            assert client.recv(100) == b"answer"
            delays.clear()
            client.sendall(b"near")
            assert there.recv(100) == b"near"
            delays[HERE] = Delay(100)
            client.close()
            assert clock.asked.get(timeout=LIMIT_S) == 0.7
            assert is_silent(there)
            clock.move(0.7)
            assert there.recv(100) == b""
            there.close()


def test_a_broker_that_is_not_there_is_not_there_behind_the_line_either() -> None:
    """The connection ends."""
    with (
        FarLine(free_port(), free_port(), delays={}, seed=1) as line,
        socket.create_connection((HERE, line.port), LIMIT_S) as client,
    ):
        assert client.recv(100) == b""


def is_silent(connection: socket.socket) -> bool:
    """Tell whether there is nothing to read, not even an end."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(LIMIT_S)
    return False
