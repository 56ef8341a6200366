"""The members' topic on a real broker."""

import os
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition as KafkaPartition

from grete.errors import LogAway
from grete.logs.kafka import members_topic
from grete.logs.kafka.members_topic import KafkaMembersTopic
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.support.waiting import until


@pytest.mark.kafka
def test_a_reader_whose_place_is_gone_begins_again_though_the_log_is_away_at_first(
    kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised: that would end the member, and with it the workers of its machine."""
    job = f"m{os.urandom(6).hex()}"
    with closing(KafkaMembersTopic(kafka_broker.bootstrap, None, job, Patience())) as topic:
        asked, bounds = [], topic._metadata_client.bounds

        def away_at_first(partition: TopicPartition) -> tuple[int, int]:
            asked.append(partition)
            if len(asked) < 3:
                raise LogAway("the broker left in this moment")
            return bounds(partition)

        monkeypatch.setattr(topic._metadata_client, "bounds", away_at_first)
        topic._consumer.assign([KafkaPartition(topic.topic, 0, 1_000)])  # as if it had read so far in an older topic
        topic.write(b"x")
        found = until(lambda: [data for _, _, data in topic.read(0.1)])
        assert (found, len(asked), topic.failure) == ([b"x"], 3, None)


@pytest.mark.kafka
def test_a_client_that_fetches_nothing_of_what_is_there_is_replaced(
    kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that does not read its own heartbeat would follow no assignment, and others would take it for alive."""
    monkeypatch.setattr(members_topic, "STUCK_S", 0.1)
    job = f"m{os.urandom(6).hex()}"
    with closing(KafkaMembersTopic(kafka_broker.bootstrap, None, job, Patience())) as topic:
        stuck = topic._consumer
        stuck.pause([KafkaPartition(topic.topic, 0)])  # what a client does that has forgotten a partition
        topic.write(b"x")
        found = until(lambda: [data for _, _, data in topic.read(0.1)])
        assert found == [b"x"]
        assert topic._consumer is not stuck
