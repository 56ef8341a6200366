"""The reading half of a log on Apache Kafka: two consumers that join no group, and neither a producer nor an admin."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Self

from grete.logs.kafka.client.config import scrubber, split_options
from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.metadata_client import BEHIND_S, SPREAD_S_MAX, MetadataClient
from grete.logs.kafka.client.tls_diagnosis import ClientConfig, ClientOptions
from grete.logs.kafka.read.consumer import Reader
from grete.logs.kafka.read.uncommitted import Uncommitted
from grete.logs.kafka.write.job_metadata import KafkaMetadataReader
from grete.logs.patience import Patience
from grete.logs.topic_identity import no_partition
from grete.open_transaction import OpenTransaction
from grete.ports import LogRow
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


class KafkaReader:
    """grete.ports.LogReader over a Kafka cluster. Neither thread safe nor fork safe."""

    def __init__(
        self,
        bootstrap: str,
        consumer: ClientConfig,
        troubles: Troubles,
        patience: Patience,
        answered: Callable[[], bool] = lambda: False,
    ) -> None:
        """Connect; ``answered``: whether a broker has answered a producer. See ``connect`` for people's arguments.

        Raises ConfigError (an option, who we are), LogAway (no broker answers).
        """
        self.bootstrap = bootstrap
        self.connection = Connection(consumer, troubles, bootstrap, patience)
        self.fetches = Reader(consumer, troubles, self.connection.metadata, patience)
        self._uncommitted = Uncommitted(consumer, troubles, bootstrap, patience)
        self.closed = False
        try:
            self.connection.wait(answered)
        except BaseException:
            self.close()
            raise

    @classmethod
    def connect(cls, bootstrap: str, options: ClientOptions | None = None, *, group: str = "grete") -> Self:
        """Connect to ``host:port[,host:port…]`` with librdkafka's ``options``. The group is only a name: none is made.

        Raises ConfigError (an option, who we are), LogAway (no broker answers).
        """
        _, consumer, _ = split_options(bootstrap, group, options or {})
        return cls(bootstrap, consumer, Troubles(scrubber(options or {})), Patience())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bootstrap!r})"  # never the options: some are secrets

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""
        return self.connection.partitions(topic)

    def topics(self) -> Sequence[str]:
        """Return the names of all topics of the cluster but Kafka's own, sorted."""
        return self.connection.topics()

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (offset of the first message still there, offset of the next message to come): one round trip."""
        self.connection.check(partition)
        return self.fetches.bounds(partition)

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each: two round trips for all of them."""
        asked = tuple(dict.fromkeys(partitions))
        for partition in asked:
            self.connection.check(partition)
        return self.fetches.all_bounds(asked)

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return the open transactions behind the bounds: two round trips more, by connections of its own."""
        asked = tuple(dict.fromkeys(partitions))
        for partition in asked:
            self.connection.check(partition)
        return self._uncommitted.behind(asked, self.connection.metadata.all_bounds)

    def skipped(self, partition: TopicPartition, offset: int) -> int:
        """Return up to where nothing can be read from ``offset`` on, as far as is known without asking.

        More than ``offset``: transactions end there, and what they have taken back is there.
        """
        return self.fetches.skipped(partition, offset)

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset of the first message with this timestamp or a later one; the end if there is none."""
        end = self.bounds(partition)[1]
        found = self.connection.metadata.offset_at(partition, timestamp_ms)
        return end if found < 0 else found

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on; see grete.ports.Log.

        A topic that keeps a record's own time shows that as its append time, too: Kafka stores one of them.
        """
        if partition.topic not in self.connection.counts:
            self.connection.check(partition)
        return self.fetches.read(partition, offset, max_bytes)

    def read_metadata(self, job: str) -> KafkaMetadataReader:
        """Return the metadata of a job in the cluster, to be read; nothing where nothing is kept yet."""
        return KafkaMetadataReader(self, job)

    def share(self, partitions: Collection[TopicPartition]) -> None:
        """Expect several tasks of this process to read these partitions, each from its own offset."""
        self.fetches.share(partitions)

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Begin to fetch these partitions from these offsets on."""
        for partition in spans:
            self.connection.check(partition)
        self.fetches.expect(spans)

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Tell whether a read from ``offset`` on does not wait for a fetch that is under way."""
        return self.fetches.at_hand(partition, offset)

    def leave(self, partition: TopicPartition) -> None:
        """Fetch no more of this partition, until it is read again."""
        self.fetches.leave(partition)

    def close(self) -> None:
        """Disconnect. A second close does nothing."""
        if not self.closed:
            self.closed = True
            self.fetches.close()
            self.connection.metadata.close()
            self._uncommitted.close()
