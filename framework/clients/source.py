"""A source of one's own: any system that can tell positions, brought into a topic of a job, each record once.

Records and the position behind them go into the log in one transaction. So a program that is killed at any moment goes
on behind the last record that the topic has.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Generic, NamedTuple, Protocol, TypeVar

from grete.api.jobs.job import Job
from grete.api.record import K_co, V_co
from grete.api.serdes.key import partition_by
from grete.api.serdes.serde import first_serde
from grete.api.topics.topic import Topic
from grete.core.changelog.damage import entry
from grete.errors import ConfigError, TransientError
from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord, JobLog, JobMetadata
from grete.protocol.ids import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

PAUSE_S = 0.1  # between two looks at a source that had nothing
AGAIN_S, AGAIN_S_MAX = 0.2, 10.0  # from an error of the source that may pass to the next try; it doubles

logger = logging.getLogger("grete")


class SourceRecord(NamedTuple, Generic[K_co, V_co]):
    """A record of a source. ``timestamp``: ms since 1970, None: the moment at which it is written."""

    key: K_co | None
    value: V_co | None
    timestamp: int | None = None


class ExternalSource(Protocol[K_co, V_co]):
    """A system whose records, in an order that never changes, become those of a topic. Calls come one at a time.

    ``open``, ``read`` and ``close`` raise TransientError for trouble that may pass; after one has raised, ``open`` is
    the next.
    """

    name: str  # the position is kept under it: it never changes

    def open(self, position: str | None) -> None:
        """Drop what was open, and connect.

        ``read`` goes on behind ``position``, which it has returned once, in any process; None: it begins with the first
        record.
        """

    def read(self) -> tuple[Sequence[SourceRecord[K_co, V_co]], str]:
        """Return the next records, at most some thousand, and the position behind the last one.

        No records if there are none just now; the position says the same as before then.
        """

    def close(self) -> None:
        """Disconnect. Raises nothing."""


def feed(
    job: Job, topic: Topic[K, V], source: ExternalSource[K, V], place: JobDirectory, *, follow: bool = False
) -> Iterator[int]:
    """Bring the records of a source into a topic that the job reads; yield how many so far, after each transaction.

    It ends when the source has no more, or with ``follow`` when the caller stops asking. On Kafka another feed of the
    topic fences this one, in the same directory it is refused. With ``follow`` a source in trouble is tried again.
    Raises ConfigError, SerdeError, TransientError, Fenced.
    """
    readers = [stage for stage in job.stages if topic.name in job.topology().externals_of(stage.ordinal)]
    if not readers:
        raise ConfigError(f"job {job.name!r} does not read topic {topic.name!r} from outside", topic=topic.name)
    with ExitStack() as opened:
        opened.callback(os.close, place.lock_source(topic.name))
        log = place.open_log()
        opened.callback(log.close)
        if not place.address.on_kafka and log.partitions(topic.name) is None:
            log.create_topic(topic.name, job.count_of(topic.name), plain=True)
        count = log.partitions(topic.name)
        if count is None:
            raise ConfigError(f"topic {topic.name!r} is not there: check its name, or create it", topic=topic.name)
        opened.callback(source.close)
        yield from _Feed(topic, source, log, job.name, count).run(follow=follow)


class _Feed(Generic[K, V]):
    """The way of a source's records into ``partitions`` partitions of a topic."""

    def __init__(
        self, topic: Topic[K, V], source: ExternalSource[K, V], log: JobLog, job: str, partitions: int
    ) -> None:
        self._topic, self._source, self._partitions = topic, source, partitions
        self._metadata: JobMetadata = log.open_metadata(job, transactional=f"{job}.source.{topic.name}")
        self._key = f"source {topic.name}/{source.name}"
        self._partition_of = partition_by(topic.key)
        self._sent = 0

    def run(self, *, follow: bool) -> Iterator[int]:
        """Yield the number of records brought so far. Only trouble of the source is waited for, not that of the log."""
        opened, again_s = False, AGAIN_S
        while True:
            try:
                if not opened:
                    self._source.open(self._position())
                    opened = True
                records, position = self._source.read()
            except TransientError as error:
                if not follow:
                    raise
                logger.warning("source in trouble, will be tried again", extra={"error": str(error), "wait_s": again_s})
                time.sleep(again_s)
                opened, again_s = False, min(2 * again_s, AGAIN_S_MAX)
                continue
            again_s = AGAIN_S
            if not records and not follow:
                return
            if records:
                self._write(records, position)
            yield self._sent
            if not records:
                time.sleep(PAUSE_S)

    def _position(self) -> str | None:
        """Return the position behind what the topic has."""
        known = self._metadata.meta_get(self._key)
        with entry(self._key):
            return None if known is None else known.decode()

    def _write(self, records: Sequence[SourceRecord[K, V]], position: str) -> None:
        rows = [self._row(number, record) for number, record in enumerate(records, self._sent)]
        self._metadata.produce_with_meta(rows, {self._key: position.encode()}, sync=True)
        self._sent += len(rows)

    def _row(self, number: int, record: SourceRecord[K, V]) -> ExternalRecord:
        key = None if record.key is None else first_serde(self._topic.key).encode(record.key)
        value = None if record.value is None else self._topic.value.encode(record.value)
        partition = number % self._partitions if key is None else self._partition_of(key, self._partitions)
        at_ms = time.time_ns() // 1_000_000 if record.timestamp is None else record.timestamp
        return ExternalRecord(TopicPartition(self._topic.name, partition), key, value, at_ms, None)
