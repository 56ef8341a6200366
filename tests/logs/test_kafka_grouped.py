"""Tasks that read several partitions of a topic on Kafka (A2f): its number is what the declaration says."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from grete.errors import ConfigError, ExitCode
from grete.testing.broker import Broker
from tests.logs.test_kafka_topics import client, keeping, say, topic, work
from tests.support.kafka_topics import widen

__all__ = ["client", "topic"]  # fixtures
pytestmark = pytest.mark.kafka


def test_a_task_reads_several_partitions_and_those_that_a_topic_gets(
    kafka_broker: Broker, client: AdminClient, topic: str, tmp_path: Path
) -> None:
    """A topic has the number that its declaration says, or the job does not start; the new number is read (A2f)."""
    say(kafka_broker, topic, 1)
    widen(client, topic, 2)
    say(kafka_broker, topic, 2, partition=1)
    assert work(kafka_broker, keeping(topic, 2), tmp_path, 3) == ExitCode.DONE
    widen(client, topic, 4)
    with pytest.raises(ConfigError, match=rf"topic {topic} has 4 partitions, and its declaration in job .* says 2: "):
        work(kafka_broker, keeping(topic, 2), tmp_path, 3)
    say(kafka_broker, topic, 4, partition=3)
    assert work(kafka_broker, keeping(topic, 4), tmp_path, 7) == ExitCode.DONE
