"""Feeds a folder's text files into a topic: name → text, None when a file is gone. Each change once, whatever crashes.

The log's own file holds a manifest of the files that were fed, written in the transaction that appends the documents.
So a second run over an unchanged folder appends nothing, and a crash loses and repeats nothing. On Kafka the records go
out before the manifest: what a feed that was killed in between writes again has the same number (feeds.numbers).
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from grete.core.changelog.damage import entry as reading
from grete.errors import ConfigError
from grete.feeds.lines import MARK
from grete.feeds.listing import SPECIAL, UNREADABLE, VANISHED, Listing, NotRegular, contents
from grete.feeds.numbers import PlannedNumbers
from grete.ports import ExternalRecord, JobMetadata
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of

FILE_BYTES_MAX = 8 << 20  # a larger file is left out: it is data or a log, not a document
PROBE_BYTES = 8 << 10  # a NUL byte in here means: not text
BATCH_BYTES = 1 << 20  # of text in one transaction: bounds memory, and lets workers start on the first files
BATCH_FILES = 200  # in one transaction
BATCH_NAMES_BYTES = 256 << 10  # names of one transaction: a plan with two of them is a message that a broker takes
RACY_NS = 2_000_000_000  # a file changed so recently may change again without a new time stamp: it is read again

DAMAGED = "not UTF-8, damaged characters replaced"  # counted, but fed
BINARY = "binary"
HUGE = "too large"


class FolderEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The manifest's entry of a path. ``digest`` is empty when the file gave no document, ``reason`` says why."""

    mtime_ns: int  # -1: read it again, it was changing
    size: int
    digest: bytes
    reason: str = ""


@dataclass
class ScanReport:
    """One scan: files by what became of them, and by the reason why something was skipped."""

    planned: int = 0  # files to be read, and documents to be deleted
    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)  # new, changed, deleted, unchanged, touched
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def fed(self) -> int:
        """Records appended."""
        return self.counts["new"] + self.counts["changed"] + self.counts["deleted"]


@dataclass
class _Batch:
    """The records and metadata that the next transaction appends."""

    records: list[tuple[bytes, ExternalRecord]] = field(default_factory=list)  # with the digests of their files
    entries: dict[str, FolderEntry | None] = field(default_factory=dict)  # None: no such file any more
    size_bytes: int = 0
    names_bytes: int = 0

    def full(self, files_max: int) -> bool:
        """Tell whether it is to be appended before more is added."""
        sizes = self.size_bytes >= BATCH_BYTES or self.names_bytes >= BATCH_NAMES_BYTES
        return sizes or len(self.entries) >= files_max


class FolderManifest:
    """The files that were fed into a topic, as the log knows them: ``entries`` by name, ``numbers`` of their records.

    ``doubtful``: names of documents whose newest text may be in the topic already: they are written again.
    """

    def __init__(self, log: JobMetadata, topic: str, root: Path) -> None:
        """Read it. Raises ConfigError: the topic holds the documents of another folder than ``root``."""
        self._log = log
        self._prefix, self._plan_key = f"feed/{topic}/", f"feed-plan/{topic}"
        root_key, root_value = f"feed-root/{topic}", os.fsencode(root)
        before = log.meta_get(root_key)
        if before is not None and before != root_value:
            raise ConfigError(
                f"topic {topic!r} holds the documents of {os.fsdecode(before)}, not of {root}: "
                "choose another --directory for this folder; on Kafka, another cluster, or delete the job's topics",
                topic=topic,
            )
        if before is None:
            log.produce_with_meta([], {root_key: root_value})
        decode = msgspec.msgpack.Decoder(FolderEntry).decode
        items = log.meta_items(self._prefix)
        with reading(f"{self._prefix}…"):
            self.entries = {key[len(self._prefix) :]: decode(value) for key, value in items}
        with reading(self._plan_key):
            self._numbers = PlannedNumbers(log.meta_get(self._plan_key))
        self.doubtful: set[str] = set()

    def begin(self) -> None:
        """Begin a scan: find out what an earlier one may have written."""
        self.doubtful = {key.decode() for key in self._numbers.begin()}

    def append(self, batch: _Batch) -> None:
        """Append documents and their entries in one transaction; only then is it true here, too."""
        if not batch.entries:
            return
        records = [
            record._replace(headers=self._numbers.number(record.key or b"", digest, record.partition.partition))
            for digest, record in batch.records
        ]
        encode = msgspec.msgpack.Encoder().encode
        meta = {self._prefix + name: None if entry is None else encode(entry) for name, entry in batch.entries.items()}
        keys = {record.key or b"" for record in records}
        if records:
            self._log.produce_with_meta([], {self._plan_key: self._numbers.plan()})
            meta[self._plan_key] = self._numbers.plan(without=keys)
        self._log.produce_with_meta(records, meta)
        self._numbers.written(keys)
        self.doubtful -= {key.decode() for key in keys}
        for name, entry in batch.entries.items():
            if entry is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = entry


class FolderFeed:
    r"""Feeds the regular files below ``root``. One per topic and log: the manifest belongs to the topic.

    A document's name is its path relative to the root; a byte that is not UTF-8 is written ``\xNN`` and a backslash
    ``\\``, so that two files never share a name and a name can be turned back into its file.
    """

    def __init__(
        self,
        log: JobMetadata,
        topic: str,
        root: Path,
        *,
        exclude: Path | None = None,
        file_bytes_max: int = FILE_BYTES_MAX,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Take over the manifest. ``exclude`` is a directory to leave out: the job's own, which changes as it feeds.

        Raises ConfigError: no such folder, no such topic, or it holds another folder's documents.
        """
        self._topic = topic
        partitions = log.partitions(topic)
        if partitions is None:
            raise ConfigError(f"no topic {topic!r} to feed a folder into: create the job's topics first", topic=topic)
        self._partitions = partitions
        try:
            self.root = root.resolve(strict=True)
        except OSError as error:
            raise ConfigError(f"no folder {root} to feed: {error.strerror}: name a folder of text files") from error
        if not self.root.is_dir():
            raise ConfigError(f"{root} is a file: give the folder that it is in")
        self._exclude = b"" if exclude is None else os.fsencode(exclude.resolve())
        self._file_bytes_max = file_bytes_max
        self.batch_files_max = BATCH_FILES
        self._manifest = FolderManifest(log, topic, self.root)
        self._clock_ns = clock_ns
        self.report = ScanReport()

    @property
    def documents(self) -> int:
        """Documents that the topic holds now."""
        return sum(1 for entry in self._manifest.entries.values() if entry.digest)

    def scan(self) -> Iterator[ScanReport]:
        """Compare the folder with the manifest and append what differs, a batch at each step. Raises ConfigError."""
        report = self.report = ScanReport()
        listing = Listing(self.root, self._exclude, report.skipped)
        self._manifest.begin()
        manifest, doubtful = self._manifest.entries, self._manifest.doubtful
        work: list[tuple[str, bytes | None]] = []  # name, path; no path: it is gone
        for name, path, status in listing.files():
            entry = None if name in doubtful else manifest.get(name)
            if entry is not None and (entry.mtime_ns, entry.size) == (status.st_mtime_ns, status.st_size):
                report.counts["unchanged"] += 1
                if entry.reason:
                    report.skipped[entry.reason] += 1
            else:
                work.append((name, path))
        known = [*manifest, *sorted(doubtful - manifest.keys())]
        work += [(name, None) for name in known if name not in listing.names and not listing.hides(name)]
        report.planned = len(work)
        yield report
        batch = _Batch()
        for name, source in work:
            if source is None:
                self._remove(batch, name)
            else:
                self._read(batch, name, source)
            report.done += 1
            if batch.full(self.batch_files_max):
                self._manifest.append(batch)
                batch = _Batch()
                yield report
        self._manifest.append(batch)
        yield report

    def _read(self, batch: _Batch, name: str, path: bytes) -> None:
        """Plan what one new or changed file needs."""
        counts, skipped, before = self.report.counts, self.report.skipped, self._manifest.entries.get(name)
        try:
            data, status, stable = contents(path, self._file_bytes_max)
        except FileNotFoundError:
            skipped[VANISHED] += 1
            self._remove(batch, name)
            return
        except NotRegular:
            skipped[SPECIAL] += 1
            self._remove(batch, name)
            return
        except OSError:
            skipped[UNREADABLE] += 1
            return
        reason, digest, text = "", b"", b""
        if data is None or status.st_size > self._file_bytes_max:
            reason = HUGE
        elif b"\0" in data[:PROBE_BYTES]:
            reason = BINARY
        else:
            try:
                data.decode()
                text = data.removeprefix(MARK)
            except UnicodeDecodeError:
                reason, text = DAMAGED, data.decode(errors="replace").encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
        if reason:
            skipped[reason] += 1
        racy = not stable or abs(self._clock_ns() - status.st_mtime_ns) < RACY_NS
        entry = FolderEntry(-1 if racy else status.st_mtime_ns, status.st_size, digest, reason)
        known, doubtful = before is not None and bool(before.digest), name in self._manifest.doubtful
        if digest and (doubtful or before is None or before.digest != digest):
            counts["changed" if known else "new"] += 1
            self._record(batch, name, text, digest)
        elif (known or doubtful) and not digest:
            counts["deleted"] += 1  # it became binary or huge: its old text must not be found any more
            self._record(batch, name, None, b"")
        elif digest:
            counts["touched"] += 1
        batch.entries[name] = entry

    def _remove(self, batch: _Batch, name: str) -> None:
        """Plan the end of a document, if there was one."""
        before = self._manifest.entries.get(name)
        if before is None and name not in self._manifest.doubtful:
            return
        batch.entries[name] = None
        if name in self._manifest.doubtful or (before is not None and before.digest):
            self.report.counts["deleted"] += 1
            self._record(batch, name, None, b"")

    def _record(self, batch: _Batch, name: str, text: bytes | None, digest: bytes) -> None:
        key = name.encode()
        partition = TopicPartition(self._topic, partition_of(key, self._partitions))
        batch.records.append((digest, ExternalRecord(partition, key, text, self._clock_ns() // 1_000_000)))
        batch.size_bytes += len(text or b"")
        batch.names_bytes += len(key)
