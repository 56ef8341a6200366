"""Feeds a folder's text files into a topic: name → text, None when a file is gone. Each change once, whatever crashes.

The log's own file holds a manifest of the files that were fed, written in the transaction that appends the documents.
So a second run over an unchanged folder appends nothing, and a crash loses and repeats nothing.
"""

import errno
import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from framework.errors import ConfigError
from framework.ports import ExternalRecord, JobMetadata
from protocol.ids import TopicPartition
from protocol.partitioner import partition_of

EXCLUDED = ("__pycache__", ".git", ".grete", "site-packages")  # copies, caches, jobs, other people's files
FILE_BYTES_MAX = 8 << 20  # a larger file is left out: it is data or a log, not a document
PROBE_BYTES = 8 << 10  # a NUL byte in here means: not text
BATCH_BYTES = 1 << 20  # of text in one transaction: bounds memory, and lets workers start on the first files
BATCH_FILES = 200  # in one transaction
RACY_NS = 2_000_000_000  # a file changed so recently may change again without a new time stamp: it is read again

DAMAGED = "not UTF-8, damaged characters replaced"  # counted, but fed
UNREADABLE = "unreadable"  # what was fed of it before stays as it is: nothing is known of it now
BINARY = "binary"
HUGE = "too large"
VANISHED = "vanished while it was read"
LINK = "symbolic link, not followed"
SPECIAL = "not a regular file, not opened"


class Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the manifest knows of a path. ``digest`` is empty when the file gave no document, ``reason`` says why."""

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

    records: list[ExternalRecord] = field(default_factory=list)
    entries: dict[str, Entry | None] = field(default_factory=dict)  # None: no such file any more
    size_bytes: int = 0


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
        self._log = log
        self._topic = topic
        partitions = log.partitions(topic)
        if partitions is None:
            raise ConfigError(f"no topic {topic!r} to feed a folder into: create the job's topics first", topic=topic)
        self._partitions = partitions
        try:
            self.root = root.resolve(strict=True)
        except OSError as error:
            raise ConfigError(f"no folder {root} to feed: {error.strerror}") from error
        if not self.root.is_dir():
            raise ConfigError(f"{root} is a file: give the folder that it is in")
        self._exclude = b"" if exclude is None else os.fsencode(exclude.resolve())
        self._file_bytes_max = file_bytes_max
        self.batch_files_max = BATCH_FILES
        self._prefix = f"feed/{topic}/"
        root_key, root_value = f"feed-root/{topic}", os.fsencode(self.root)
        before = log.meta_get(root_key)
        if before is not None and before != root_value:
            raise ConfigError(
                f"topic {topic!r} holds the documents of {os.fsdecode(before)}, not of {self.root}: "
                "choose another --directory for this folder; on Kafka, another cluster, or delete the job's topics",
                topic=topic,
            )
        if before is None:
            log.produce_with_meta([], {root_key: root_value})
        decode = msgspec.msgpack.Decoder(Entry).decode
        items = log.meta_items(self._prefix)
        self._manifest = {key[len(self._prefix) :]: decode(value) for key, value in items}
        self._clock_ns = clock_ns
        self.report = ScanReport()

    @property
    def documents(self) -> int:
        """Documents that the topic holds now."""
        return sum(1 for entry in self._manifest.values() if entry.digest)

    def scan(self) -> Iterator[ScanReport]:
        """Compare the folder with the manifest and append what differs, a batch at each step. Raises ConfigError."""
        report = self.report = ScanReport()
        listing = _Listing(self.root, self._exclude, report.skipped)
        work: list[tuple[str, bytes | None]] = []  # name, path; no path: it is gone
        for name, path, status in listing.files():
            entry = self._manifest.get(name)
            if entry is not None and (entry.mtime_ns, entry.size) == (status.st_mtime_ns, status.st_size):
                report.counts["unchanged"] += 1
                if entry.reason:
                    report.skipped[entry.reason] += 1
            else:
                work.append((name, path))
        work += [(name, None) for name in self._manifest if name not in listing.names and not listing.hides(name)]
        report.planned = len(work)
        yield report
        batch = _Batch()
        for name, source in work:
            if source is None:
                self._remove(batch, name)
            else:
                self._read(batch, name, source)
            report.done += 1
            if batch.size_bytes >= BATCH_BYTES or len(batch.entries) >= self.batch_files_max:
                self._append(batch)
                batch = _Batch()
                yield report
        self._append(batch)
        yield report

    def _append(self, batch: _Batch) -> None:
        """Append documents and manifest in one transaction; only then is it true here, too."""
        if not batch.entries:
            return
        encode = msgspec.msgpack.Encoder().encode
        meta = {self._prefix + name: None if entry is None else encode(entry) for name, entry in batch.entries.items()}
        self._log.produce_with_meta(batch.records, meta)
        for name, entry in batch.entries.items():
            if entry is None:
                del self._manifest[name]
            else:
                self._manifest[name] = entry

    def _read(self, batch: _Batch, name: str, path: bytes) -> None:
        """Plan what one new or changed file needs."""
        counts, skipped, before = self.report.counts, self.report.skipped, self._manifest.get(name)
        try:
            data, status, stable = _contents(path, self._file_bytes_max)
        except FileNotFoundError:
            skipped[VANISHED] += 1
            self._remove(batch, name)
            return
        except _NotRegular:
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
                text = data
            except UnicodeDecodeError:
                reason, text = DAMAGED, data.decode(errors="replace").encode()
            digest = hashlib.blake2b(data, digest_size=16).digest()
        if reason:
            skipped[reason] += 1
        racy = not stable or abs(self._clock_ns() - status.st_mtime_ns) < RACY_NS
        entry = Entry(-1 if racy else status.st_mtime_ns, status.st_size, digest, reason)
        known = before is not None and bool(before.digest)
        if digest and not (before is not None and before.digest == digest):
            counts["changed" if known else "new"] += 1
            self._record(batch, name, text)
        elif known and not digest:
            counts["deleted"] += 1  # it became binary or huge: its old text must not be found any more
            self._record(batch, name, None)
        elif digest:
            counts["touched"] += 1
        batch.entries[name] = entry

    def _remove(self, batch: _Batch, name: str) -> None:
        """Plan the end of a document, if there was one."""
        before = self._manifest.get(name)
        if before is None:
            return
        batch.entries[name] = None
        if before.digest:
            self.report.counts["deleted"] += 1
            self._record(batch, name, None)

    def _record(self, batch: _Batch, name: str, text: bytes | None) -> None:
        key = name.encode()
        partition = TopicPartition(self._topic, partition_of(key, self._partitions))
        batch.records.append(ExternalRecord(partition, key, text, self._clock_ns() // 1_000_000))
        batch.size_bytes += len(text or b"")


class _NotRegular(Exception):
    """What was a file when it was listed is something else when it is opened."""


class _Listing:
    """The files below a folder, without following links, so that there are no loops and nothing from outside."""

    def __init__(self, root: Path, exclude: bytes, skipped: Counter[str]) -> None:
        self._root = os.fsencode(root)
        self._exclude = exclude
        self._skipped = skipped
        self._hidden: list[str] = []  # directories that could not be listed: what is in them is not known to be gone
        self.names: set[str] = set()

    def files(self) -> Iterator[tuple[str, bytes, os.stat_result]]:
        """Yield (name, path, status) of each regular file. Raises ConfigError if the root is gone."""
        pending = [self._root]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                self._cannot_list(folder, error)
                continue
            for entry in entries:
                if entry.is_symlink():
                    self._skipped[LINK] += 1
                elif entry.is_dir(follow_symlinks=False):
                    if os.fsdecode(entry.name) not in EXCLUDED and entry.path != self._exclude:
                        pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    self._skipped[SPECIAL] += 1
                elif (status := _status(entry)) is None:
                    self._skipped[VANISHED] += 1
                else:
                    name = self._name(entry.path)
                    self.names.add(name)
                    yield name, entry.path, status

    def _cannot_list(self, folder: bytes, error: OSError) -> None:
        if folder == self._root:
            raise ConfigError(
                f"cannot list {os.fsdecode(folder)}: {error.strerror}: nothing was fed or deleted; check the folder"
            ) from error
        if not isinstance(error, FileNotFoundError):  # else it is gone with all that was in it
            self._skipped[UNREADABLE] += 1
            self._hidden.append(self._name(folder) + "/")

    def _name(self, path: bytes) -> str:
        return name_of(path[len(self._root) :].lstrip(b"/"))

    def hides(self, name: str) -> bool:
        """Whether the name is below a directory that could not be listed."""
        return any(name.startswith(folder) for folder in self._hidden)


def _status(entry: "os.DirEntry[bytes]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _contents(path: bytes, bytes_max: int) -> tuple[bytes | None, os.stat_result, bool]:
    """Return (bytes, status, whether it did not change meanwhile); no bytes if there are more than ``bytes_max``.

    Raises OSError; _NotRegular without having waited for a fifo's other end or woken a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _NotRegular from error
        raise
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise _NotRegular
        if before.st_size > bytes_max:
            return None, before, True
        pieces: list[bytes] = []
        left = bytes_max + 1  # it may grow meanwhile
        while left > 0 and (piece := os.read(handle, left)):
            pieces.append(piece)
            left -= len(piece)
        after = os.fstat(handle)
    finally:
        os.close(handle)
    data = b"".join(pieces)
    stable = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and len(data) == after.st_size
    return (None if len(data) > bytes_max else data), after, stable


def name_of(path: bytes) -> str:
    """Return the document name of a relative path."""
    text = path.replace(b"\\", b"\\\\").decode("utf-8", "surrogateescape")
    return "".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text)
