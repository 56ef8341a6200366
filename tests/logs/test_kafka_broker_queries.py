"""A broker that answers later than a process may be deaf to signals is asked all the same."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from grete.errors import LogAway
from grete.logs.kafka.client.metadata_client import ANSWER_S, SLICE_S, SLICES, MetadataClient
from grete.logs.kafka.write import tail
from grete.logs.patience import ANSWER_S_MAX, CONNECT_S_MAX, Patience
from grete.protocol.ids import TopicPartition

LIMIT_S = 60.0
LOOKS_MAX = 20  # of half a second at most


class FarBroker:
    """A consumer whose broker answers to those who wait for as long as it takes; and not before ``answers`` is set.

    The real one lets one thread in at a time and keeps others waiting, whatever they ask for: here that fails.
    """

    def __init__(self) -> None:
        self.answers, self.closed = threading.Event(), threading.Event()
        self.waited: list[float] = []
        self._gate = threading.Lock()

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Return that the topic has two partitions."""
        with self._alone():
            self.waited.append(timeout)
            if timeout <= SLICE_S:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            assert self.answers.wait(LIMIT_S)
            return SimpleNamespace(topics={topic: SimpleNamespace(partitions=[0, 1], error=None)})

    def poll(self, _timeout: float) -> None:
        """Return nothing: there are no errors."""
        with self._alone():
            pass

    @contextmanager
    def _alone(self) -> Iterator[None]:
        assert self._gate.acquire(blocking=False), "another thread is in the client"
        try:
            yield
        finally:
            self._gate.release()

    def close(self) -> None:
        """Note it."""
        self.closed.set()


class Troubles:
    """Those of a client that is given; none."""

    refused, last = None, ""

    def __init__(self, client: FarBroker) -> None:
        self._client = client

    def made(self, _kind: object, _config: object) -> FarBroker:
        """Return the client."""
        return self._client

    def no_answer(self, bootstrap: str, _seconds: float, *, diagnose: bool) -> LogAway:
        """Return the error."""
        return LogAway(f"{bootstrap} {diagnose}")


def asking(broker: FarBroker, patience: Patience) -> MetadataClient:
    """Return a client of the broker."""
    return MetadataClient({}, Troubles(broker), "far:9092", patience)  # type: ignore[arg-type]  # a client is given


def test_an_answer_that_takes_long_is_taken() -> None:
    """A request that a client gives up is never answered: to ask shortly again and again would find no broker."""
    broker, patience = FarBroker(), Patience()
    patience.meanwhile = broker.answers.set  # the process goes on while it waits: signal handlers run
    client = asking(broker, patience)
    assert client.partitions("words") == 2
    assert broker.waited == [SLICE_S, ANSWER_S]
    assert not patience.waiting
    client.close()
    assert broker.closed.is_set()


def test_a_question_that_was_given_up_holds_nothing_up() -> None:
    """Its owner goes on and closes the client, which stays open until the question is over."""
    broker, patience = FarBroker(), Patience()
    client = asking(broker, patience)
    patience.meanwhile = lambda: patience.end_within(0) if len(broker.waited) == 2 else None
    with pytest.raises(LogAway, match="far:9092"):
        client.partitions("words")
    client.close()
    assert not broker.closed.is_set()
    broker.answers.set()
    assert broker.closed.wait(LIMIT_S)


def test_an_address_that_never_answered_is_waited_for_as_a_connection_is() -> None:
    """It may be wrong. A broker that has answered once is away, and is waited for longer."""
    broker, now_s = FarBroker(), 0.0

    def later() -> None:
        nonlocal now_s
        now_s += CONNECT_S_MAX

    patience = Patience(clock_s=lambda: now_s)
    patience.meanwhile = later
    client = asking(broker, patience)
    with pytest.raises(LogAway, match="far:9092"):
        client.partitions("words")
    assert now_s == 2 * CONNECT_S_MAX
    broker.answers.set()
    assert client.partitions("words") == 2
    broker.answers.clear()
    began_s = now_s
    with pytest.raises(LogAway, match="far:9092"):
        client.partitions("words")
    assert now_s > began_s + ANSWER_S_MAX
    broker.answers.set()
    client.close()


def test_a_connection_waits_for_a_broker_that_is_far() -> None:
    """One question is asked, however often a caller looks for its answer; a closed client waits for it, too."""
    broker = FarBroker()
    client = asking(broker, Patience())
    assert not client.answers()
    assert not client.answers()
    broker.answers.set()
    while not client.answers():
        pass
    assert broker.waited == [SLICE_S] * SLICES + [ANSWER_S]
    broker.answers.clear()
    assert not client.answers()
    client.close()
    assert not broker.closed.is_set()
    broker.answers.set()
    assert broker.closed.wait(LIMIT_S)


class DeadLeader(FarBroker):
    """A partition's dead leader. The client asks it where the partition ends until it is asked who leads the topic."""

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Find the leader out."""
        self.answers.set()
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=[0], error=None)})

    def get_watermark_offsets(self, _partition: object, timeout: float, cached: bool = False) -> tuple[int, int]:
        """Return the bounds, once the leader is another one."""
        assert not cached
        if not self.answers.is_set():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, 7


def test_a_leader_that_is_dead_is_not_asked_for_ever() -> None:
    """A client that reads nothing keeps its leader: who asks for bounds, or for a tail, lets it find another one."""
    at, looks = TopicPartition("words", 0), itertools.count()

    def go_on() -> None:
        assert next(looks) < LOOKS_MAX

    patience = Patience()
    patience.meanwhile = go_on
    client = asking(DeadLeader(), patience)
    assert client.bounds(at) == (0, 7)
    client.close()
    assert tail._end(DeadLeader(), at, 7, go_on) == 7  # type: ignore[arg-type]  # a client is given


def test_a_probe_and_a_question_wait_for_each_other() -> None:
    """One thread is in the client at a time: the question waits in slices, so that signal handlers run."""
    broker, patience = FarBroker(), Patience()
    client = asking(broker, patience)
    assert not client.answers()
    patience.meanwhile = broker.answers.set
    assert client.partitions("words") == 2
    assert client.answers()
    client.close()
