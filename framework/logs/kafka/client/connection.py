"""The cluster as one log knows it: the client that asks it, the partitions of topics, and how long to wait for it."""

import time
from collections.abc import Callable, Sequence

from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.metadata_client import BEHIND_S, SPREAD_S_MAX, MetadataClient
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.patience import Patience
from grete.logs.topic_identity import no_partition
from grete.protocol.ids import TopicPartition


class Connection:
    """The cluster, for the readers and writers of one log. ``counts``: partitions by topic, of those that were seen."""

    def __init__(self, consumer: ClientConfig, troubles: Troubles, bootstrap: str, patience: Patience) -> None:
        self.troubles, self.patience = troubles, patience
        self.metadata = MetadataClient(consumer, troubles, bootstrap, patience)
        self.counts: dict[str, int] = {}

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""
        found = self.metadata.partitions(topic)
        if found is not None:
            self.counts[topic] = found
        return found

    def topics(self) -> Sequence[str]:
        """Return the names of all topics of the cluster but Kafka's own, sorted."""
        self.counts.update(listed := self.metadata.topics())
        return sorted(listed)

    def wait(self, answered: Callable[[], bool]) -> None:
        """Wait for a broker. One that is starting up knows of none: then the producer asks again after minutes only."""
        began = self.patience.clock_s()
        while not (answered() or (self.troubles.refused is None and self.metadata.answers())):
            self.metadata.waits()
            if self.troubles.refused is not None or self.patience.over(began, connecting=True):
                raise self.metadata.no_answer(began)
        self.metadata.answered()

    def check(self, partition: TopicPartition) -> None:
        """Raise ConfigError if there is no such partition: Kafka itself would make topics, or fail much later.

        A topic that was just made is unknown to a busy broker for some seconds, so it is asked again.
        """
        count = self.counts.get(partition.topic)
        if count is None or not 0 <= partition.partition < count:
            count, deadline = self.partitions(partition.topic), time.monotonic() + SPREAD_S_MAX
            while count is None and time.monotonic() < deadline and not self.patience.ended:
                time.sleep(BEHIND_S)
                count = self.partitions(partition.topic)
            if count is None or not 0 <= partition.partition < count:
                raise no_partition(partition, count)
