"""Asking Kafka: which topics there are, and where a partition begins and ends.

A consumer of its own, which reads nothing: a broker answers the requests of one connection in turn, so a question on
the reader's would wait until its fetch has got something.
"""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from framework.errors import FrameworkError
from framework.logs.kafka.errors import Troubles, failed, failure
from protocol.ids import TopicPartition

ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
SLICE_S = 0.5  # of waiting for the broker: signal handlers run in between
RETRIED = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._DESTROY_BROKER,
    KafkaError._WAIT_COORD,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
}

SPREAD_S_MAX = 30.0  # until every broker knows a topic: a busy one took 15 s
BEHIND_S = 0.05  # between two questions to brokers that do not know a topic yet

_UNKNOWN = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}


class MetadataClient:
    """Asks until a broker answers. Raises TransientError if none does for a minute."""

    def __init__(self, config: dict[str, Any], troubles: Troubles, bootstrap: str) -> None:
        """Connect in the background."""
        self._consumer: Consumer = troubles.made(Consumer, config)
        self._troubles = troubles
        self._bootstrap = bootstrap
        self._found: set[str] = set()  # topics that were there when somebody asked

    def answers(self, seconds: float) -> bool:
        """Return whether a broker has answered in time."""
        try:
            self._consumer.list_topics("__consumer_offsets", timeout=seconds)  # of one topic: a cluster may have many
        except KafkaException:
            self._consumer.poll(0)  # for its errors
            return False
        return True

    def topics(self) -> dict[str, int]:
        """Return the number of partitions by topic, without Kafka's own topics."""
        listed = self._ask(lambda seconds: self._consumer.list_topics(timeout=seconds), "listing topics")
        return {name: len(topic.partitions) for name, topic in listed.topics.items() if not name.startswith("__")}

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, or None if there is none. Asking does not make it."""
        listed = self._ask(lambda seconds: self._consumer.list_topics(topic, timeout=seconds), f"looking for {topic}")
        found = listed.topics[topic]
        if found.error is None:
            self._found.add(topic)
            return len(found.partitions)
        if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION):
            return None
        raise failure(found.error, f"looking for topic {topic}", f"Describe (part of Read and Write) on topic {topic}")

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (start, end) as of now; the end as a reader of committed messages sees it."""
        at, topic = KafkaPartition(*partition), partition.topic
        spread = time.monotonic() + SPREAD_S_MAX

        def question(seconds: float) -> tuple[int, int] | None:
            try:
                return self._consumer.get_watermark_offsets(at, timeout=seconds)
            except KafkaException as error:
                if error.args[0].code() not in _UNKNOWN:
                    raise
                # the client forgets topics when it loses its last broker, and a broker may not know a new one yet
                if self.partitions(topic) is None and (topic not in self._found or time.monotonic() > spread):
                    raise
                return None

        found: tuple[int, int] = self._ask(
            question,
            f"looking for the bounds of {partition}",
            f"Describe (part of Read and Write) on topic {topic}",
        )
        return found

    def no_answer(self) -> FrameworkError:
        """Return the error for a broker that has not answered for long."""
        return self._troubles.no_answer(self._bootstrap, ANSWER_S_MAX)

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _ask(self, question: Callable[[float], Any], doing: str, access: str = "") -> Any:
        """Return the broker's answer; ask again while it is away."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            asked = time.monotonic()
            try:
                answer = question(SLICE_S)
                if answer is not None:
                    self._troubles.refused = None  # one broker's trouble, or over
                    return answer
            except KafkaException as error:
                if error.args[0].code() not in RETRIED:
                    raise failed(error, doing, access) from error
            if self._troubles.refused is not None or time.monotonic() > deadline:
                raise self.no_answer()
            time.sleep(max(0.0, 0.05 - (time.monotonic() - asked)))  # some errors come back at once
