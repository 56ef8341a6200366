"""The members' topic of a job on Kafka: the last rows first, then each row as it comes, and plain writes."""

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from grete.errors import ConfigError, FrameworkError, LogAway, TransientError
from grete.logs.kafka.admin import Topics
from grete.logs.kafka.client.config import scrubber, split_options
from grete.logs.kafka.client.errors import AWAY, Troubles, failed, failure, logger
from grete.logs.kafka.client.metadata_client import SPREAD_S_MAX, MetadataClient
from grete.logs.kafka.client.tls_diagnosis import ClientOptions
from grete.logs.kafka.read.consumer import STUCK_S
from grete.logs.patience import Patience
from grete.protocol.ids import TopicPartition

TAIL_ROWS = 1_000  # read at a start: of ten members those of 50 s, so at least one assignment
ROWS_MAX = 500  # taken in one go
FETCH_WAIT_MS = 500  # of an idle fetch: the broker answers at once when there is something
FLUSH_S_MAX = 2.0  # for the last words of a member
STARTED_S_MAX = 0.01  # between two looks for a topic that was just made

_GAPLESS = "enable.gapless.guarantee"  # a heartbeat that is given up stops nothing behind it

# Kept for an hour: who joins reads the last rows only, and a person may want to see what has moved.
CONFIG = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}


def members_topic(job: str) -> str:
    """Return the topic of a job's members."""
    return f"{job}.members"


class _Progress:
    """Rows read and messages acknowledged: what this member has written comes back to it, or its client is stuck."""

    def __init__(self, position: int = 0) -> None:
        """``position``: the offset to read from."""
        self.position = position
        self._acknowledged = 0  # behind the last message of this member that the log has
        self._since_s = 0.0  # since when one of these has not come

    def read(self, offset: int) -> None:
        """Note the last row that has come."""
        self.position, self._since_s = offset + 1, time.monotonic()

    def wrote(self, offset: int) -> None:
        """Note a message that the log has."""
        if self.position >= self._acknowledged:
            self._since_s = time.monotonic()
        self._acknowledged = offset + 1

    @property
    def stuck(self) -> bool:
        """Whether nothing has come for STUCK_S of what is there."""
        return self.position < self._acknowledged and time.monotonic() - self._since_s > STUCK_S


class KafkaMembersTopic:
    """Rows as (offset, append time in ms, bytes). Not thread safe. ``failure``: what keeps it from being written."""

    def __init__(
        self, bootstrap: str, options: ClientOptions | None, job: str, patience: Patience, *, write: bool = True
    ) -> None:
        """Make the topic if it is not there and ``write``; begin near its end.

        Raises ConfigError: a right is missing, or the topic has more than one partition; LogAway.
        """
        self.topic = members_topic(job)
        producer, consumer, admin = split_options(bootstrap, job, options or {})
        troubles = Troubles(scrubber(options or {}))
        self.failure: FrameworkError | None = None
        self.end = 0  # where the topic ended when it was opened
        self.unwritten = 0  # messages that are not acknowledged yet
        self._lost = False  # where it read is no part of the topic any more, and the log has still to say what is
        self._progress = _Progress()
        plain = {name: value for name, value in producer.items() if name != _GAPLESS}
        self._producer: Producer | None = troubles.made(Producer, plain) if write else None
        self._connect: Callable[[], Consumer] = partial(
            troubles.made, Consumer, consumer | {"fetch.wait.max.ms": FETCH_WAIT_MS}
        )
        self._consumer = self._connect()
        self._metadata_client = MetadataClient(consumer, troubles, bootstrap, patience)
        self._partition = TopicPartition(self.topic, 0)
        try:
            self.there = self._found(Topics(admin, troubles, patience) if write else None)
            if self.there:
                self._begin()
        except BaseException:
            self.close()
            raise

    def _found(self, topics: Topics | None) -> bool:
        """Tell whether the topic is there; make it first if it may be made."""
        found = self._metadata_client.partitions(self.topic)
        if found is None and topics is not None:
            topics.create(self.topic, 1, CONFIG)
            deadline = time.monotonic() + SPREAD_S_MAX
            while (found := self._metadata_client.partitions(self.topic)) is None:
                if time.monotonic() > deadline:
                    raise TransientError(f"topic {self.topic} was made but is not there: start again", topic=self.topic)
                time.sleep(STARTED_S_MAX)
        if found is not None and found != 1:
            raise ConfigError(
                f"topic {self.topic} has {found} partitions, and the members of a job need the one order of one: "
                "delete it while no member runs, and the next start makes it",
                topic=self.topic,
            )
        return found is not None

    def _begin(self) -> None:
        """Read the last rows next."""
        start, self.end = self._metadata_client.bounds(self._partition)
        self._progress = _Progress(max(start, self.end - TAIL_ROWS))
        self._assign()

    def _assign(self) -> None:
        self._consumer.assign([KafkaPartition(*self._partition, self._progress.position)])

    def _begin_again(self) -> None:
        with contextlib.suppress(LogAway):  # it may answer the next time, and workers go on meanwhile
            self._begin()
            self._lost = False

    def read(self, seconds: float) -> list[tuple[int, int, bytes]]:
        """Return the messages that have come, after ``seconds`` at the latest. Raises ConfigError: no right to read."""
        if self._producer is not None:
            self._producer.poll(0)
        if self._lost:
            self._begin_again()
        first = self._consumer.poll(seconds)
        rows = []
        for message in () if first is None else (first, *self._consumer.consume(ROWS_MAX, 0)):
            error = message.error()
            if error is None:
                rows.append((int(message.offset() or 0), int(message.timestamp()[1]), bytes(message.value() or b"")))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._lost = True  # what was to be read has been deleted, or the topic was made again
            elif error.code() not in {*AWAY, KafkaError._PARTITION_EOF}:
                raise failure(error, f"reading {self.topic}", f"Read on topic {self.topic}")
        if rows:
            self._progress.read(rows[-1][0])
        elif self._progress.stuck:
            self._connect_afresh()
        return rows

    def _connect_afresh(self) -> None:
        """Go on with another client: one may fetch no more what is there, after the death of its broker."""
        offset = self._progress.position
        logger.warning("fetches afresh", extra={"partition": str(self._partition), "offset": offset})
        threading.Thread(target=self._consumer.close, name="end of a reading client", daemon=True).start()
        self._consumer, self._progress = self._connect(), _Progress(offset)
        self._assign()

    def write(self, data: bytes) -> None:
        """Send a message; it is on its way while ``unwritten`` counts it."""
        assert self._producer is not None
        try:
            self._producer.produce(self.topic, data, partition=0, on_delivery=self._written)
        except (BufferError, KafkaException) as error:
            if isinstance(error, KafkaException):
                self.failure = failed(error, f"writing to {self.topic}", f"Write on topic {self.topic}")
            return
        self.unwritten += 1
        self._producer.poll(0)

    def _written(self, error: KafkaError | None, message: Message) -> None:
        self.unwritten -= 1
        if error is None:
            self._progress.wrote(message.offset() or 0)
        elif error.code() not in AWAY:
            self.failure = failure(error, f"writing to {self.topic}", f"Write on topic {self.topic}")

    def flush(self) -> None:
        """Wait for what is on its way, a moment."""
        if self._producer is not None:
            self._producer.flush(FLUSH_S_MAX)

    def close(self) -> None:
        """Disconnect; what is on its way is given up."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)
        self._consumer.close()
        self._metadata_client.close()
