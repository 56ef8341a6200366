"""Settings of topics on Kafka: what the protocol needs, what gives disk back, what an input must not have."""

import logging
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from grete.errors import ConfigError, TransientError
from grete.logs.kafka.client.config import MESSAGE_BYTES_MAX
from grete.logs.kafka.client.errors import failed, logger
from grete.logs.kafka.client.metadata_client import BEHIND_S
from grete.logs.kafka.client.refusals import TimeBounds
from grete.settings import MiB

ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
LIMITS_S_MAX = 5.0  # tasks wait meanwhile; without an answer the broker judges a record itself

_POLICY = "cleanup.policy"

# Setting of a stream or changelog → (its value, why).
_REQUIRED = {
    _POLICY: (
        "delete",
        "compaction keeps the newest value of a key, committed or not",
    ),
    "retention.ms": ("-1", "only its one reader knows what is no longer needed"),
    "retention.bytes": ("-1", "only its one reader knows what is no longer needed"),
    "message.timestamp.type": ("LogAppendTime", "checkpoint ids are made from the log's clock, not from a host's"),
}
_UNCLEAN = "unclean.leader.election.enable"  # not set by us, as some services refuse it: false by default
_IN_SYNC = "min.insync.replicas"
_SIZE = "max.message.bytes"
_AHEAD = "message.timestamp.after.max.ms"
_SIZE_LEAST = 1 * MiB  # a frame or a data message of 512 KiB, and one large record

# Brokers free what is trimmed by whole segments, which are 1 GiB and seven days by default.
_SEGMENTS = {"segment.bytes": 64 * MiB, "segment.ms": 24 * 3_600_000}

STREAM = {name: value for name, (value, _) in _REQUIRED.items()} | {_SIZE: str(MESSAGE_BYTES_MAX)}
COMPACTED = {"cleanup.policy": "compact"}


class TopicSettings:
    """Reads them by an admin client. Raises ConfigError if the broker refuses, LogAway if none answers."""

    def __init__(self, client: AdminClient) -> None:
        """Ask by a client that is connected."""
        self._client = client
        self._warned: set[str] = set()

    def check(self, topic: str) -> dict[str, int]:
        """Raise ConfigError unless an existing stream or changelog has the settings that it needs (K1): no compaction.

        Warn where what is acknowledged may be lost with one broker. Return the settings, with the values to give them,
        by which brokers keep what is trimmed for long; one that the topic has of its own is somebody's choice.
        """
        entries = self._entries(topic)
        found = _values(entries)
        for name, (needed, why) in _REQUIRED.items():
            value = found[name]
            if name == _POLICY and not value:
                self._require_trims(topic)
            elif value != needed:
                raise ConfigError(
                    f"topic {topic} has {name} = {value}, not {needed}: {why}. If it is this job's and holds nothing "
                    f"that was compacted or expired, set it: kafka-configs.sh --alter --topic {topic} --add-config "
                    f"{name}={needed}; else choose another job name",
                    topic=topic,
                )
        if int(found[_SIZE]) < _SIZE_LEAST:
            raise ConfigError(
                f"topic {topic} has {_SIZE} = {found[_SIZE]}, less than {_SIZE_LEAST}: frames may be larger",
                topic=topic,
            )
        if found[_UNCLEAN] == "true":
            raise ConfigError(
                f"topic {topic} has {_UNCLEAN} = true: a leader that lacks acknowledged messages would be a silent "
                "loss: set it to false",
                topic=topic,
            )
        self._check_replicas(topic, int(found[_IN_SYNC]))
        return large_segments(entries)

    def give_back(self, topic: str, settings: Mapping[str, int]) -> None:
        """Set these settings, if we may: nothing but the brokers' disks depends on them, and ``doctor`` says it."""
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        try:
            self._client.incremental_alter_configs([resource], request_timeout=ANSWER_S_MAX)[resource].result()
        except KafkaException as error:
            logger.info("topic %s keeps what is trimmed for long: %s", topic, error)

    def refuse_compacted(self, topic: str, stage: str) -> None:
        """Raise ConfigError if the broker compacts an input of a deterministic stage (D2).

        A worker that may not see the settings only warns: the digests of decisions notice what compaction takes.
        """
        try:
            policy = self._entries(topic)["cleanup.policy"].value or ""
        except ConfigError as error:
            logger.warning("cannot check whether topic %s is compacted, which stage %s needs: %s", topic, stage, error)
            return
        if "compact" in policy:
            raise ConfigError(
                f"stage {stage} is deterministic and reads topic {topic}, which has cleanup.policy = {policy}: after a "
                "crash the stage must read again each record that it took since its last commit, and compaction may "
                f"have removed some of them. Set it: kafka-configs.sh --alter --topic {topic} --add-config "
                "cleanup.policy=delete; or read a copy of the topic that is not compacted; or, in a job of another "
                'name, read it in a stage with mode = "aligned"',
                topic=topic,
            )

    def timestamp_limits(self, topic: str) -> TimeBounds | None:
        """Return the distance from the broker's clock that the topic's timestamps may have; None: it gives its own."""
        found = _values(self._entries(topic, LIMITS_S_MAX))
        if found["message.timestamp.type"] != "CreateTime":
            return None
        both = "message.timestamp.difference.max.ms"  # of brokers before 3.6
        behind, ahead = (name if name in found else both for name in ("message.timestamp.before.max.ms", _AHEAD))
        return (behind, int(found[behind])), (ahead, int(found[ahead]))

    def _require_trims(self, topic: str) -> None:
        """Raise ConfigError if a broker does not trim a topic with an empty cleanup.policy: Kafka does from 4.2 on.

        It is asked to trim what is before the first offset, which changes nothing.
        """
        asked = self._client.delete_records([KafkaPartition(topic, 0, 0)], request_timeout=ANSWER_S_MAX)
        for answer in asked.values():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                    raise failed(error, f"trimming {topic}", f"Delete on topic {topic}") from error
                raise ConfigError(
                    f"topic {topic} has an empty {_POLICY}, and its broker trims no such topic: Kafka before 4.2. Set "
                    f"it: kafka-configs.sh --alter --topic {topic} --add-config {_POLICY}=delete",
                    topic=topic,
                ) from error

    def _entries(self, topic: str, seconds: float = ANSWER_S_MAX) -> dict[str, ConfigEntry]:
        """Return the settings of a topic that is there; a broker may know it later than the one that told us."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        deadline = time.monotonic() + seconds
        while True:
            try:
                asked = self._client.describe_configs([resource], request_timeout=seconds)
                found: dict[str, ConfigEntry] = asked[resource].result()
            except KafkaException as error:
                behind = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not behind or time.monotonic() > deadline:
                    doing = f"reading the settings of topic {topic}"
                    raise failed(error, doing, f"DescribeConfigs on topic {topic}") from error
            else:
                return found
            time.sleep(BEHIND_S)

    def _check_replicas(self, topic: str, in_sync: int) -> None:
        """Raise ConfigError if nothing can be written, warn if one broker can lose what is acknowledged."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                listed = self._client.list_topics(topic, timeout=ANSWER_S_MAX)
            except KafkaException as error:
                raise failed(error, f"looking for topic {topic}") from error
            if partitions := listed.topics[topic].partitions:
                break
            if time.monotonic() > deadline:
                raise TransientError(
                    f"topic {topic} is there, but a broker does not know it after {ANSWER_S_MAX:.0f} s: start again",
                    topic=topic,
                )
            time.sleep(BEHIND_S)
        replicas = min(len(each.replicas) for each in partitions.values())
        if in_sync > replicas:
            raise ConfigError(
                f"topic {topic} has {_IN_SYNC} = {in_sync} and {replicas} replicas: nothing can be written to it: "
                f"lower the one (kafka-configs.sh), or raise the other (kafka-reassign-partitions.sh)",
                topic=topic,
            )
        risk = (
            "one replica: what its broker loses is lost: raise default.replication.factor to 3"
            if replicas == 1
            else f"{_IN_SYNC} = 1: what only the leader had is lost with it: set it to 2"
        )
        if in_sync == 1 and risk not in self._warned:
            self._warned.add(risk)
            level = logging.WARNING if len(listed.brokers) > 1 else logging.INFO  # one broker: more cannot be expected
            logger.log(level, "topic %s has %s (said once, of the first such topic)", topic, risk)


def large_segments(entries: Mapping[str, ConfigEntry]) -> dict[str, int]:
    """Return the settings of segments that are too large and not the topic's own, with the values to give them.

    A service that is no Apache Kafka may not show one, or show it without a value: then there is nothing to set.
    """
    found = {name: entries[name] for name in _SEGMENTS if name in entries and entries[name].value}
    return {
        name: _SEGMENTS[name]
        for name, entry in found.items()
        if int(entry.value or 0) > _SEGMENTS[name]
        and ConfigSource(entry.source) is not ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _values(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    return {name: entry.value or "" for name, entry in entries.items()}
