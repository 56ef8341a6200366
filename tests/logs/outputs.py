"""An output topic, read by a plain consumer."""

import time

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker

LIMIT_S = 180.0


def visible(broker: Broker, partition: TopicPartition) -> list[bytes]:
    """Return the values that are committed, waiting for what is still open: up to the partition's very end."""
    return _read(broker, partition, "read_committed", end_of(broker, partition))


def everything(broker: Broker, partition: TopicPartition) -> list[bytes]:
    """Return the values that are there, committed or not."""
    return _read(broker, partition, "read_uncommitted", end_of(broker, partition))


def _consumer(broker: Broker, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "plain",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
    )


def end_of(broker: Broker, partition: TopicPartition) -> int:
    """Return the offset behind all that is there, committed or not, with the marks of transactions."""
    consumer = _consumer(broker, "read_uncommitted")
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            end: int = consumer.get_watermark_offsets(KafkaPartition(*partition), timeout=LIMIT_S)[1]
        except KafkaException as error:  # a topic that was just made may have no leader for a moment
            if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        else:
            consumer.close()
            return end


def _read(broker: Broker, partition: TopicPartition, isolation: str, end: int) -> list[bytes]:
    consumer = _consumer(broker, isolation)
    consumer.assign([KafkaPartition(*partition, 0)])
    found: list[bytes] = []
    position, deadline = 0, time.monotonic() + LIMIT_S
    while position < end:
        message = consumer.poll(LIMIT_S)
        assert message is not None, f"{partition} from {position} to {end}: nothing came"
        error = message.error()
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET and time.monotonic() < deadline:
            consumer.assign([KafkaPartition(*partition, position)])  # the broker did not know the end yet
            continue
        if error is None:
            found.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
        position = (message.offset() or 0) + (error is None)
    consumer.close()
    return found
