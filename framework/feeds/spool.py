"""Records on their way into a topic, in a file until the log has acknowledged them: an outage costs only disk.

The file is a SQLite database, which finds and drops what a crash has left half written. A record is in it when
``append`` returns, so it survives the end of the process. Before records are handed to the log they are on the disk, so
a number that the log may have seen is never given to another record, even after a power loss.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from grete.api.serdes.key import PartitionBy
from grete.errors import ConfigError, FrameworkError, Halted, TransientError
from grete.feeds.numbers import RecordNumbers, cell_of, new_session
from grete.file_lock import open_lock, try_lock
from grete.halts import HaltCode
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of

PAGE_BYTES = 4096  # that of most file systems
PAGES_MIN = 16  # of an empty file, and one batch
WAL_BYTES_MAX = 4 << 20  # of the file beside it, beyond the bound: kept for the next writes, so draining needs no room
BATCH_BYTES = 512 << 10  # handed to the log at once
ROW_BYTES = 64  # of a record without key and value, about, in memory
_TABLES = """
CREATE TABLE IF NOT EXISTS record (
    id INTEGER PRIMARY KEY, key BLOB, value BLOB, timestamp_ms INTEGER NOT NULL, headers BLOB
);
CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), numbered BLOB NOT NULL);
"""
_APPEND = "INSERT INTO {} (key, value, timestamp_ms, headers) VALUES (?, ?, ?, ?)"
_OLDEST = "SELECT id, key, value, timestamp_ms, headers FROM {} ORDER BY id"
# Release 0.4.0 would send records without their headers. While records with headers wait, all are in the table `kept`,
# and `record` is a view of a table that is missing: the name of that table is the error that 0.4.0 shows.
_MARK = (
    "ALTER TABLE record RENAME TO kept",
    'CREATE VIEW record AS SELECT * FROM "records with headers, of a later release of Grete: upgrade to send them"',
)
_UNMARK = "DROP VIEW record", "ALTER TABLE kept RENAME TO record"


class Spooled(NamedTuple):
    """A record that waits: its partition and number are known when the log is there."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: bytes | None = None  # of its writer, as a cell


class _Numbered(msgspec.Struct, array_like=True, frozen=True):
    """The acknowledged records of the session, by partition: the numbers of the next ones follow from them."""

    session: str
    partitions: int
    counts: dict[int, int]


class SpooledBatch(NamedTuple):
    """The oldest records, for the log. ``last``: their place in the spool, ``numbered``: as of behind them."""

    records: list[ExternalRecord]
    last: int
    numbered: _Numbered


class Spool:
    """The spool of one topic in one directory. Threads may share it, processes may not."""

    def __init__(self, path: Path, topic: str, bytes_max: int, partition_by: PartitionBy = partition_of) -> None:
        """Open or make the file; ``bytes_max`` bounds its size. What it holds is handed out again.

        Raises ConfigError: another process has it, it cannot be written; Halted: it is damaged.
        """
        self._path, self.topic, self._partition_by = path, topic, partition_by
        self._lock = threading.Lock()
        self._full = False  # the present PRAGMA synchronous
        self._table = "record"
        with ExitStack() as opened:
            opened.callback(os.close, _claimed(path.with_name(path.name + ".lock")))
            with suppress(OSError):  # SQLite says what is wrong
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            with self._explained():
                self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                opened.callback(self._sql.close)
                for pragma in (
                    f"page_size={PAGE_BYTES}", "auto_vacuum=INCREMENTAL", "journal_mode=WAL", "synchronous=NORMAL",
                    f"journal_size_limit={WAL_BYTES_MAX}", f"max_page_count={max(PAGES_MIN, bytes_max // PAGE_BYTES)}",
                ):  # fmt: skip
                    self._sql.execute(f"PRAGMA {pragma}").fetchall()
                self._sql.executescript(_TABLES)
                if self._sql.execute("SELECT 1 FROM sqlite_master WHERE type = 'view'").fetchone():
                    self._table = "kept"
                elif "headers" not in {row[1] for row in self._sql.execute("PRAGMA table_info(record)")}:  # of 0.4.0
                    self._sql.execute("ALTER TABLE record ADD COLUMN headers BLOB")
                self._count: int = self._sql.execute(self._of("SELECT count(*) FROM {}")).fetchone()[0]
            self._opened = opened.pop_all()  # from here on close() is responsible

    def __len__(self) -> int:
        """Return the number of records that are not acknowledged."""
        return self._count

    def append(self, records: Sequence[Spooled]) -> bool:
        """Keep records, in their order, behind the others. Return False if there is no room: then none of them is."""
        try:
            with self._transaction(sync=False):
                if self._table == "record" and any(record.headers for record in records):
                    self._change("kept", _MARK)
                self._sql.executemany(self._of(_APPEND), records)
                self._count += len(records)
        except _NoRoom:
            return False
        return True

    def batch(self, partitions: int) -> SpooledBatch | None:
        """Return the oldest records with their numbers, once they are on the disk; None if there is none.

        After a crash the same records get the same numbers, as long as the topic has as many partitions. Raises
        TransientError: the disk is full.
        """
        if not self._count:
            return None
        with self._room(), self._transaction(sync=True):
            raw = self._sql.execute("SELECT numbered FROM state").fetchone()
            numbered = _Numbered("", 0, {}) if raw is None else msgspec.msgpack.decode(raw[0], type=_Numbered)
            if numbered.partitions != partitions:
                numbered = _Numbered(new_session(), partitions, {})
            self._save(numbered)  # a commit that is on the disk, and all that was appended before it
            rows = self._oldest()
        numbers, turn = RecordNumbers(numbered.session, numbered.counts), sum(numbered.counts.values())
        records = []
        for turn_of, (_, key, value, timestamp_ms, headers) in enumerate(rows, turn):
            partition = turn_of % partitions if key is None else self._partition_by(key, partitions)
            cell = cell_of(numbers.session, partition, numbers.next(partition), headers)
            records.append(ExternalRecord(TopicPartition(self.topic, partition), key, value, timestamp_ms, cell))
        return SpooledBatch(records, rows[-1][0], _Numbered(numbers.session, partitions, numbers.counts))

    def acknowledge(self, batch: SpooledBatch) -> None:
        """Forget a batch: the log has it. Raises TransientError: the disk is full."""
        with self._room(), self._transaction(sync=False):
            self._sql.execute(self._of("DELETE FROM {} WHERE id <= ?"), (batch.last,))
            self._save(batch.numbered)
            self._count -= len(batch.records)
        if not self._count:
            with suppress(_NoRoom), self._transaction(sync=False):
                if self._table == "kept" and not self._count:  # none came meanwhile
                    self._change("record", _UNMARK)
            with self._lock, self._explained():
                if self._sql.execute("PRAGMA freelist_count").fetchone()[0] * PAGE_BYTES > WAL_BYTES_MAX:
                    self._sql.executescript("PRAGMA incremental_vacuum")  # an outage is over; one step is one page

    def close(self) -> None:
        """Leave the file to the next one."""
        with self._lock:
            self._opened.close()

    def _oldest(self) -> list[tuple[int, bytes | None, bytes | None, int, bytes | None]]:
        rows, size = [], 0
        with closing(self._sql.execute(self._of(_OLDEST))) as found:
            for row in found:
                rows.append(row)
                size += sum(len(row[at] or b"") for at in (1, 2, 4)) + ROW_BYTES
                if size >= BATCH_BYTES:
                    break
        return rows

    def _of(self, statement: str) -> str:
        return statement.format(self._table)

    def _change(self, table: str, statements: Sequence[str]) -> None:
        for statement in statements:
            self._sql.execute(statement)
        self._table = table

    def _save(self, numbered: _Numbered) -> None:
        self._sql.execute("INSERT OR REPLACE INTO state VALUES (1, ?)", (msgspec.msgpack.encode(numbered),))

    @contextmanager
    def _transaction(self, *, sync: bool) -> Iterator[None]:
        """All or nothing. ``sync``: it survives a power loss, as do those before it."""
        with self._lock, self._explained():
            if sync != self._full:
                self._sql.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
                self._full = sync
            before = self._count, self._table
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                self._count, self._table = before
                if self._sql.in_transaction:
                    self._sql.execute("ROLLBACK")
                raise

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Take no room for an error: what is to free some needs a little itself."""
        try:
            yield
        except _NoRoom as error:
            raise TransientError(f"{self._path}: {error}: free disk space; what is spooled is kept") from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(self._path, error) from error


class _NoRoom(FrameworkError):
    """The file has reached its bound, or the disk is full."""


def _explain(path: Path, error: sqlite3.Error) -> FrameworkError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE) & 0xFF  # the low byte: the primary code
    if code == sqlite3.SQLITE_FULL:
        return _NoRoom(str(error))
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Halted(
            f"{path}: {error}: the spool is damaged: move it away; what it still held is not in the log",
            code=HaltCode.SPOOL_DAMAGED,
        )
    if code == sqlite3.SQLITE_IOERR:
        return TransientError(f"{path}: {error}: check the disk and its free space")
    return ConfigError(f"{path}: {error}: the spool must be a file that you may write")


def _claimed(path: Path) -> int:
    """Become the one process that uses a spool: the lock ends with the process. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = open_lock(path)
    except OSError as error:
        raise ConfigError(f"cannot open {path}: {error.strerror}: name a directory that you may write") from error
    try:
        try_lock(handle)
    except OSError as error:
        os.close(handle)
        raise ConfigError(
            f"{path}: another process writes to this topic from here: end it, or give this one another directory"
        ) from error
    return handle
