"""Kafka as the contract tests want a log: alone with its topics, and with its answers there when a call returns."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from grete.errors import FrameworkError
from grete.logs.kafka import KafkaLog
from grete.open_transaction import OpenTransaction
from grete.ports import Delivery, ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition


class SettledKafkaLog:
    """A KafkaLog whose topics carry a prefix that the tests do not see.

    ``poll`` waits for all answers and ``read`` looks at the bounds first: what the tests state of the log's content
    must hold; when it becomes known to whom is tested in tests/logs/test_kafka.py.
    """

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.inner = KafkaLog(bootstrap)
        self._prefix = prefix
        self._unanswered = 0

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False) -> None:
        with self._short_names():
            self.inner.create_topic(topic and self._prefix + topic, partitions, plain=plain)

    def partitions(self, topic: str) -> int | None:
        return self.inner.partitions(self._prefix + topic)

    def topics(self) -> Sequence[str]:
        return [name.removeprefix(self._prefix) for name in self.inner.topics() if name.startswith(self._prefix)]

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        with self._short_names():
            return self.inner.bounds(self._long(partition))

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        with self._short_names():
            self.inner.bounds(self._long(partition))
            return self.inner.read(self._long(partition), offset, max_bytes)

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        asked = list(dict.fromkeys(partitions))
        with self._short_names():
            found = self.inner.all_bounds(map(self._long, asked))
        return dict(zip(asked, found.values(), strict=True))

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        found = self.inner.open_transactions(map(self._long, partitions))
        return {self._short(partition): each for partition, each in found.items()}

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        with self._short_names():
            self.inner.expect({self._long(each): span for each, span in spans.items()})

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        return self.inner.at_hand(self._long(partition), offset)

    def leave(self, partition: TopicPartition) -> None:
        self.inner.leave(self._long(partition))

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        with self._short_names():
            self.inner.transactional(self._long(partition), committed)

    def send(
        self,
        owner: int,
        token: int,
        partition: TopicPartition,
        value: bytes,
        *,
        fence: int | None = None,
        sync: bool = False,
        outputs: Sequence[ExternalRecord] = (),
    ) -> None:
        with self._short_names():
            long = [record._replace(partition=self._long(record.partition)) for record in outputs]
            self.inner.send(owner, token, self._long(partition), value, fence=fence, sync=sync, outputs=long)
            self._unanswered += 1

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        with self._short_names():
            long = [record._replace(partition=self._long(record.partition)) for record in records]
            self.inner.produce(owner, token, long)
            self._unanswered += 1

    def poll(self) -> list[Delivery]:
        deliveries = self.inner.poll()
        while len(deliveries) < self._unanswered:
            self.inner.wait(10_000)
            deliveries += self.inner.poll()
        self._unanswered -= len(deliveries)
        return [each._replace(ends=tuple((self._short(at), end) for at, end in each.ends)) for each in deliveries]

    def wait(self, timeout_ms: float, *, answers: bool = True) -> bool:
        return self.inner.wait(timeout_ms, answers=answers)

    def trim(self, partition: TopicPartition, before: int) -> None:
        with self._short_names():
            self.inner.trim(self._long(partition), before)

    def report_processed(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        self.inner.report_processed({self._long(partition): offset for partition, offset in positions.items()}, asked)

    def processed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        found = self.inner.processed([self._long(partition) for partition in partitions])
        return {self._short(partition): offset for partition, offset in found.items()}

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        return self.inner.asked([self._long(partition) for partition in partitions])

    def close(self) -> None:
        self.inner.close()

    def _long(self, partition: TopicPartition) -> TopicPartition:
        return partition._replace(topic=self._prefix + partition.topic)

    def _short(self, partition: TopicPartition) -> TopicPartition:
        return partition._replace(topic=partition.topic.removeprefix(self._prefix))

    @contextlib.contextmanager
    def _short_names(self) -> Iterator[None]:
        try:
            yield
        except FrameworkError as error:
            raise type(error)(str(error).replace(self._prefix, "")) from error
