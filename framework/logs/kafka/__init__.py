"""Apache Kafka as the log (design 2.3)."""

from framework.logs.kafka.log import KafkaLog
from framework.logs.kafka.reader import KafkaReader

__all__ = ["KafkaLog", "KafkaReader"]
