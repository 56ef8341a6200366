"""Topics of a job on Kafka: made with the settings that the protocol needs, checked at each start, trimmed."""

import time
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from framework.errors import ConfigError, TransientError
from framework.logs.kafka.failures import Troubles, failed, logger
from framework.logs.kafka.options import MESSAGE_BYTES_MAX
from framework.settings import MiB
from protocol.ids import TopicPartition

ANSWER_S_MAX = 60.0

# Setting of a stream or changelog → (its value, why).
_REQUIRED = {
    "cleanup.policy": (
        "delete",
        "compaction keeps the newest value of a key, committed or not (K1)",
    ),
    "retention.ms": ("-1", "only its one reader knows what is no longer needed (K1, K3)"),
    "retention.bytes": ("-1", "only its one reader knows what is no longer needed (K1, K3)"),
    "message.timestamp.type": ("LogAppendTime", "versions are made from the log's clock, not from a host's (A1)"),
}
_SIZE = "max.message.bytes"
_SIZE_LEAST = 1 * MiB  # a frame or a data message of 512 KiB, and one large record
STREAM = {name: value for name, (value, _) in _REQUIRED.items()} | {_SIZE: str(MESSAGE_BYTES_MAX)}
COMPACTED = {"cleanup.policy": "compact"}

_PASSING = {
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._TRANSPORT,
}


class Topics:
    """What needs an admin client. Raises ConfigError for what the broker refuses, TransientError if none answers."""

    def __init__(self, config: dict[str, Any], troubles: Troubles) -> None:
        """Connect in the background."""
        self._client: AdminClient = troubles.made(AdminClient, config)
        self._trims: dict[TopicPartition, int] = {}  # asked for, not yet sent
        self._trimming: dict[TopicPartition, Future[Any]] = {}

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic that is not there; what ``config`` leaves open is as the broker has it."""
        made = self._client.create_topics(
            [NewTopic(topic, partitions, replication_factor=-1, config=config)], request_timeout=ANSWER_S_MAX
        )
        try:
            made[topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process was faster
                raise failed(error, f"creating topic {topic}", f"Create on topic {topic}, or make it first") from error

    def check(self, topic: str) -> None:
        """Raise ConfigError unless an existing stream or changelog has the settings that it needs (K1)."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = self._client.describe_configs([resource], request_timeout=ANSWER_S_MAX)[resource].result()
        except KafkaException as error:
            raise failed(
                error, f"reading the settings of topic {topic}", f"DescribeConfigs on topic {topic}"
            ) from error
        for name, (needed, why) in _REQUIRED.items():
            value = found[name].value
            if value != needed:
                raise ConfigError(
                    f"topic {topic} has {name} = {value}, not {needed}: {why}. If it is this job's and holds nothing "
                    f"that was compacted or expired, set it: kafka-configs.sh --alter --topic {topic} --add-config "
                    f"{name}={needed}; else choose another job name"
                )
        if int(found[_SIZE].value) < _SIZE_LEAST:
            raise ConfigError(
                f"topic {topic} has {_SIZE} = {found[_SIZE].value}, less than {_SIZE_LEAST}: frames may be larger"
            )

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Ask for a trim; it is done in the background, several at a time."""
        self._trims[partition] = max(before, self._trims.get(partition, 0))

    def poll(self) -> None:
        """Send what was asked for, once what was sent before is done."""
        if self._trimming and all(future.done() for future in self._trimming.values()):
            for partition, future in self._trimming.items():
                self._note(partition, future)
            self._trimming = {}
        if self._trims and not self._trimming:
            offsets = [KafkaPartition(*partition, before) for partition, before in self._trims.items()]
            sent = self._client.delete_records(offsets, request_timeout=ANSWER_S_MAX)
            self._trimming = {TopicPartition(at.topic, at.partition): future for at, future in sent.items()}
            self._trims = {}

    def settle(self, partition: TopicPartition) -> None:
        """Wait until the trims of a partition are done, so that its start is what the caller was promised."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while partition in self._trims or partition in self._trimming:
            self.poll()
            for future in self._trimming.values():
                try:
                    future.exception(timeout=max(0.0, deadline - time.monotonic()))
                except TimeoutError as error:
                    raise TransientError(f"trimming {partition} took more than {ANSWER_S_MAX:.0f} s") from error

    def _note(self, partition: TopicPartition, future: Future[Any]) -> None:
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() not in _PASSING:
                raise failed(error, f"trimming {partition}", f"Delete on topic {partition.topic}") from error
            logger.warning("trimming %s failed, the next commit's trim makes up for it: %s", partition, error)
