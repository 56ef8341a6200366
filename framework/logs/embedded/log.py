"""The log of a job in one SQLite file: one WAL, so a power loss leaves a prefix of everything at once.

Speed comes from three things: whatever is queued goes in one transaction, a row is found by its id alone, and rows
leave SQLite as the tuples that the port wants.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from grete.errors import OffsetOutOfRange
from grete.logs.embedded.errors import BUSY_MS, corrupt
from grete.logs.embedded.file import no_log
from grete.logs.embedded.notifier import Notifier
from grete.logs.embedded.reader import VERSION_SQL, EmbeddedReader
from grete.logs.embedded.schema import OFFSET_BITS, PAGE_BYTES, crc_of, open_file, put_meta
from grete.logs.embedded.writer_queue import WriterLock
from grete.logs.topic_identity import check_count, check_topic
from grete.ports import Delivery, ExternalRecord
from grete.protocol.ids import TopicPartition

WAL_BYTES_MAX = 64 << 20  # a WAL that reached this is emptied: disk space and recovery time stay bounded
CHECKPOINT_BYTES = 4 << 20  # written here since the last copying back: little each time, so no long stall (20 ms)
CHECKPOINT_WAIT_MS = 20  # for readers of old pages: one that is stopped in mid-read must not stop all writers
TRIM_ROWS = 1_000  # deleted in one transaction: other writers, and other work of the caller, get their turn in between
TRIM_BYTES = 4 << 20  # of values in it: the pages of large ones take the longest to be freed (3 ms)

_APPEND = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?)"
_TAIL = "SELECT next, fence, append_time_ms FROM partition WHERE id = ?"
_SIZES = "SELECT coalesce(length(value), 0) FROM message WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
_MOVE = "UPDATE partition SET next = ?, fence = ?, append_time_ms = ? WHERE id = ?"

_NO_PARTITION = -1  # partition id of a queued item that has outputs only
_QueuedMessage = tuple[int, int, int, bytes | None, int | None, list[tuple[int, ExternalRecord]]]


class _Tail:
    """The end of one partition within a transaction."""

    __slots__ = ("fence", "next", "time_ms")

    def __init__(self, end: int, fence: int, time_ms: int) -> None:
        self.next, self.fence, self.time_ms = end, fence, time_ms


class EmbeddedLog(EmbeddedReader):
    """grete.ports.Log over one SQLite file that all processes of a job share. Neither thread safe nor fork safe."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Open the log; ``create`` makes the file (0600) and its directory (0700), but not the directory's parents.

        Raises ConfigError (no such directory or log, another format), Halted (corrupt), TransientError (disk full).
        """
        super().__init__(path, partial(self._connect, create))
        self._full = False  # the present PRAGMA synchronous
        self._queue: list[_QueuedMessage] = []
        self._queue_sync = False
        self._reports: dict[str, bytes] = {}  # of readers, to be written with the next poll
        self._trims: dict[TopicPartition, int] = {}  # partition → the offset before which it is being trimmed
        self._version = -1  # PRAGMA data_version when wait() returned last
        self._committed = True  # here, since wait() returned, to what is read here: data_version shows only the others'
        self._written = 0  # bytes of WAL since the last checkpoint of this process, about

    # --- topics ---

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False, grow: bool = False) -> None:
        """Make sure that the topic exists. Raises ConfigError: a bad name, or it has another number of partitions."""
        check_topic(topic, partitions)
        found = self.partitions(topic)
        if found is None or (grow and found < partitions):
            with self._transaction(sync=False):
                found = self.file.count(topic)  # another process may have made it meanwhile
                if found is None or grow:
                    rows = [(topic, number) for number in range(found or 0, partitions)]
                    self.file.sql.executemany("INSERT INTO partition (topic, partition) VALUES (?, ?)", rows)
                    found = max(found or 0, partitions)
        check_count(topic, found, partitions)

    def open_metadata(self, job: str, transactional: str | None = None) -> "EmbeddedLog":
        """Return this object: a file is one job's, and holds its metadata."""
        return self

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        """Return nothing: a topic of a file is never deleted."""
        return {}

    def watch(self, topics: Sequence[str]) -> None:
        """Do nothing: a topic of a file is never deleted."""

    def refuse_compacted(self, topic: str, stage: str) -> None:
        """Do nothing: nothing is compacted."""

    # --- writing ---

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        """Nothing to do: outputs always appear with their message."""
        self.file.number_of(partition)

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
        """Queue one internal message, see grete.ports.Log; its timestamp is its append time.

        One transaction compares the fence, appends and shows the outputs (C3, S1).
        """
        placed = [(self.file.number_of(record.partition), record) for record in outputs]
        self._queue.append((owner, token, self.file.number_of(partition), value, fence, placed))
        self._queue_sync |= sync

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records; one delivery for all (offset: of the last, -1 if there are none).

        They leave the job, so they are on disk before anybody sees them; bulk loads: produce_with_meta.
        """
        placed = [(self.file.number_of(record.partition), record) for record in records]
        self._queue.append((owner, token, _NO_PARTITION, None, None, placed))
        self._queue_sync = True

    def poll(self) -> list[Delivery]:
        """Write all that is queued in one transaction and return its deliveries. If it fails, all stays queued.

        Before that a slice of a trim, if one is under way. Raises TransientError (disk full, busy), Halted (corrupt).
        """
        if self._trims:
            self._trim_slice(next(iter(self._trims)))
        if not self._queue and not self._reports:
            return []
        with self._transaction(sync=self._queue_sync):
            deliveries = self._append_all(self._queue)
            self.file.sql.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", self._reports.items())
        self._queue, self._queue_sync, self._reports = [], False, {}
        return deliveries

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """Append plain records and put metadata (None: delete) in one transaction, at once, before what is queued.

        Return the offset of the last record, -1 if there are none.
        """
        placed = [(self.file.number_of(record.partition), record) for record in records]
        with self._transaction(sync=sync):
            (delivery,) = self._append_all([(0, 0, _NO_PARTITION, None, None, placed)])
            put_meta(self.file.sql, meta)
        return delivery.offset

    def pin(self, meta: Mapping[str, bytes | None], over: bytes | None) -> bool:
        """Put metadata if its first entry is ``over``, in one transaction: no other process writes in between."""
        with self._transaction(sync=True):
            if self.meta_get(next(iter(meta))) == over:
                put_meta(self.file.sql, meta)
            return all(self.meta_get(key) == entry for key, entry in meta.items())

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages with offset < ``before`` (K3); their pages are used again. Raises OffsetOutOfRange.

        A slice at once, and one with each ``poll``, each in a transaction: no call takes as long as a large trim (A8).
        A close or a crash in between leaves a smaller trim; the start of the partition says how far it came.
        """
        _, end = self.bounds(partition)
        if before > end:
            raise OffsetOutOfRange(
                f"{partition}: cannot trim before {before}: the log ends at {end}", partition=partition, offset=before
            )
        self._trims[partition] = max(before, self._trims.pop(partition, 0))
        self._trim_slice(partition)

    def _trim_slice(self, partition: TopicPartition) -> None:
        """Do the next slice of a trim; forget the trim if that is its last."""
        start, before = self.bounds(partition)[0], self._trims[partition]
        if start < before:
            first = (number := self.file.number_of(partition)) << OFFSET_BITS
            until = min(before, start + self._slice_rows(first + start, first + before))
            with self._transaction(sync=False):
                self.file.sql.execute("DELETE FROM message WHERE id >= ? AND id < ?", (first, first + until))
                self.file.sql.execute("UPDATE partition SET start = max(start, ?) WHERE id = ?", (until, number))
            start = until
        if start >= before:
            del self._trims[partition]

    def _slice_rows(self, begin: int, end: int) -> int:
        """Return the number of messages, of those between two ids, that one slice deletes."""
        held = 0
        with self.file.guard:
            sizes = self.file.sql.execute(_SIZES, (begin, end, TRIM_ROWS)).fetchall()
        for rows, (size,) in enumerate(sizes):
            if rows and held + size > TRIM_BYTES:
                return rows
            held += size
        return TRIM_ROWS

    def report_processed(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        """Tell producers how far their reader is, and what it asks for, in the transaction of the next poll."""
        for partition, offset in positions.items():
            self._reports[_processed_key(partition)] = b"%d" % offset
            if asked:  # what was asked for before is closed: it needs no other word
                self._reports[_asked_key(partition)] = b"%d" % asked

    def processed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the positions that were reported last and written."""
        found = ((partition, self.meta_get(_processed_key(partition))) for partition in partitions)
        return {partition: int(offset) for partition, offset in found if offset is not None}

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        """Return the highest checkpoint that was asked for and written."""
        found = (self.meta_get(_asked_key(partition)) for partition in partitions)
        return max((int(checkpoint_id) for checkpoint_id in found if checkpoint_id is not None), default=0)

    # --- waiting ---

    def wait(self, timeout_ms: float, *, answers: bool = True) -> bool:
        """Return True when any process has committed since the last return, or there is something to do.

        That is what is queued, or trimmed. Returns False at the time-out.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        with self.file.guard:
            self._notifier.reset()
            while True:
                version = self.file.sql.execute(VERSION_SQL).fetchone()[0]
                if version != self._version or self._committed or self._queue or self._trims:
                    self._version, self._committed = version, False
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._notifier.sleep(left)

    # --- inside ---

    def _connect(self, create: bool, opened: ExitStack) -> sqlite3.Connection:
        """Open the file to write, with what writers need beside it."""
        if create:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
        elif not self.path.exists():
            raise no_log(self.path)
        self._lock = WriterLock(self.path)
        opened.callback(self._lock.close)
        self._notifier = Notifier(self._lock.path)
        opened.callback(self._notifier.close)
        return open_file(self.path, self._lock, create=create)

    def _append_all(self, queue: Sequence[_QueuedMessage]) -> list[Delivery]:
        """Append in the order of the sends, within a transaction."""
        tails: dict[int, _Tail] = {}
        rows: list[tuple[int, int, int, bytes | None, bytes | None, bytes | None, int]] = []
        deliveries: list[Delivery] = []
        now_ms = time.time_ns() // 1_000_000
        for owner, token, number, value, fence, outputs in queue:
            offset, time_ms, ends = -1, now_ms, dict[TopicPartition, int]()
            if number != _NO_PARTITION:
                tail = tails.get(number) or self._tail(tails, number, now_ms)
                offset, time_ms = tail.next, tail.time_ms
                if fence is not None:
                    if tail.fence > fence:
                        deliveries.append(Delivery(owner, token, -1, time_ms, fenced=True))
                        continue
                    tail.fence = fence
                tail.next = offset + 1
                rows.append(
                    (number << OFFSET_BITS | offset, time_ms, time_ms, None, value, None, crc_of(value, None, None))
                )
            for place, (partition, key, output, timestamp_ms, headers) in outputs:
                tail = tails.get(place) or self._tail(tails, place, now_ms)
                crc = crc_of(output, key, headers)
                rows.append((place << OFFSET_BITS | tail.next, tail.time_ms, timestamp_ms, key, output, headers, crc))
                if number == _NO_PARTITION:
                    offset, time_ms = tail.next, tail.time_ms
                    ends[partition] = offset + 1
                tail.next += 1
            deliveries.append(Delivery(owner, token, offset, time_ms, ends=tuple(ends.items())))
        self.file.sql.executemany(_APPEND, rows)
        moves = [(tail.next, tail.fence, tail.time_ms, number) for number, tail in tails.items()]
        self.file.sql.executemany(_MOVE, moves)
        for number in tails:
            self._committed |= self.file.ended.pop(number, None) is not None
        self._written += sum(len(row[4]) for row in rows if row[4]) + PAGE_BYTES * (len(tails) + 1)
        return deliveries

    def _tail(self, tails: dict[int, _Tail], number: int, now_ms: int) -> _Tail:
        """Read the end of a partition; other processes may have moved it since the last transaction."""
        row = self.file.sql.execute(_TAIL, (number,)).fetchone()
        if row is None:
            raise corrupt(self.path, f"partition number {number} is missing")
        end, fence, last_ms = row
        tail = tails[number] = _Tail(end, fence, max(last_ms, now_ms))
        return tail

    @contextmanager
    def _transaction(self, *, sync: bool) -> Iterator[None]:
        """Hold the one writer and commit what the body wrote, or nothing. ``sync``: on disk before it is visible."""
        with self.file.guard:
            if self._written >= CHECKPOINT_BYTES:
                self._checkpoint()  # not after the commit: a full disk here would look like a failed commit
            if sync != self._full:
                self.file.sql.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
                self._full = sync
            with self._lock:
                try:
                    self.file.sql.execute("BEGIN IMMEDIATE")
                    yield
                    self.file.sql.execute("COMMIT")
                finally:
                    if self.file.sql.in_transaction:
                        self.file.sql.execute("ROLLBACK")
            self._notifier.ring()

    def _checkpoint(self) -> None:
        """Copy WAL pages back into the file beside other writers; hold them up only when the WAL is at its bound."""
        self._written = 0
        _, pages, _ = self.file.sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages * PAGE_BYTES < WAL_BYTES_MAX:
            return
        with self._lock:
            self.file.sql.execute(f"PRAGMA busy_timeout={CHECKPOINT_WAIT_MS}")
            try:
                self.file.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self.file.sql.execute(f"PRAGMA busy_timeout={BUSY_MS}")


def _processed_key(partition: TopicPartition) -> str:
    """Return the key of the metadata for the position of a partition's reader; releases without it ignore it."""
    return f"processed {partition}"


def _asked_key(partition: TopicPartition) -> str:
    """Return the key of the metadata for the checkpoint that a partition's reader asks for; likewise."""
    return f"asked {partition}"
