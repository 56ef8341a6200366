"""A log under test: how to connect to it, and what its clock says."""

import time
from collections.abc import Callable, Iterator

import pytest

from grete.ports import ExternalRecord, Log
from grete.protocol.ids import TopicPartition
from grete.testing.contracts.clauses import Contract

A0, A1, OUT = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("out", 0)


class Recent:
    """Equal to any time within a minute of now: the clock of most logs cannot be set."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and abs(other - time.time() * 1000) < 60_000

    __hash__ = None  # type: ignore[assignment]  # equal to many


class LogWorld:
    """One empty log: ``connect`` returns another connection to it, as another process would have it.

    ``sets_clock``: the log's clock says ``now_ms``, which the contract sets. Else it is the clock of the machine.
    ``begin``: append a record in a transaction of a stranger's; return what commits that. None: the log has none.
    """

    def __init__(
        self,
        connect: Callable[[], Log],
        *,
        sets_clock: bool = False,
        begin: Callable[[ExternalRecord], Callable[[], None]] | None = None,
    ) -> None:
        self.now_ms = 1_000
        self.time: object = self.now_ms if sets_clock else Recent()
        self.sets_clock = sets_clock
        self.begin = begin
        self._connect = connect
        self._opened: list[Log] = []

    def open(self) -> Log:
        """Return another connection to the log. It is closed with the world."""
        self._opened.append(self._connect())
        return self._opened[-1]

    def close(self) -> None:
        """Close all connections."""
        for log in self._opened:
            log.close()


class OnLogWorld(Contract):
    """Tests of a log, each on an empty one."""

    port = "log"

    @pytest.fixture
    def world(self) -> LogWorld:
        """Return an empty log. Your class overrides this fixture."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `world` that returns a LogWorld")

    @pytest.fixture
    def log(self, world: LogWorld) -> Iterator[Log]:
        """One connection to the log, which has the topics ``a`` (two partitions) and ``out`` (one)."""
        log = world.open()
        log.create_topic("a", 2)
        log.create_topic("out", 1, plain=True)
        yield log
        world.close()


def values(log: Log, partition: TopicPartition, offset: int = 0) -> list[bytes | None]:
    """Return all values from ``offset`` on, read in small pieces."""
    found: list[bytes | None] = []
    while rows := log.read(partition, offset, 200):
        found += [row.value for row in rows]
        offset = rows[-1].offset + 1
    return found


def shown(log: Log, partition: TopicPartition, count: int) -> list[bytes | None]:
    """Return all values when there are that many: Kafka says that a transaction is committed before all can see it."""
    while len(found := values(log, partition)) < count:
        log.wait(100)
    return found


def record(value: bytes) -> ExternalRecord:
    """Return a plain record for OUT."""
    return ExternalRecord(OUT, b"k", value, 7)
