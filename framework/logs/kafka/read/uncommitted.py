"""Finds the records that an open transaction of a producer hides from readers: their number, and the first offset.

By clients of its own, which take uncommitted messages, too. They are made when somebody asks.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from grete.logs.kafka.client.errors import Troubles
from grete.logs.kafka.client.metadata_client import SLICE_S, MetadataClient
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.patience import Patience
from grete.open_transaction import OpenTransaction
from grete.protocol.ids import TopicPartition

READ_S_MAX = 5.0  # for a message that is only shown: without it the offset is told

PartitionBounds = dict[TopicPartition, tuple[int, int]]


class Uncommitted:
    """what lies behind the last stable offset of partitions."""

    def __init__(self, consumer: ClientConfig, troubles: Troubles, bootstrap: str, patience: Patience) -> None:
        """``consumer``: the configuration of those that read committed messages."""
        self._config = consumer | {"isolation.level": "read_uncommitted"}
        self._made_of = troubles, bootstrap, patience
        self._client: _UncommittedClient | None = None

    def behind(
        self, partitions: Sequence[TopicPartition], stable: Callable[[Sequence[TopicPartition]], PartitionBounds]
    ) -> dict[TopicPartition, OpenTransaction]:
        """Return the open transaction behind the end that ``stable`` tells, of each partition that has one.

        The end of all messages is asked for first: what comes between the two questions is not told.
        """
        if not partitions:
            return {}
        if self._client is None:
            self._client = _UncommittedClient(self._config, *self._made_of)
        ends = self._client.all_bounds(partitions)
        seen = stable(partitions)
        found = {each: (seen[each][1], end) for each, (_, end) in ends.items() if seen[each][1] < end}
        return {each: self._client.first_of(each, offset, end) for each, (offset, end) in found.items()}

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()


class _UncommittedClient(MetadataClient):
    """Asks as the other one, and reads a message."""

    def first_of(self, partition: TopicPartition, offset: int, end: int) -> OpenTransaction:
        """Return an open transaction with the time and key of the message at its offset, if they come soon."""
        message: Message | None = None
        deadline = time.monotonic() + READ_S_MAX
        try:
            self.consumer.assign([KafkaPartition(*partition, offset)])
            while message is None and time.monotonic() < deadline:
                polled = self.consumer.poll(SLICE_S)
                message = polled if polled is not None and polled.error() is None else None
            self.consumer.unassign()
        except KafkaException:
            pass  # it is only shown
        if message is None or message.offset() != offset:
            return OpenTransaction(offset, end, None, None)
        key: Any = message.key()
        return OpenTransaction(offset, end, message.timestamp()[1], key)
