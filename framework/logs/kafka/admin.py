"""Topics of a job on Kafka: made with the settings that the protocol needs, checked at each start, trimmed."""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from grete.errors import ConfigError, Halted, LogAway, TransientError
from grete.halts import HaltCode
from grete.logs.kafka.client.config import COORDINATOR_S_MAX, MESSAGE_BYTES_MAX
from grete.logs.kafka.client.errors import AWAY, Troubles, failed, logger
from grete.logs.kafka.client.metadata_client import BEHIND_S, SLICE_S
from grete.logs.kafka.client.refusals import TimeBounds
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.patience import Patience
from grete.logs.topic_identity import CREATED_AGAIN, more_partitions
from grete.protocol.ids import TopicPartition
from grete.settings import MiB

ANSWER_S_MAX = 60.0  # a broker that restarts or elects a leader answers well within
LIMITS_S_MAX = 5.0  # tasks wait meanwhile; without an answer the broker judges a record itself
WATCH_S = 10.0  # topics are looked at again this often: one that was created again must not be read for long

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

STREAM = {name: value for name, (value, _) in _REQUIRED.items()} | {_SIZE: str(MESSAGE_BYTES_MAX)}
COMPACTED = {"cleanup.policy": "compact"}

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
        self._warned: set[str] = set()

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

    def check(self, topic: str) -> None:
        """Raise ConfigError unless an existing stream or changelog has the settings that it needs (K1): no compaction.

        Warn where what is acknowledged may be lost with one broker.
        """
        found = self._settings(topic)
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

    def _require_trims(self, topic: str) -> None:
        """Raise ConfigError if a broker does not trim a topic with an empty cleanup.policy: Kafka does from 4.2 on.

        It is asked to trim what is before the first offset, which changes nothing.
        """
        asked = self.client.delete_records([KafkaPartition(topic, 0, 0)], request_timeout=ANSWER_S_MAX)
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

    def refuse_compacted(self, topic: str, stage: str) -> None:
        """Raise ConfigError if the broker compacts an input of a deterministic stage (D2).

        A worker that may not see the settings only warns: the digests of decisions notice what compaction takes.
        """
        try:
            policy = self._settings(topic)["cleanup.policy"]
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
        found = self._settings(topic, LIMITS_S_MAX)
        if found["message.timestamp.type"] != "CreateTime":
            return None
        both = "message.timestamp.difference.max.ms"  # of brokers before 3.6
        behind, ahead = (name if name in found else both for name in ("message.timestamp.before.max.ms", _AHEAD))
        return (behind, int(found[behind])), (ahead, int(found[ahead]))

    def group_rights(self, group: str, seconds: float) -> set[AclOperation]:
        """Return our rights for a consumer group. Raises KafkaException, or TimeoutError: no answer for so long.

        The client itself waits for its answer longer: see ``COORDINATOR_S_MAX``.
        """
        asked = self.client.describe_consumer_groups(
            [group], include_authorized_operations=True, request_timeout=COORDINATOR_S_MAX
        )
        return set(asked[group].result(seconds).authorized_operations or ())

    def _settings(self, topic: str, seconds: float = ANSWER_S_MAX) -> dict[str, str]:
        """Return the settings of a topic that is there; a broker may know it later than the one that told us."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        deadline = time.monotonic() + seconds
        while True:
            try:
                asked = self.client.describe_configs([resource], request_timeout=seconds)
                found: dict[str, ConfigEntry] = asked[resource].result()
            except KafkaException as error:
                behind = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not behind or time.monotonic() > deadline:
                    doing = f"reading the settings of topic {topic}"
                    raise failed(error, doing, f"DescribeConfigs on topic {topic}") from error
            else:
                return {name: entry.value or "" for name, entry in found.items()}
            time.sleep(BEHIND_S)

    def _check_replicas(self, topic: str, in_sync: int) -> None:
        """Raise ConfigError if nothing can be written, warn if one broker can lose what is acknowledged."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while True:
            try:
                listed = self.client.list_topics(topic, timeout=ANSWER_S_MAX)
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
