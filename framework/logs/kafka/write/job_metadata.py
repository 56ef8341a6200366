"""Metadata of a job on Kafka, in a compacted topic: its guarantee, and the progress of its feeds.

Records and the metadata about them go out one after the other, not in one transaction: if a feed is killed in between,
it feeds that batch again.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from grete.core.changelog.damage import entry as reading
from grete.errors import ConfigError
from grete.logs.kafka.write.whole_writer import WholeWriter
from grete.logs.partition_reader import rows
from grete.ports import ExternalRecord, Log, LogReader, LogRow
from grete.protocol.frames import decode_headers, encode_headers
from grete.protocol.ids import TopicPartition

_PIN, _OVER = "grete-pin", "grete-over"  # headers: which pin a record is of, and digests of what it may be over
_DIGEST_BYTES = 32  # of SHA-256

Noted = bytes | None  # None: it is not there


class Pins:
    """Decides, record by record, which pins count. ``late``: by key, what has come too late since the last one did.

    A topic compares nothing. So a record of a pin says over which entry it was made, and every reader decides as it
    reads: the first pin over an entry counts, a later one over the same entry is late. What was late may be all that
    compaction leaves of a key, so who writes next writes the entry again that counts. That record is over the late
    ones, too: it counts where compaction has left one of them and not what it was late for. A pin of several entries
    counts by its first.
    """

    def __init__(self, entries: Mapping[str, bytes]) -> None:
        """``entries`` is what counts so far, as the caller keeps it."""
        self.late: dict[str, list[Noted]] = {}
        self._entries = entries
        self._first: dict[bytes, bool] = {}  # pin → whether it counts
        self._seen = set[str]()  # of an entry whose record is compacted away nothing can be said

    def count(self, key: str, row: LogRow) -> bool:
        """Tell whether a record counts. Raises DecodeError."""
        headers = dict(decode_headers(row.headers)) if row.headers else {}
        pin, counts = headers.get(_PIN), True
        if pin is not None:
            over, now = headers.get(_OVER) or b"", _digest(self._entries.get(key))
            digests = (over[at : at + _DIGEST_BYTES] for at in range(0, len(over), _DIGEST_BYTES))
            counts = self._first.setdefault(pin, key not in self._seen or now in digests)
        self._seen.add(key)
        if counts:
            self.late.pop(key, None)
        else:
            self.late.setdefault(key, []).append(row.value)
        return counts


def pinning(at: TopicPartition, meta: Mapping[str, Noted], over: Iterable[Noted]) -> list[ExternalRecord]:
    """Return the records of a pin; the first of them counts over any of these entries."""
    headers = encode_headers([(_PIN, os.urandom(16)), (_OVER, b"".join(map(_digest, over)))])
    return [ExternalRecord(at, key.encode(), entry, 0, headers) for key, entry in meta.items()]


def _digest(entry: Noted) -> bytes:
    return bytes(_DIGEST_BYTES) if entry is None else hashlib.sha256(entry).digest()


PINS, FEEDS = 0, 1  # partitions: a worker reads the few pins, not the many entries of a feed
_FEED = "feed"


def metadata_topic(job: str) -> str:
    """Return the topic that has a job's metadata."""
    return f"{job}.notes"


class KafkaMetadataReader:
    """Metadata by name, as of the first read; none where the job has no topic for it yet."""

    def __init__(self, log: LogReader, job: str) -> None:
        """Read nothing yet."""
        self._log = log
        self.topic = metadata_topic(job)
        self._known: dict[int, dict[str, bytes]] = {}
        self._written: dict[int, int] = {}  # by partition: the offset behind what was written here
        self._hidden: dict[str, list[Noted]] = {}  # entries that count, and what came too late behind each: see Pins

    def meta_get(self, key: str) -> bytes | None:
        """Return the entry under ``key`` or None."""
        return self._read(_partition_of(key)).get(key)

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return all (key, entry) whose key starts with ``prefix``, in key order."""
        metadata = self._read(_partition_of(prefix))
        return sorted((key, entry) for key, entry in metadata.items() if key.startswith(prefix))

    def _read(self, number: int) -> dict[str, bytes]:
        """Return the entries of a partition, read at the first call: one process feeds a job."""
        if number in self._known:
            return self._known[number]
        metadata: dict[str, bytes] = {}
        partition = TopicPartition(self.topic, number)
        position, end = (0, 0) if self._log.partitions(self.topic) is None else self._log.bounds(partition)
        pins = Pins(metadata)
        for row in rows(self._log, partition, position, end, acknowledged=self._written.get(number, 0)):
            if row.key is None:
                raise ConfigError(
                    f"{partition} holds a record without a key: it is not this job's; rename the job",
                    partition=partition,
                )
            with reading(repr(row.key)):
                key = row.key.decode()
                if not pins.count(key, row):
                    continue
            metadata.pop(key, None)
            if row.value is not None:
                metadata[key] = row.value
        self._known[number] = metadata
        self._hidden |= {key: [metadata.get(key), *late] for key, late in pins.late.items()}
        return metadata


class KafkaJobMetadata(KafkaMetadataReader):
    """Metadata by name: the port of ``grete.feeds`` and of the pins to a log."""

    def __init__(self, log: Log, job: str, whole: WholeWriter | None = None) -> None:
        """``log`` is to have the topic. With ``whole``, what is produced together goes out in one transaction."""
        super().__init__(log, job)
        self._writing = log
        self._whole = whole

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""
        return self._log.partitions(topic)

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """Append plain records, then put metadata (None: delete); return when all are acknowledged.

        Return the offset of the last record, -1 if there are none or if they went out in a transaction. ``sync``
        changes nothing: what is acknowledged is on all replicas in sync.
        """
        metadata = [
            ExternalRecord(TopicPartition(self.topic, _partition_of(key)), key.encode(), entry, 0)
            for key, entry in meta.items()
        ]
        offset = -1
        if self._whole is None:
            offset = self._produce(records)
            self._produce(metadata)
        else:
            self._whole.write([*records, *metadata])
        for key, entry in meta.items():
            known = self._read(_partition_of(key))
            known.pop(key, None)
            if entry is not None:
                known[key] = entry
        return offset

    def pin(self, meta: Mapping[str, bytes | None], over: bytes | None) -> bool:
        """Put metadata if its first entry is ``over``: see grete.logs.kafka.write.job_metadata."""
        (number,) = {_partition_of(key) for key in meta}  # a pin counts as a whole where its first entry is
        at = TopicPartition(self.topic, number)
        self._written[number] = 1 + self._produce(pinning(at, meta, [over]))
        del self._known[number]
        now = self._read(number)
        return all(now.get(key) == entry for key, entry in meta.items())

    def _read(self, number: int) -> dict[str, bytes]:
        """Return the entries of a partition; what came too late is mended, also that of others."""
        found = super()._read(number)
        for key, over in self._hidden.items():
            with suppress(ConfigError):  # who may not write leaves it to the next one
                self._produce(pinning(TopicPartition(self.topic, number), {key: over[0]}, over))
        self._hidden = {}
        return found

    def _produce(self, records: Sequence[ExternalRecord]) -> int:
        if not records:
            return -1
        self._writing.produce(0, 0, records)
        while not (deliveries := self._writing.poll()):
            self._writing.wait(1_000)
        return deliveries[-1].offset


def _partition_of(key: str) -> int:
    return FEEDS if key.startswith(_FEED) else PINS
