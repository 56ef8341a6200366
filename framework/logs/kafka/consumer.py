"""Reading from Kafka: partitions assigned by hand, what is fetched ahead kept in order, seeks that leave nothing stale.

One consumer serves all partitions. librdkafka fetches in the background; what it has fetched is moved into a queue per
partition, and a read takes from its queue without asking the broker; both by columns, with no Python code per message.
"""

import contextlib
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, groupby, islice, repeat
from operator import add, is_, itemgetter, lt
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from framework.errors import FrameworkError, OffsetOutOfRange
from framework.logs.kafka.errors import AWAY, Troubles, failed, failure
from framework.logs.kafka.metadata_client import SLICE_S, MetadataClient
from framework.logs.patience import Patience
from framework.ports import LogRow, row_of
from framework.settings import MiB
from protocol.frames import encode_headers
from protocol.ids import TopicPartition

ROW_BYTES = 48  # what a row counts beside its blobs, as in the other logs
BATCH = 500  # messages taken from librdkafka at a time
AHEAD_BYTES_MAX = 8 * MiB  # of one partition, beside what librdkafka holds; beyond, it is not fetched for a while
STUCK_S = 10.0  # in which nothing comes of what is there, though a broker answers: then it is fetched afresh
KEPT_BYTES_MAX = 2 * MiB  # read and kept for the other tasks here that read the same partition: they take turns

logger = logging.getLogger("grete.kafka")

# Columns of messages. The client's types allow None, which is for errors: a message has all.
_TOPIC: Callable[[Message], Any] = Message.topic
_NUMBER: Callable[[Message], Any] = Message.partition
_ERROR: Callable[[Message], Any] = Message.error
_OFFSET: Callable[[Message], Any] = Message.offset
_KEY: Callable[[Message], Any] = Message.key
_VALUE: Callable[[Message], Any] = Message.value
_HEADERS: Callable[[Message], Any] = Message.headers
_TIME_MS = itemgetter(1)  # of Message.timestamp
_ROW_OFFSET: Callable[[LogRow], int] = itemgetter(0)


class _PastRead(NamedTuple):
    """What one read returned, and the offset that it asked for."""

    begin: int
    bytes: int
    rows: list[LogRow]


class _Ahead:
    """One assigned partition: what was fetched and not yet read. Offsets: asked ≤ rows < fetched."""

    __slots__ = (
        "asked", "asleep", "doubt", "end", "failure", "fetched",
        "kept", "kept_bytes", "passed", "rows", "sure", "totals",
    )  # fmt: skip

    def __init__(self, offset: int, end: int, *, keeps: bool = False) -> None:
        """``keeps``: what was read may be asked for again, by another task."""
        self.asked = offset  # what a reader that goes on asks for next
        self.fetched = offset  # everything before it was fetched, or cannot be read (transaction markers)
        self.end = end  # of the partition when somebody last looked: a read does not stop short of it
        self.rows: list[LogRow] = []
        self.totals: list[int] = []  # bytes of all rows since the seek, up to and with each of ``rows``
        self.passed = 0  # bytes of those that were read
        self.asleep = False  # not assigned for now: too much is waiting here
        self.sure = False  # the first answer after the seek was the one sought
        self.doubt = -1  # the first answer after the seek, if it was another
        self.failure: FrameworkError | None = None
        self.kept: deque[_PastRead] | None = deque() if keeps else None  # the last reads
        self.kept_bytes = 0

    def add(self, offsets: Sequence[int], messages: Sequence[Message]) -> None:
        """Take messages that come after all others."""
        keys, values = list(map(_KEY, messages)), list(map(_VALUE, messages))
        times = list(map(_TIME_MS, map(Message.timestamp, messages)))
        cells = [
            encode_headers([(text, blob or b"") for text, blob in headers]) if headers else None
            for headers in map(_HEADERS, messages)
        ]
        sizes = map(add, map(add, _lengths(keys), _lengths(values)), map(add, repeat(ROW_BYTES), _lengths(cells)))
        totals = accumulate(sizes, initial=self.totals[-1] if self.totals else self.passed)
        self.totals.extend(islice(totals, 1, None))
        self.rows.extend(map(row_of, zip(offsets, times, times, keys, values, cells, strict=True)))
        self.fetched = offsets[-1] + 1

    def take(self, max_bytes: int) -> list[LogRow]:
        """Remove and return the first rows: at least one if there is one, no more than reach ``max_bytes``."""
        stop, before = bisect_left(self.totals, self.passed + max_bytes) + 1, self.passed
        rows, self.passed = self.rows[:stop], self.totals[:stop][-1] if self.rows else self.passed
        del self.rows[:stop], self.totals[:stop]
        if rows:
            if self.kept is not None:
                self._keep(self.kept, _PastRead(self.asked, self.passed - before, rows))
            self.asked = rows[-1].offset + 1
        return rows

    def again(self, offset: int) -> list[LogRow] | None:
        """Return the rows of a kept read from ``offset`` on; None: it is not kept."""
        for kept in self.kept or ():
            if kept.begin <= offset <= kept.rows[-1].offset:
                return kept.rows[bisect_left(kept.rows, offset, key=_ROW_OFFSET) :]
        return None

    def _keep(self, kept: "deque[_PastRead]", read: "_PastRead") -> None:
        kept.append(read)
        self.kept_bytes += read.bytes
        while self.kept_bytes > KEPT_BYTES_MAX and len(kept) > 1:
            self.kept_bytes -= kept.popleft().bytes

    @property
    def bytes(self) -> int:
        """What ``rows`` take."""
        return self.totals[-1] - self.passed if self.totals else 0


class Reader:
    """Reads partitions from any offset. Raises LogAway if no broker answers for as long as the log's owner waits."""

    def __init__(
        self, config: dict[str, Any], troubles: Troubles, metadata_client: MetadataClient, patience: Patience
    ) -> None:
        """Connect in the background."""
        self._consumer: Consumer = troubles.made(Consumer, config)
        self._metadata_client = metadata_client
        self._patience = patience
        self._ahead: dict[tuple[str, int], _Ahead] = {}
        self._introduced: set[str] = set()
        self._shared: frozenset[TopicPartition] = frozenset()
        self.news = False  # something came since it was last set to False

    # --- bounds ---

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (start, end), asked now. What no reader can see at the end does not count once it was read up to."""
        start, end = self._metadata_client.bounds(partition)
        ahead = self._ahead.get(partition)
        if ahead is not None:
            ahead.end = max(ahead.end, end)
            if not ahead.rows and ahead.fetched >= end > ahead.asked:
                return start, ahead.asked
        return start, end

    def seen_end(self, partition: TopicPartition) -> int:
        """Return up to where the partition is known to reach, without asking."""
        ahead = self._ahead.get(partition)
        return 0 if ahead is None else max(ahead.fetched, ahead.end)

    # --- reading ---

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return rows from ``offset`` on. Empty only if there was nothing when the bounds were last looked at.

        It waits for the broker after a seek, or when less was fetched than ``bounds`` has shown.
        Raises OffsetOutOfRange.
        """
        ahead = self._ahead.get(partition)
        if ahead is None or ahead.asked != offset:
            if ahead is not None and (rows := ahead.again(offset)) is not None:
                return rows
            ahead = self._seek(partition, offset)
        if not ahead.rows or (ahead.bytes < max_bytes and not ahead.asleep):  # else every other batch is a small rest
            self._fetch(partition, ahead)
        return ahead.take(max_bytes)

    def share(self, partitions: Collection[TopicPartition]) -> None:
        """Expect several readers of these partitions, each at its own offset: what one has read is kept for others."""
        self._shared = frozenset(partitions)

    def leave(self, partition: TopicPartition) -> None:
        """Drop what was fetched ahead of a partition, and fetch no more; a later read begins afresh."""
        ahead = self._ahead.pop(partition, None)
        if ahead is not None and not ahead.asleep:
            self._consumer.incremental_unassign([KafkaPartition(*partition)])

    def wait(self, seconds: float) -> None:
        """Return when a message has come, at the latest after ``seconds``."""
        message = self._consumer.poll(seconds)
        if message is not None:  # and what came with it, so that no thread is woken for each
            self._take((message, *self._consumer.consume(BATCH, 0)))

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    # --- inside ---

    def _seek(self, partition: TopicPartition, offset: int) -> _Ahead:
        """Begin at ``offset``; whatever was fetched before is dropped (R5)."""
        start, end = self.bounds(partition)
        if not start <= offset <= end:
            raise OffsetOutOfRange(
                f"{partition}: offset {offset} is outside of {start} to {end}", partition=partition, offset=offset
            )
        old = self._ahead.pop(partition, None)
        ahead = self._ahead[partition] = _Ahead(offset, end, keeps=partition in self._shared)
        self._assign(partition, ahead, assigned=old is not None and not old.asleep)
        return ahead

    def _assign(self, partition: TopicPartition, ahead: _Ahead, *, assigned: bool) -> None:
        """Fetch from where ``ahead`` is. A new assignment, not a seek: that fails while an assignment is under way."""
        self._introduce(partition.topic)
        try:
            if assigned:
                self._consumer.incremental_unassign([KafkaPartition(*partition)])
            self._consumer.incremental_assign([KafkaPartition(*partition, ahead.fetched)])
        except KafkaException as error:
            raise failed(error, f"reading {partition} from offset {ahead.fetched}") from error
        ahead.asleep = False

    def _introduce(self, topic: str) -> None:
        """Let the client learn who leads the topic: it looks for topics that it does not know once a second only."""
        if topic not in self._introduced:
            self._introduced.add(topic)
            with contextlib.suppress(KafkaException):  # it will find out by itself
                self._consumer.list_topics(topic, timeout=SLICE_S)

    def _fetch(self, partition: TopicPartition, ahead: _Ahead) -> None:
        """Take what has come until there is something for this partition, or its known end is reached."""
        if ahead.asleep:
            self._assign(partition, ahead, assigned=False)
        messages = self._consumer.consume(BATCH, 0)
        if messages:
            self._take(messages)
        began: float | None = None
        stuck_s = STUCK_S
        while not ahead.rows:
            if ahead.failure is not None:
                self._raise(partition, ahead)
            if ahead.asleep:  # the first answer after the seek was doubtful
                self._assign(partition, ahead, assigned=False)
            if ahead.fetched >= ahead.end:
                return
            began = self._patience.clock_s() if began is None else began
            if self._patience.over(began):
                raise self._metadata_client.no_answer(began)
            message = self._consumer.poll(SLICE_S)
            if message is not None:
                self._take((message, *self._consumer.consume(BATCH, 0)))
                continue
            self._metadata_client.waits()
            if self._patience.clock_s() - began > stuck_s and self._metadata_client.answers():
                stuck_s *= 3  # a fetch may just be slow
                self._fetch_afresh(partition, ahead)

    def _fetch_afresh(self, partition: TopicPartition, ahead: _Ahead) -> None:
        """Assign a partition again: librdkafka may forget to fetch one whose broker has died and come back."""
        logger.warning("fetches afresh", extra={"partition": str(partition), "offset": ahead.fetched})
        with contextlib.suppress(KafkaException):  # it may know nothing of it any more
            self._consumer.incremental_unassign([KafkaPartition(*partition)])
        ahead.sure, ahead.doubt = False, -1
        self._assign(partition, ahead, assigned=False)

    def _raise(self, partition: TopicPartition, ahead: _Ahead) -> None:
        """Raise what went wrong in a partition; a later read begins afresh."""
        self._consumer.incremental_unassign([KafkaPartition(*partition)])
        del self._ahead[partition]
        error = ahead.failure
        assert error is not None
        if isinstance(error, OffsetOutOfRange):
            start, end = self.bounds(partition)
            raise OffsetOutOfRange(
                f"{partition}: offset {ahead.fetched} is outside of {start} to {end}",
                partition=partition,
                offset=ahead.fetched,
            ) from error
        raise error

    def _take(self, messages: Sequence[Message]) -> None:
        """Move messages to their partitions' queues."""
        start = 0
        sound = map(is_, map(_ERROR, messages), repeat(None))
        for (topic, number, good), same in groupby(
            zip(map(_TOPIC, messages), map(_NUMBER, messages), sound, strict=False)
        ):
            stop = start + len(list(same))
            run, start = messages[start:stop], stop
            key = (topic, number)
            ahead = self._ahead.get(key)
            if ahead is None or ahead.asleep:
                continue
            if good:
                self._take_run(key, ahead, run)
            else:
                for message in run:
                    self._take_error(key, ahead, _ERROR(message), _OFFSET(message))

    def _take_run(self, key: tuple[str, int], ahead: _Ahead, messages: Sequence[Message]) -> None:
        """Move messages of one partition to its queue, but for those from before a seek, and let it sleep when full."""
        offsets: Sequence[int] = list(map(_OFFSET, messages))
        if offsets[0] < ahead.fetched or not all(map(lt, offsets, islice(offsets, 1, None))):
            offsets, messages = _behind(ahead.fetched, offsets, messages)
        if offsets and (ahead.sure or self._is_sure(key, ahead, offsets[0])):
            ahead.add(offsets, messages)
            self.news = True
            if ahead.bytes > AHEAD_BYTES_MAX:
                ahead.asleep = True
                self._consumer.incremental_unassign([KafkaPartition(*key)])

    def _take_error(self, key: tuple[str, int], ahead: _Ahead, error: KafkaError, offset: int) -> None:
        if error.code() != KafkaError._PARTITION_EOF:
            if error.code() not in AWAY:
                doing = f"reading {TopicPartition(*key)} at offset {ahead.fetched}"
                ahead.failure = failure(error, doing, f"Read on topic {key[0]}")
                self.news = True
        elif offset > ahead.fetched and (ahead.sure or self._is_sure(key, ahead, offset)):
            ahead.fetched = offset
            self.news = True

    def _is_sure(self, key: tuple[str, int], ahead: _Ahead, offset: int) -> bool:
        """Judge the first answer after a seek (R5).

        If there are transaction markers, it may have a higher offset than the one sought; so may something stale. What
        is there comes again when asked again, at the same offset.
        """
        if offset in (ahead.fetched, ahead.doubt):
            ahead.sure = True
        else:
            ahead.doubt = offset
            ahead.asleep = True
            self._consumer.incremental_unassign([KafkaPartition(*key)])
        return ahead.sure


def _behind(
    offset: int, offsets: Sequence[int], messages: Sequence[Message]
) -> tuple[Sequence[int], Sequence[Message]]:
    """Return those from ``offset`` on whose offsets rise, and the offsets: all others are from before a seek (R5)."""
    kept = []
    for at, message in zip(offsets, messages, strict=True):
        if at >= offset:
            kept.append((at, message))
            offset = at + 1
    return [at for at, _ in kept], [message for _, message in kept]


def _lengths(cells: Sequence[bytes | None]) -> Iterable[int]:
    """Return the length of each cell, 0 for a null."""
    return [len(cell or b"") for cell in cells] if None in cells else map(len, cells)  # type: ignore[arg-type]  # no None is among them
