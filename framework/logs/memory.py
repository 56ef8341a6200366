"""The log in memory: the same port in plain lists, for the test kit and as the base of the simulator's log."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

from grete.errors import OffsetOutOfRange
from grete.logs.topic_identity import check_count, check_topic, no_partition
from grete.open_transaction import OpenTransaction
from grete.ports import Delivery, ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition

ROW_BYTES = 48  # what a row counts beside its blobs, as in the embedded log


class MemoryPartition:
    """One partition: ``rows`` in the order of their offsets, from ``start`` on. An input may have gaps, as Kafka's."""

    __slots__ = ("append_time_ms", "fence", "open_from", "rows", "start")

    def __init__(self) -> None:
        """Start empty, at offset 0, with no fence."""
        self.start = 0
        self.rows: list[LogRow] = []
        self.fence = -1
        self.append_time_ms = 0
        self.open_from: int | None = None  # where a transaction begins that another's producer has open

    @property
    def end(self) -> int:
        """The offset of the next message to come."""
        return max(self.start, self.rows[-1].offset + 1) if self.rows else self.start

    @property
    def stable_end(self) -> int:
        """The offset before which all can be read."""
        return self.end if self.open_from is None else self.open_from

    def index(self, offset: int) -> int:
        """Return the number of rows before an offset."""
        rows, index = self.rows, offset - self.start
        if not rows or offset > rows[-1].offset:
            return len(rows)
        if 0 <= index < len(rows) and rows[index].offset == offset:
            return index
        return bisect_left(rows, offset, key=itemgetter(0))  # there are gaps, which is rare


class MemoryLogData:
    """The shared state of all connections to one log. ``clock`` gives the time in ms; append times never decrease."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Start without topics."""
        self.clock = clock
        self.partition_counts: dict[str, int] = {}
        self.partitions: dict[TopicPartition, MemoryPartition] = {}
        self.processed: dict[TopicPartition, int] = {}  # as their readers have reported
        self.asked: dict[TopicPartition, int] = {}  # checkpoints, likewise

    def partition(self, partition: TopicPartition) -> MemoryPartition:
        """Return the partition. Raises ConfigError if there is none."""
        found = self.partitions.get(partition)
        if found is None:
            raise no_partition(partition, self.partition_counts.get(partition.topic))
        return found

    def append(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        headers: bytes | None,
    ) -> tuple[int, int]:
        """Append one message (``timestamp_ms`` None: its append time). Return its offset and append time."""
        into = self.partition(partition)
        offset = into.end
        into.append_time_ms = time_ms = max(into.append_time_ms, self.clock())
        at_ms = time_ms if timestamp_ms is None else timestamp_ms
        into.rows.append(LogRow(offset, time_ms, at_ms, key, value, headers))
        return offset, time_ms

    def begin_transaction(self, partition: TopicPartition) -> None:
        """Let no reader see what is appended from now on, as while another's producer has a transaction open."""
        self.partition(partition).open_from = self.partition(partition).end

    def end_transaction(self, partition: TopicPartition) -> None:
        """Let readers see all of it."""
        self.partition(partition).open_from = None


class MemoryLog:
    """grete.ports.Log: one connection to a MemoryLogData. Dropping it loses what it queued, as a kill does."""

    def __init__(self, data: MemoryLogData) -> None:
        """Connect; any number of connections may share the data, all in one thread."""
        self.data = data
        self._queue: list[tuple[int, int, TopicPartition | None, bytes, int | None, Sequence[ExternalRecord]]] = []

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False) -> None:
        """Make sure that the topic exists. Raises ConfigError: a bad name, or it has another number of partitions."""
        check_topic(topic, partitions)
        found = self.data.partition_counts.setdefault(topic, partitions)
        check_count(topic, found, partitions)
        for number in range(partitions):
            self.data.partitions.setdefault(TopicPartition(topic, number), MemoryPartition())

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""
        return self.data.partition_counts.get(topic)

    def topics(self) -> Sequence[str]:
        """Return the names of all topics, sorted."""
        return sorted(self.data.partition_counts)

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (offset of the first message still there, offset of the next message to come)."""
        found = self.data.partition(partition)
        return found.start, found.stable_end

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each."""
        return {partition: self.bounds(partition) for partition in partitions}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return the open transaction behind the bounds of each partition that has one."""
        found = {}
        for partition in partitions:
            of = self.data.partition(partition)
            if of.open_from is not None and of.open_from < of.end:
                row = of.rows[of.index(of.open_from)]
                found[partition] = OpenTransaction(row.offset, of.end, row.timestamp_ms, row.key)
        return found

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on: at least one if there is one, then up to about ``max_bytes``.

        Raises OffsetOutOfRange.
        """
        found = self.data.partition(partition)
        if not found.start <= offset <= found.stable_end:
            raise OffsetOutOfRange(
                f"{partition}: offset {offset} is outside of {found.start} to {found.stable_end}",
                partition=partition,
                offset=offset,
            )
        first = stop = found.index(offset)
        end = len(found.rows) if found.open_from is None else found.index(found.open_from)
        while stop < end and (max_bytes > 0 or stop == first):
            row = found.rows[stop]
            max_bytes -= ROW_BYTES + len(row.key or b"") + len(row.value or b"") + len(row.headers or b"")
            stop += 1
        return found.rows[first:stop]

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        """Nothing to do: outputs always appear with their message."""
        self.data.partition(partition)

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
        """Queue one internal message; see grete.ports.Log."""
        for each in (partition, *(record.partition for record in outputs)):
            self.data.partition(each)
        self._queue.append((owner, token, partition, value, fence, tuple(outputs)))

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records; one delivery for all of them (offset: of the last, -1 if there are none)."""
        for record in records:
            self.data.partition(record.partition)
        self._queue.append((owner, token, None, b"", None, tuple(records)))

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Do nothing: nothing is fetched ahead."""

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Return True: no read waits."""
        return True

    def leave(self, partition: TopicPartition) -> None:
        """Do nothing: nothing is fetched ahead."""

    def poll(self) -> list[Delivery]:
        """Append all that is queued, in order, and return the deliveries."""
        queue, self._queue = self._queue, []
        deliveries = []
        for owner, token, partition, value, fence, outputs in queue:
            offset, time_ms = -1, self.data.clock()
            ends: dict[TopicPartition, int] = {}
            if partition is not None:
                into = self.data.partition(partition)
                if fence is not None and into.fence > fence:
                    deliveries.append(Delivery(owner, token, -1, max(into.append_time_ms, time_ms), True))
                    continue
                into.fence = into.fence if fence is None else fence
                offset, time_ms = self.data.append(partition, None, value, None, None)
            for record in outputs:
                placed = self.data.append(
                    record.partition, record.key, record.value, record.timestamp_ms, record.headers
                )
                if partition is None:
                    offset, time_ms = placed
                    ends[record.partition] = offset + 1
            deliveries.append(Delivery(owner, token, offset, time_ms, ends=tuple(ends.items())))
        return deliveries

    def wait(self, timeout_ms: float, *, answers: bool = True) -> bool:
        """Return at once: nothing can happen while this thread waits."""
        return True

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages with offset < ``before``; a no-op if they are gone. Raises OffsetOutOfRange."""
        found = self.data.partition(partition)
        if before > found.end:
            raise OffsetOutOfRange(
                f"{partition}: cannot trim before {before}: the log ends at {found.end}",
                partition=partition,
                offset=before,
            )
        if before > found.start:
            del found.rows[: found.index(before)]
            found.start = before

    def report_processed(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        """Tell producers how far their reader is, and what it asks for, at once."""
        self.data.processed.update(positions)
        self.data.asked.update(dict.fromkeys(positions, asked))

    def processed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the positions that were reported last."""
        known = self.data.processed
        return {partition: known[partition] for partition in partitions if partition in known}

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        """Return the highest checkpoint that was asked for last."""
        return max((self.data.asked.get(partition, 0) for partition in partitions), default=0)

    def close(self) -> None:
        """Give up what is queued and was not polled."""
        self._queue = []
