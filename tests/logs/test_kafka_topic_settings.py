"""Topics that exist with other settings than a stream or changelog needs: refused, or taken where they do no harm."""

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ConfigSource, ResourceType

from grete.errors import ConfigError
from grete.logs.kafka.topic_settings import STREAM, large_segments
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.logs.test_kafka import Connect, connect, filled, make, topic

__all__ = ["connect", "topic"]  # fixtures

pytestmark = pytest.mark.kafka
SEGMENTS = {"segment.bytes": "67108864", "segment.ms": "86400000"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000"),
        ("message.timestamp.type", "CreateTime"),
        ("max.message.bytes", "100000"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "2"),
    ],
)
def test_unfit_topics_are_refused(kafka_broker: Broker, connect: Connect, topic: str, name: str, value: str) -> None:
    """K1: an existing stream or changelog with a setting that would lose data is refused; a plain topic is not ours."""
    fit = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
    }
    make(kafka_broker, topic, **(fit | {name: value}))
    log = connect()
    with pytest.raises(ConfigError, match=rf"topic {topic} has {name} = {value}"):
        log.create_topic(topic, 1)
    log.create_topic(topic, 1, plain=True)


def test_a_topic_without_a_cleanup_policy_is_taken_where_it_can_be_trimmed(
    kafka_broker: Broker, connect: Connect, topic: str
) -> None:
    """K1: it is neither compacted nor expires. Brokers before 4.2 take the empty setting, and then refuse each trim."""
    make(kafka_broker, topic, **(STREAM | {"cleanup.policy": ""}))
    partition, log = TopicPartition(topic, 0), connect()
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    (trimmed,) = client.delete_records([KafkaPartition(topic, 0, 0)]).values()
    if trimmed.exception() is None:
        filled(log, topic, 3)
        log.trim(partition, 2)
        assert log.bounds(partition) == (2, 3)
    else:
        with pytest.raises(ConfigError, match=f"topic {topic} has an empty cleanup.policy, .* Kafka before 4.2"):
            log.create_topic(topic, 1)


def segments(kafka_broker: Broker, topic: str) -> dict[str, str]:
    """Return the settings by which the broker cuts a topic into files."""
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found = client.describe_configs([resource])[resource].result()
    return {name: found[name].value for name in SEGMENTS}


def test_a_topic_gives_back_what_is_trimmed_unless_somebody_chose_otherwise(
    kafka_broker: Broker, connect: Connect, topic: str
) -> None:
    """A new stream, and one of an earlier release, gets small segments; what the topic has of its own stays."""
    log, before, chosen = connect(), f"{topic}-before", f"{topic}-chosen"
    make(kafka_broker, before, **STREAM)
    make(kafka_broker, chosen, **(STREAM | {"segment.bytes": "1073741824"}))
    for each in (topic, before, chosen):
        log.create_topic(each, 1)
    log.create_topic(f"{topic}-plain", 1, plain=True)
    assert segments(kafka_broker, topic) == segments(kafka_broker, before) == SEGMENTS
    assert segments(kafka_broker, chosen) == SEGMENTS | {"segment.bytes": "1073741824"}
    assert int(segments(kafka_broker, f"{topic}-plain")["segment.ms"]) > int(SEGMENTS["segment.ms"])


def test_a_service_that_does_not_show_its_segments_is_left_alone() -> None:
    """Kafka shows both settings; other brokers of its protocol may leave one out, or show it without a value."""
    entries = {"segment.ms": ConfigEntry("segment.ms", None, source=ConfigSource.DEFAULT_CONFIG)}
    assert large_segments(entries) == {}
    entries["segment.bytes"] = ConfigEntry("segment.bytes", "1073741824", source=ConfigSource.DEFAULT_CONFIG)
    assert large_segments(entries) == {"segment.bytes": 67_108_864}
