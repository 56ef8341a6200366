"""Writes to a topic that a job reads, from a program that is no part of the job."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, Literal, TypeVar

from grete.api.jobs.job import Job
from grete.api.registry.schema_registry import RecordHeaders
from grete.api.serdes.key import partition_by
from grete.api.serdes.serde import first_serde
from grete.api.topics.topic import Topic, encode_record
from grete.clients.drain import Drain
from grete.closable import Closable
from grete.errors import ConfigError
from grete.feeds.spool import Spool, Spooled
from grete.job.directory import JobDirectory, directory_of
from grete.logs.address import LogAddress, check_address
from grete.ports import JobLog
from grete.protocol.frames import TIME_MS_MAX, encode_headers
from grete.settings import MiB

K = TypeVar("K")
V = TypeVar("V")

SPOOL_BYTES_MAX = 256 * MiB  # some minutes at ten thousand small records a second; small for a disk
RECORD_BYTES_MAX = 1_000_000  # of key and value: Kafka's default limit on a message is 1 MiB, with headers
CLOSE_S = 10.0  # until a log that answers has acknowledged what a program wrote at last
FULL_LOG_S = 60.0  # between two lines about a spool that is full

logger = logging.getLogger("grete")


class Writer(Closable, Generic[K, V]):
    """Writes records to a topic through a file on this machine, so that an outage of the log costs only disk.

    ``send`` returns when the record is in the file; it survives the end of the process from then on. A thread brings
    the records into the log in their order, each at least once, with the number by which
    ``BySequence.from_headers`` or ``Once`` drops a repeat. What the log has not acknowledged when the program ends is
    sent by the next Writer of this topic in this directory. Threads may share a Writer; only one process may have one.
    """

    def __init__(
        self,
        job: Job,
        topic: Topic[K, V],
        *,
        log: str = "embedded",
        kafka_config: Path | None = None,
        directory: Path | None = None,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
        when_full: Literal["block", "drop"] = "block",
    ) -> None:
        """Open the spool, below the job's ``directory``, and connect in the background: the log may be away.

        ``log``, ``kafka_config``, ``directory``: as for `grete run`. When the file has reached ``spool_bytes_max``, or
        the disk is full, ``send`` waits ("block"), or drops the newest record and counts it ("drop").
        Raises ConfigError: the job does not read the topic, another process has the spool.
        """
        address = LogAddress(log, kafka_config)
        check_address(address)
        topology = job.topology()
        stages = [stage for stage in topology.stages if topic.name in topology.externals_of(stage.ordinal)]
        if not stages:
            raise ConfigError(f"job {job.name!r} does not read topic {topic.name!r} from outside", topic=topic.name)
        place = JobDirectory(directory_of(job, directory, address), address=address)
        self._topic = replace(topic, key=first_serde(topic.key))
        self._drops = when_full == "drop"
        self._dropped, self._told_s = 0, -FULL_LOG_S

        def partitions_of(opened: JobLog) -> int | None:
            if not address.on_kafka and opened.partitions(topic.name) is None:
                opened.create_topic(topic.name, stages[0].partitions, plain=True)
            return opened.partitions(topic.name)

        self._spool = Spool(
            place.directory / "spool" / f"{topic.name}.db", topic.name, spool_bytes_max, partition_by(topic.key)
        )
        self._drain = Drain(self._spool, lambda patience: place.open_log(patience=patience), partitions_of)

    @property
    def waiting(self) -> int:
        """Records that the log has not acknowledged."""
        return len(self._spool)

    @property
    def dropped(self) -> int:
        """Records dropped since this Writer was made, because there was no room ("drop")."""
        return self._dropped

    def send(
        self, key: K | None, value: V | None, *, timestamp: int | None = None, headers: RecordHeaders = ()
    ) -> bool:
        """Write a record, with the time now unless ``timestamp`` (ms since 1970) is given.

        ``headers``: (name, bytes or None), in order; those that number the record come behind them. Return whether it
        is kept: False only with "drop". Raises SerdeError, ConfigError (too large, no such time), and what keeps
        records from the log for good: ConfigError (no such topic, no permission), Halted.
        """
        if timestamp is not None and (type(timestamp) is not int or abs(timestamp) > TIME_MS_MAX):
            raise ConfigError(f"timestamp = {timestamp!r}: need ms since 1970 as an INT64", topic=self._topic.name)
        raw_key, raw_value, raw_headers = encode_record(self._topic, key, value, headers)
        time_ms = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        record = [Spooled(raw_key, raw_value, time_ms, encode_headers(raw_headers) if raw_headers else None)]
        while not self.offer(record):
            self._dropped += self._drops
            if time.monotonic() - self._told_s >= FULL_LOG_S:
                self._told_s = time.monotonic()
                told = {"topic": self._topic.name, "records": self.waiting, "dropped": self._dropped}
                logger.warning("spool full", extra=told)
            if self._drops:
                return False
            self._drain.wait_for_room()
        return True

    def offer(self, records: Sequence[Spooled]) -> bool:
        """Write records whose keys and values are bytes already. Return False if there is no room: then none is kept.

        Raises ConfigError (too large), and what keeps records from the log, as ``send`` does.
        """
        for key, value, _, headers in records:
            size = len(key or b"") + len(value or b"") + len(headers or b"")
            if size > RECORD_BYTES_MAX:
                raise ConfigError(
                    f"a record of {size} bytes for topic {self._topic.name!r}: at most {RECORD_BYTES_MAX}: split it",
                    topic=self._topic.name,
                )
        return self._drain.append(records)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until the log has acknowledged all that was sent, or the time is over; return whether it has.

        Raises what keeps records from the log and will not pass: ConfigError, Halted. So does ``close``.
        """
        return self._drain.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait for the log, but not for long. What it has not acknowledged stays in the spool for the next Writer."""
        try:
            self.flush(timeout_s)
        finally:
            self._drain.close()
            self._spool.close()
