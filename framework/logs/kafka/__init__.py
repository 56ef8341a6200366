"""Apache Kafka as the log."""

from framework.logs.kafka.log import KafkaLog
from framework.logs.kafka.reader import KafkaReader

__all__ = ["KafkaLog", "KafkaReader"]
