"""Topics of a job on Kafka: made, watched, trimmed."""

import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewPartitions, NewTopic

from grete.errors import Halted, LogAway
from grete.halts import HaltCode
from grete.logs.kafka.client.config import COORDINATOR_S_MAX
from grete.logs.kafka.client.errors import AWAY, Troubles, failed, logger
from grete.logs.kafka.client.metadata_client import SLICE_S
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.kafka.topic_settings import ANSWER_S_MAX, TopicSettings
from grete.logs.patience import Patience
from grete.logs.topic_identity import CREATED_AGAIN, more_partitions
from grete.protocol.ids import TopicPartition

WATCH_S = 10.0  # topics are looked at again this often: one that was created again must not be read for long

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a topic on a broker older than ids

_PASSING = AWAY | {KafkaError._NOENT}  # the client knows no leader of the topic: brokers were away, or it is gone
_GONE = {KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART}  # or a broker that has just started does not know it yet


class Topics:
    """Topic operations by an admin client. Raises ConfigError if the broker refuses, LogAway if none answers."""

    def __init__(self, config: ClientConfig, troubles: Troubles, patience: Patience) -> None:
        """Connect in the background."""
        self._patience = patience
        self.client: AdminClient = troubles.made(AdminClient, config)
        self._trims: dict[TopicPartition, int] = {}  # asked for, not yet sent
        self._trimming: dict[TopicPartition, Future[Any]] = {}
        self._watched: dict[str, tuple[str, int]] = {}  # topic → (id, number of partitions) when it was first seen
        self._written: dict[str, str] = {}  # those of them that may grow → what to do when one is gone
        self._watching: dict[str, Future[Any]] = {}
        self._look_at = time.monotonic() + WATCH_S
        self.settings = TopicSettings(self.client)

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic that is not there; what ``config`` leaves open is as the broker has it."""
        made = self.client.create_topics(
            [NewTopic(topic, partitions, replication_factor=-1, config=config)], request_timeout=ANSWER_S_MAX
        )
        try:
            made[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                raise failed(error, f"creating topic {topic}", f"Create on topic {topic}, or make it first") from error

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        asked = self.client.create_partitions([NewPartitions(topic, partitions)], request_timeout=ANSWER_S_MAX)
        try:
            asked[topic].result()
        except KafkaException as error:
            raise failed(error, f"giving topic {topic} {partitions} partitions", f"Alter on topic {topic}") from error

    def group_rights(self, group: str, seconds: float) -> set[AclOperation]:
        """Return our rights for a consumer group. Raises KafkaException, or TimeoutError: no answer for so long.

        The client itself waits for its answer longer: see ``COORDINATOR_S_MAX``.
        """
        asked = self.client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=COORDINATOR_S_MAX
        )
        return set(asked[group].result(seconds).authorized_operations or ())

    def watch(self, topics: Sequence[str], advice: str) -> None:
        """Look at topics that the job only writes, too: they may grow. ``advice``: what to do when one is gone."""
        self._written |= dict.fromkeys(topics, advice)
        self.identities(topics)

    def identities(self, topics: Sequence[str]) -> dict[str, tuple[str, int]]:
        """Return topic → (id, number of partitions): a topic that is deleted and created again has another id.

        They are looked at again from time to time: ``poll`` raises Halted if one was created again, deleted or
        extended.
        """
        deadline = time.monotonic() + ANSWER_S_MAX
        left = list(topics)
        while left:
            described, left = self._describe(left), []
            for topic, future in described.items():
                try:
                    self._watched[topic] = identity_of(future.result())
                except KafkaException as error:
                    away = error.args[0].code() in {*_PASSING, KafkaError.UNKNOWN_TOPIC_OR_PART}  # just made, too
                    if not away or time.monotonic() > deadline:
                        raise failed(error, f"looking at topic {topic}", f"Describe on topic {topic}") from error
                    left.append(topic)
        return {topic: self._watched[topic] for topic in topics}

    def _describe(self, topics: Sequence[str]) -> dict[str, Future[Any]]:
        described: dict[str, Future[Any]] = self.client.describe_topics(
            TopicCollection(list(topics)), request_timeout=ANSWER_S_MAX
        )
        return described

    def _look(self) -> None:
        """Look at the watched topics, in the background. Raises Halted."""
        if self._watching and all(future.done() for future in self._watching.values()):
            for topic, future in self._watching.items():
                self._compare(topic, future)
            self._watching = {}
        if self._watched and not self._watching and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + WATCH_S
            self._watching = self._describe(tuple(self._watched))

    def _compare(self, topic: str, future: Future[Any]) -> None:
        advice = self._written.get(topic, CREATED_AGAIN)
        try:
            found = identity_of(future.result())
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Halted(
                    f"topic {topic} was deleted under the job: {advice}", topic=topic, code=HaltCode.TOPIC_REPLACED
                ) from error
            return  # the broker is away, or just starting: the next look will tell
        before = self._watched[topic]
        if found[0] != before[0]:
            raise Halted(
                f"topic {topic} was deleted and created again under the job: {advice}",
                topic=topic,
                code=HaltCode.TOPIC_REPLACED,
            )
        if found[1] != before[1] and topic not in self._written:
            raise Halted(more_partitions(topic, found[1], before[1]), topic=topic, code=HaltCode.TOPIC_GREW)

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Ask for a trim; it is done in the background, several at a time."""
        self._trims[partition] = max(before, self._trims.get(partition, 0))

    def poll(self) -> None:
        """Send what was asked for, once what was sent before is done. Raises Halted for what became of a topic."""
        self._look()
        if self._trimming and all(future.done() for future in self._trimming.values()):
            for partition, future in self._trimming.items():
                self._note(partition, future)
            self._trimming = {}
        if self._trims and not self._trimming:
            offsets = [KafkaPartition(*partition, before) for partition, before in self._trims.items()]
            sent = self.client.delete_records(offsets, request_timeout=ANSWER_S_MAX)
            self._trimming = {TopicPartition(at.topic, at.partition): future for at, future in sent.items()}
            self._trims = {}

    def settle(self, partition: TopicPartition) -> None:
        """Wait until the trims of a partition are done, so that its start is the one that the caller asked for."""
        began = self._patience.clock_s()
        while partition in self._trims or partition in self._trimming:
            self.poll()
            wait(self._trimming.values(), SLICE_S)
            if self._patience.over(began):
                waited = self._patience.clock_s() - began
                raise LogAway(f"trimming {partition} took more than {waited:.0f} s", partition=partition)

    def _note(self, partition: TopicPartition, future: Future[Any]) -> None:
        try:
            future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code in _GONE and partition.topic in self._watched:
                self._look_at = time.monotonic()  # if it was deleted, the look says so, and what to do
            elif code not in _PASSING:
                raise failed(error, f"trimming {partition}", f"Delete on topic {partition.topic}") from error
            logger.warning("trimming %s failed, the next commit's trim makes up for it: %s", partition, error)


def identity_of(described: Any) -> tuple[str, int]:
    """Return (id, number of partitions) of a topic that was described; "" for the id on a broker older than ids."""
    identity = str(described.topic_id)
    return "" if identity == _NO_ID else identity, len(described.partitions)
