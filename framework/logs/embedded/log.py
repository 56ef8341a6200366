"""The log of a job in one SQLite file (design 2.3): one WAL, so that a power loss leaves a prefix of everything at once.

Speed comes from three things: whatever is queued goes in one transaction, a row is found by its id alone, and rows leave
SQLite as the tuples that the port wants.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from framework.errors import ConfigError, OffsetOutOfRange
from framework.logs.embedded.lock import WriterLock
from framework.logs.embedded.schema import BUSY_MS, OFFSET_BITS, OFFSET_MASK, corrupt, explain, open_file
from framework.ports import Delivery, ExternalRecord, LogRow
from protocol.ids import PARTITIONS_MAX, TopicPartition, check_name

WAL_BYTES_MAX = (
    64 << 20
)  # the writer that takes the -wal file beyond empties it: disk space and restart time stay bounded
CHECKPOINT_BYTES = (
    4 << 20
)  # written by this process since it last copied pages back: little each time, so no long stall
CHECKPOINT_WAIT_MS = 20  # for readers of old pages; a process stopped in the middle of a read must not stop all writers
TRIM_ROWS = 1_000  # deleted in one transaction: other writers get their turn in between
ROW_BYTES = 48  # what a row costs beside its blobs, so that a read of a million empty messages is bounded too
WAIT_MIN_S, WAIT_MAX_S = (
    0.0002,
    0.002,
)  # between looks at the file: a busy log answers at once, an idle one costs little

_READ = f"SELECT id & {OFFSET_MASK}, append_time_ms, timestamp_ms, key, value, headers FROM message WHERE id BETWEEN ? AND ? ORDER BY id"
_APPEND = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)"
_MOVE = "UPDATE partition SET next = ?, fence = ?, append_time_ms = ? WHERE id = ?"
_Row = tuple[int, int, int, bytes | None, bytes | None, bytes | None]
_Outputs = list[tuple[int, ExternalRecord]]


class _Tail:
    """The end of one partition inside of a transaction."""

    __slots__ = ("fence", "next", "time_ms")

    def __init__(self, following: int, fence: int, time_ms: int) -> None:
        self.next, self.fence, self.time_ms = following, fence, time_ms


class EmbeddedLog:
    """framework.ports.Log over one SQLite file, shared by all processes of a job on one machine. Not thread safe, not fork safe."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        """Open the log; ``create`` makes the file (0600) and its directory (0700), not the directory's parents.

        Raises ConfigError (no such directory or log, another format), Halted (corrupt), TransientError (disk full).
        """
        self.path = path
        self._pid = os.getpid()
        try:
            if create:
                path.parent.mkdir(mode=0o700, exist_ok=True)
            elif not path.exists():
                raise ConfigError(f"{path}: there is no such log: check the path, or let the job make it by running it")
            self._lock = WriterLock(path.with_name(path.name + "-lock"))
        except OSError as error:
            raise ConfigError(
                f"{path}: {error.strerror}: name a file in a directory that exists and can be written"
            ) from error
        try:
            self._sql = open_file(path, self._lock, create)
        except BaseException:
            self._lock.close()
            raise
        self._wal = f"{path}-wal"
        self._full = False  # PRAGMA synchronous as it stands
        self._queue: list[tuple[int, int, int, bytes, int | None, _Outputs]] = []
        self._queue_sync = False
        self._ids: dict[TopicPartition, int] = {}  # topics are never deleted, so what is here stays right
        self._version = -1  # PRAGMA data_version when wait() last returned
        self._committed = True  # by this process since wait() last returned: data_version shows only the others
        self._written = 0
        self._wal_limit = WAL_BYTES_MAX

    # Topics ---------------------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int) -> None:
        """Make sure that the topic exists. Raises ConfigError on a bad name or if it has another number of partitions."""
        try:
            check_name("topic", topic)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ConfigError(f"topic {topic}: {partitions} partitions: need 1 to {PARTITIONS_MAX}")
        found = self.partitions(topic)
        if found is None:
            with self._transaction(sync=False):
                found = self._count(topic)  # another process may have made it meanwhile
                if found is None:
                    self._sql.executemany(
                        "INSERT INTO partition (topic, partition) VALUES (?, ?)",
                        ((topic, each) for each in range(partitions)),
                    )
                    found = partitions
        if found != partitions:
            raise ConfigError(
                f"topic {topic} has {found} partitions, not {partitions}: use that number or another topic"
            )

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""
        with self._reading():
            return self._count(topic)

    def topics(self) -> Sequence[str]:
        """Return the names of all topics, sorted."""
        with self._reading():
            return sorted(row[0] for row in self._sql.execute("SELECT DISTINCT topic FROM partition"))

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (offset of the first message still there, offset of the next message to come)."""
        number = self._id(partition)
        with self._reading():
            return self._bounds(number)

    # Reading --------------------------------------------------------------------------------------------------------

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on, in order: at least one if there is one, then up to about ``max_bytes``.

        Raises OffsetOutOfRange; Halted if a message is missing.
        """
        first = self._id(partition) << OFFSET_BITS
        rows: list[LogRow] = []
        if 0 <= offset <= OFFSET_MASK:
            with self._reading():
                cursor = self._sql.execute(_READ, (first | offset, first | OFFSET_MASK))
                try:
                    for row in cursor:  # row by row: SQLite loads a blob only when its row is fetched
                        rows.append(row)
                        max_bytes -= ROW_BYTES + len(row[3] or b"") + len(row[4] or b"") + len(row[5] or b"")
                        if max_bytes <= 0:
                            break
                finally:
                    cursor.close()  # an open cursor would keep the WAL from being reused
        if rows and rows[0][0] == offset and rows[-1][0] - offset + 1 == len(rows):
            return rows
        start, end = self.bounds(partition)
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"{partition}: offset {offset} is outside of {start} to {end}")
        if rows:
            raise corrupt(self.path, f"{partition}: a message is missing between offsets {offset} and {rows[-1][0]}")
        return rows  # at the end, or the first message after it arrived just now

    # Writing --------------------------------------------------------------------------------------------------------

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
        """Queue one internal message; see framework.ports.Log. One transaction compares, appends and shows the outputs (C3, S1)."""
        placed = [(self._id(record.partition), record) for record in outputs]
        self._queue.append((owner, token, self._id(partition), value, fence, placed))
        self._queue_sync |= sync

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records; one delivery for all (offset: of the last, -1 if there are none).

        They leave the job, so they are on disk before anybody sees them (design 2.3); bulk loads: produce_with_meta.
        """
        self._queue.append((owner, token, -1, b"", None, [(self._id(record.partition), record) for record in records]))
        self._queue_sync = True

    def poll(self) -> list[Delivery]:
        """Write all that is queued in one transaction and return its deliveries. If it fails, all stays queued.

        Raises TransientError (disk full, busy), Halted (corrupt).
        """
        if not self._queue:
            return []
        with self._transaction(self._queue_sync):
            deliveries = self._append_all(self._queue)
        self._queue, self._queue_sync = [], False
        return deliveries

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """Append plain records and put (None: delete) metadata in one transaction, at once. Return the last offset, -1 if none."""
        placed = [(self._id(record.partition), record) for record in records]
        puts = [(key, value) for key, value in meta.items() if value is not None]
        deletes = [(key,) for key, value in meta.items() if value is None]
        with self._transaction(sync):
            (delivery,) = self._append_all([(0, 0, -1, b"", None, placed)])
            self._sql.executemany("DELETE FROM meta WHERE key = ?", deletes)
            self._sql.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", puts)
        return delivery.offset

    def meta_get(self, key: str) -> bytes | None:
        """Return the metadata under ``key`` or None."""
        with self._reading():
            row = self._sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return all (key, metadata) whose key starts with ``prefix``, in key order."""
        with self._reading():
            rows = self._sql.execute(
                "SELECT key, value FROM meta WHERE key >= ? AND key < ? ORDER BY key", (prefix, prefix + "\U0010ffff")
            )
            return rows.fetchall()

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages with offset < ``before`` (K3); their pages are used again. Raises OffsetOutOfRange beyond the end.

        In several transactions: a crash in between leaves a smaller trim.
        """
        start, end = self.bounds(partition)
        if before > end:
            raise OffsetOutOfRange(f"{partition}: cannot trim before {before}: the log ends at {end}")
        number = self._id(partition)
        first = number << OFFSET_BITS
        while start < before:
            until = min(before, start + TRIM_ROWS)
            with self._transaction(sync=False):
                self._sql.execute("DELETE FROM message WHERE id >= ? AND id < ?", (first, first | until))
                self._sql.execute("UPDATE partition SET start = max(start, ?) WHERE id = ?", (until, number))
            start = until

    # Waiting and the end --------------------------------------------------------------------------------------------

    def wait(self, timeout_ms: float) -> None:
        """Return as soon as any process has committed since the last return, or something is queued; else after ``timeout_ms``."""
        deadline = time.monotonic() + timeout_ms / 1000
        pause = WAIT_MIN_S
        with self._reading():
            while True:
                (version,) = self._sql.execute("PRAGMA data_version").fetchone()
                if version != self._version or self._committed or self._queue:
                    self._version, self._committed = version, False
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                time.sleep(min(pause, left))
                pause = min(pause * 1.25, WAIT_MAX_S)

    def close(self) -> None:
        """Release the file; what is queued and was not polled is given up."""
        self._queue = []
        self._sql.close()
        self._lock.close()

    # ----------------------------------------------------------------------------------------------------------------

    def _append_all(self, queue: Sequence[tuple[int, int, int, bytes, int | None, _Outputs]]) -> list[Delivery]:
        """Append in the order of the sends, inside of a transaction."""
        tails: dict[int, _Tail] = {}
        rows: list[_Row] = []
        deliveries: list[Delivery] = []
        now_ms = time.time_ns() // 1_000_000
        for owner, token, number, value, fence, outputs in queue:
            offset, time_ms = -1, now_ms
            if number >= 0:
                tail = tails.get(number) or self._tail(tails, number, now_ms)
                offset, time_ms = tail.next, tail.time_ms
                if fence is not None:
                    if tail.fence > fence:
                        deliveries.append(Delivery(owner, token, -1, time_ms, True))
                        continue
                    tail.fence = fence
                tail.next = offset + 1
                rows.append((number << OFFSET_BITS | offset, time_ms, time_ms, None, value, None))
            for place, record in outputs:
                tail = tails.get(place) or self._tail(tails, place, now_ms)
                last = tail.next
                tail.next = last + 1
                rows.append(
                    (
                        place << OFFSET_BITS | last,
                        tail.time_ms,
                        record.timestamp_ms,
                        record.key,
                        record.value,
                        record.headers,
                    )
                )
                if number < 0:
                    offset, time_ms = last, tail.time_ms
            deliveries.append(Delivery(owner, token, offset, time_ms))
        self._sql.executemany(_APPEND, rows)
        self._sql.executemany(_MOVE, [(tail.next, tail.fence, tail.time_ms, number) for number, tail in tails.items()])
        self._written += sum(len(row[4] or b"") for row in rows)
        return deliveries

    def _tail(self, tails: dict[int, _Tail], number: int, now_ms: int) -> _Tail:
        """Read the end of a partition; other processes may have moved it since the last transaction."""
        following, fence, last_ms = self._sql.execute(
            "SELECT next, fence, append_time_ms FROM partition WHERE id = ?", (number,)
        ).fetchone()
        tail = tails[number] = _Tail(following, fence, max(last_ms, now_ms))
        return tail

    def _id(self, partition: TopicPartition) -> int:
        """Return the partition's number in the file. Raises ConfigError if there is none."""
        number = self._ids.get(partition)
        if number is None:
            with self._reading():
                row = self._sql.execute(
                    "SELECT id FROM partition WHERE topic = ? AND partition = ?", partition
                ).fetchone()
            if row is None:
                raise ConfigError(f"{self.path}: there is no partition {partition}: create the topic first")
            number = self._ids[partition] = row[0]
        return number

    def _count(self, topic: str) -> int | None:
        count: int = self._sql.execute("SELECT count(*) FROM partition WHERE topic = ?", (topic,)).fetchone()[0]
        return count or None

    def _bounds(self, number: int) -> tuple[int, int]:
        bounds: tuple[int, int] = self._sql.execute(
            "SELECT start, next FROM partition WHERE id = ?", (number,)
        ).fetchone()
        return bounds

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        if os.getpid() != self._pid:
            raise ConfigError(
                f"{self.path}: opened in process {self._pid}, used in {os.getpid()} after a fork: open it in the child"
            )
        try:
            yield
        except sqlite3.Error as error:
            raise explain(self.path, error) from error

    @contextmanager
    def _transaction(self, sync: bool) -> Iterator[None]:
        """Hold the one writer: commit what the body wrote, or nothing. ``sync``: on disk before it is visible."""
        with self._reading():
            if sync != self._full:
                self._sql.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
                self._full = sync
            with self._lock:
                try:
                    self._sql.execute("BEGIN IMMEDIATE")
                    yield
                    self._sql.execute("COMMIT")
                finally:
                    if self._sql.in_transaction:
                        self._sql.execute("ROLLBACK")
                self._committed = True
                self._bound_wal()
            if self._written >= CHECKPOINT_BYTES:
                self._written = 0
                self._sql.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def _bound_wal(self) -> None:
        """Empty the WAL beyond its bound; called with the lock held, so that no other writer can get in between."""
        if os.stat(self._wal).st_size <= self._wal_limit:
            return
        self._sql.execute(f"PRAGMA busy_timeout={CHECKPOINT_WAIT_MS}")
        (busy, _, _) = self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._sql.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        # With a reader in the way, try again only when it has grown by as much again: trying costs CHECKPOINT_WAIT_MS.
        self._wal_limit = os.stat(self._wal).st_size + WAL_BYTES_MAX if busy else WAL_BYTES_MAX
