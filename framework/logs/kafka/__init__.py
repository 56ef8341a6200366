"""Apache Kafka as the log."""

from grete.logs.kafka.log import KafkaLog
from grete.logs.kafka.read.reader import KafkaReader

__all__ = ["KafkaLog", "KafkaReader"]
