"""Apache Kafka as the log (design 2.3)."""

from framework.logs.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
