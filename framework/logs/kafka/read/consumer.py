"""Reading from Kafka: partitions assigned by hand, what is fetched ahead kept in order, seeks that leave nothing stale.

One consumer serves all partitions. librdkafka fetches in the background; what it has fetched is moved into a queue per
partition, and a read takes from its queue without asking the broker; both by columns, with no Python code per message.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby, islice, repeat
from operator import is_, lt
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from grete.errors import OffsetOutOfRange
from grete.logs.kafka.client.errors import AWAY, Troubles, failed, failure
from grete.logs.kafka.client.metadata_client import SLICE_S, MetadataClient
from grete.logs.kafka.client.tls_diagnosis import ClientConfig
from grete.logs.kafka.read.read_ahead import ReadAhead
from grete.logs.patience import Patience
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import MiB

BATCH = 500  # messages taken from librdkafka at a time
AHEAD_BYTES_MAX = 8 * MiB  # of one partition, beside what librdkafka holds; beyond, it is not fetched for a while
STUCK_S = 10.0  # in which nothing comes of what is there, though a broker answers: then it is fetched afresh
LATE_S = 1.0  # after a seek: from then on a read waits for the fetch, and finds out whether brokers are away

logger = logging.getLogger("grete.kafka")

# Columns of messages. The client's types allow None, which is for errors: a message has all.
_TOPIC: Callable[[Message], Any] = Message.topic
_NUMBER: Callable[[Message], Any] = Message.partition
_ERROR: Callable[[Message], Any] = Message.error
_OFFSET: Callable[[Message], Any] = Message.offset


class Reader:
    """Reads partitions from any offset. Raises LogAway if no broker answers for as long as the log's owner waits."""

    def __init__(
        self, config: ClientConfig, troubles: Troubles, metadata_client: MetadataClient, patience: Patience
    ) -> None:
        """Connect in the background."""
        self._connect: Callable[[], Consumer] = partial(troubles.made, Consumer, config)
        self._consumer = self._connect()
        self._metadata_client = metadata_client
        self._patience = patience
        self._ahead: dict[tuple[str, int], ReadAhead] = {}
        self._introduced: set[str] = set()
        self._shared: frozenset[TopicPartition] = frozenset()
        self.news = False  # something came since it was last set to False

    # --- bounds ---

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (start, end), asked now. What no reader can see at the end does not count once it was read up to."""
        return self._shown(partition, *self._metadata_client.bounds(partition))

    def all_bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each, asked together."""
        return {each: self._shown(each, *found) for each, found in self._metadata_client.all_bounds(partitions).items()}

    def _shown(self, partition: TopicPartition, start: int, end: int) -> tuple[int, int]:
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

    def skipped(self, partition: TopicPartition, offset: int) -> int:
        """Return up to where there is nothing from ``offset`` on that a reader can see; ``offset``: as far as is known.

        Only of who reads on there, and has read all before it.
        """
        ahead = self._ahead.get(partition)
        return ahead.fetched if ahead is not None and ahead.asked == offset and not ahead.rows else offset

    # --- reading ---

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return rows from ``offset`` on. Empty only if there was nothing when the bounds were last looked at.

        It waits for the broker after a seek, or when less was fetched than ``bounds`` has shown.
        Raises OffsetOutOfRange.
        """
        ahead = self._ahead.get(partition)
        if ahead is None or ahead.asked != offset:
            if ahead is not None and ahead.kept is not None and (rows := ahead.kept.again(offset)) is not None:
                return rows
            ahead = self._seek(partition, offset)
        if not ahead.rows or (ahead.bytes < max_bytes and not ahead.asleep):  # else every other batch is a small rest
            self._fetch(partition, ahead)
        return ahead.take(max_bytes)

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Begin to fetch these partitions, where no other task here may be reading them from elsewhere."""
        for partition, (offset, end) in spans.items():
            ahead = self._ahead.get(partition)
            if offset <= end and (ahead is None or (ahead.asked != offset and partition not in self._shared)):
                self._begin(partition, offset, end)

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Tell whether a read from ``offset`` on returns at once; True also once its fetch takes too long."""
        ahead = self._ahead.get(partition)
        if ahead is None or ahead.asked != offset or ahead.rows or self._patience.clock_s() > ahead.late_s:
            return True
        if ahead.asleep:  # the first answer was doubtful
            self._assign(partition, ahead, assigned=False)
        self._take_what_came()
        return bool(ahead.rows) or ahead.failure is not None or ahead.fetched >= ahead.end

    def share(self, partitions: Collection[TopicPartition]) -> None:
        """Expect several readers of these partitions, each at its own offset: what one has read is kept for others."""
        self._shared = frozenset(partitions)

    def leave(self, partition: TopicPartition) -> None:
        """Drop what was fetched ahead of a partition, and fetch no more; a later read begins afresh."""
        ahead = self._ahead.pop(partition, None)
        if ahead is not None and not ahead.asleep:
            self._consumer.incremental_unassign([KafkaPartition(*partition)])

    def wait(self, seconds: float) -> None:
        """Wait for a message, for ``seconds`` at most."""
        message = self._consumer.poll(seconds)
        if message is not None:  # and what came with it, so that no thread is woken for each
            self._take((message, *self._consumer.consume(BATCH, 0)))

    def close(self) -> None:
        """Disconnect; who still looks at partitions, as a look that failed does, may leave them afterwards."""
        self._ahead.clear()
        self._consumer.close()

    # --- inside ---

    def _seek(self, partition: TopicPartition, offset: int) -> ReadAhead:
        """Begin at ``offset``; whatever was fetched before is dropped (R5)."""
        start, end = self.bounds(partition)
        if not start <= offset <= end:
            raise OffsetOutOfRange(
                f"{partition}: offset {offset} is outside of {start} to {end}", partition=partition, offset=offset
            )
        return self._begin(partition, offset, end)

    def _begin(self, partition: TopicPartition, offset: int, end: int) -> ReadAhead:
        old = self._ahead.pop(partition, None)
        ahead = self._ahead[partition] = ReadAhead(offset, end, keeps=partition in self._shared)
        ahead.late_s = self._patience.clock_s() + LATE_S
        self._assign(partition, ahead, assigned=old is not None and not old.asleep)
        return ahead

    def _assign(self, partition: TopicPartition, ahead: ReadAhead, *, assigned: bool) -> None:
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

    def _fetch(self, partition: TopicPartition, ahead: ReadAhead) -> None:
        """Take what has come until there is something for this partition, or its known end is reached."""
        if ahead.asleep:
            self._assign(partition, ahead, assigned=False)
        self._take_what_came()
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
                logger.warning("fetches afresh", extra={"partition": str(partition), "offset": ahead.fetched})
                if stuck_s > STUCK_S:
                    self._connect_afresh()
                else:
                    self._fetch_afresh(partition, ahead)
                stuck_s *= 3  # a fetch may just be slow

    def _take_what_came(self) -> None:
        messages = self._consumer.consume(BATCH, 0)
        if messages:
            self._take(messages)

    def _fetch_afresh(self, partition: TopicPartition, ahead: ReadAhead) -> None:
        """Assign a partition again: librdkafka may forget to fetch one whose broker has died and come back."""
        with contextlib.suppress(KafkaException):  # it may know nothing of it any more
            self._consumer.incremental_unassign([KafkaPartition(*partition)])
        ahead.sure, ahead.doubt = False, -1
        self._assign(partition, ahead, assigned=False)

    def _connect_afresh(self) -> None:
        """Go on with another client: after an outage of minutes one may never fetch some of its partitions again."""
        threading.Thread(target=self._consumer.close, name="end of a reading client", daemon=True).start()
        self._consumer = self._connect()
        self._introduced.clear()
        for at, ahead in self._ahead.items():
            ahead.sure, ahead.doubt = False, -1
            if not ahead.asleep:
                self._assign(TopicPartition(*at), ahead, assigned=False)

    def _raise(self, partition: TopicPartition, ahead: ReadAhead) -> None:
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

    def _take_run(self, key: tuple[str, int], ahead: ReadAhead, messages: Sequence[Message]) -> None:
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

    def _take_error(self, key: tuple[str, int], ahead: ReadAhead, error: KafkaError, offset: int) -> None:
        if error.code() != KafkaError._PARTITION_EOF:
            if error.code() not in AWAY:
                doing = f"reading {TopicPartition(*key)} at offset {ahead.fetched}"
                ahead.failure = failure(error, doing, f"Read on topic {key[0]}")
                self.news = True
        elif offset > ahead.fetched and (ahead.sure or self._is_sure(key, ahead, offset)):
            ahead.fetched = offset
            self.news = True

    def _is_sure(self, key: tuple[str, int], ahead: ReadAhead, offset: int) -> bool:
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
