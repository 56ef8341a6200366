"""The positions of a job in a consumer group of Kafka, for lag tools."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.logs.kafka.client.broker_query import BrokerQuery
from grete.logs.kafka.group_positions import GroupPositions
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.support.kafka_topics import create
from tests.support.waiting import pause, until
from tests.worker.workers import LIMIT_S

pytestmark = pytest.mark.kafka


class _Coordinator:
    """The broker's consumer groups, the first commit of which fails: the coordinator is just moving."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client
        self.commits = 0

    def alter_consumer_group_offsets(self, groups: list[ConsumerGroupTopicPartitions], **named: Any) -> dict[str, Any]:
        """Fail once, then ask the broker."""
        self.commits += 1
        if self.commits > 1:
            return self._client.alter_consumer_group_offsets(groups, **named)
        failed = Future[Any]()
        failed.set_exception(KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)))
        return {groups[0].group_id: failed}


def asks(broker: Broker, group: str) -> Callable[[Sequence[KafkaPartition]], BrokerQuery]:
    """Return a function that asks the broker for the offsets of a group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    return lambda partitions: BrokerQuery(lambda: consumer.committed(list(partitions), timeout=LIMIT_S))


def until_taken(positions: GroupPositions, partition: TopicPartition, saw: Callable[[], object] | None = None) -> None:
    """Wait until the group has taken offset 3, and what is asked for with it."""

    def step() -> None:
        positions.poll()
        pause()

    until(
        lambda: (dict(positions.published([partition])), positions.asked([partition])) == ({partition: 3}, 7),
        "the position in the group",
        step=step,
        saw=saw,
    )


def test_a_position_that_the_group_did_not_take_goes_again(kafka_broker: Broker) -> None:
    """A task reports a position once. A source that waits for it would wait until the next commit."""
    client, topic = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}), f"t{os.urandom(6).hex()}"
    create(client, NewTopic(topic, 1))
    coordinator = _Coordinator(client)
    partition = TopicPartition(topic, 0)
    group = f"group-{topic}"
    positions = GroupPositions(lambda: cast("AdminClient", coordinator), asks(kafka_broker, group), group)
    positions.publish({partition: 3}, 7)
    until_taken(positions, partition, saw=lambda: coordinator.commits)
    taken = coordinator.commits
    assert taken >= 2  # the broker may refuse one, too, while it makes the group
    for _ in range(3):
        positions.poll()
    assert coordinator.commits == taken  # what was taken goes no more


def test_consumers_of_others_in_the_group_are_told_and_do_no_harm(
    kafka_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker takes no position while they are there. They may leave any text beside theirs."""
    client, topic = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}), f"t{os.urandom(6).hex()}"
    create(client, NewTopic(topic, 1))
    group, partition = f"group-{topic}", TopicPartition(topic, 0)
    positions = GroupPositions(lambda: client, asks(kafka_broker, group), group)
    foreign = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": group})
    foreign.subscribe([topic])
    until(foreign.assignment, "an assignment", step=lambda: foreign.poll(0.1))
    positions.publish({partition: 3}, 7)

    def both() -> None:
        positions.poll()
        foreign.poll(0.01)

    until(
        lambda: "is in use by consumers that are not the job's: give them a group of another name" in caplog.text,
        step=both,
        saw=lambda: caplog.text,
    )
    foreign.commit(offsets=[KafkaPartition(topic, 0, 1, metadata="of host x")], asynchronous=False)
    until(lambda: dict(positions.published([partition])) == {partition: 1})
    assert positions.asked([partition]) == 0
    foreign.close()
    until_taken(positions, partition)


def refused(code: int) -> BrokerQuery:
    """Return a question that is answered with an error."""

    def ask() -> None:
        raise KafkaException(KafkaError(code))

    question = BrokerQuery(ask)
    assert question.over(LIMIT_S)
    return question


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.NOT_COORDINATOR, ""),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, ""),
        (KafkaError._TRANSPORT, ""),
        (KafkaError._TIMED_OUT, ""),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "group g needs the operation Read"),
        (KafkaError.UNKNOWN_MEMBER_ID, "is in use by consumers that are not the job's"),
        (KafkaError.INVALID_GROUP_ID, "group g cannot be asked"),
    ],
)
def test_only_a_right_that_is_missing_is_called_so(code: int, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """A coordinator that moves, as when a broker starts again, is asked again without a word."""
    positions = GroupPositions(lambda: pytest.fail("it publishes nothing"), lambda _: refused(code), "g")
    for _ in range(2):
        positions.published([TopicPartition("t", 0)])
    assert len(caplog.records) == bool(said)
    assert said in caplog.text
