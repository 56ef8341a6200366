"""The file of an embedded log: its tables, and how it is made and opened.

Nothing in the process may open and close the database or its -shm file beside SQLite: POSIX drops all locks of a
process on a file when any descriptor of it is closed, and two writers at once would corrupt it. So nothing here reads
the header itself.
"""

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

from grete.errors import ConfigError
from grete.logs.embedded.errors import BUSY_MS
from grete.logs.embedded.writer_queue import WriterLock

APPLICATION_ID = 0x47524554  # "GRET", where `file` and SQLite's own tools look for it
SCHEMA_VERSION = 1  # of the tables: a file with another one is refused
PAGE_BYTES = 8192  # of 4 to 32 KiB the best for frames and for small messages in several partitions, as measured
CACHE_KIB = 16 << 10  # pages of one connection; a larger transaction spills into the WAL, which is only slower

OFFSET_BITS = 40  # message id = partition id << 40 | offset: the row id is the only index
OFFSET_MASK = (1 << OFFSET_BITS) - 1  # the lower bits of a message id

# STRICT: a str would otherwise be stored as text and come back as another type than it was sent.
_TABLES = """
CREATE TABLE partition (
    id INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    start INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT -1, append_time_ms INTEGER NOT NULL DEFAULT 0,
    UNIQUE (topic, partition)
) STRICT;
CREATE TABLE message (
    id INTEGER PRIMARY KEY, append_time_ms INTEGER NOT NULL, timestamp_ms INTEGER NOT NULL,
    key BLOB, value BLOB, headers BLOB, crc INTEGER NOT NULL -- of value, key, headers: SQLite has no checksums
) STRICT;
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""


def open_file(path: Path, lock: WriterLock, *, create: bool) -> sqlite3.Connection:
    """Open the log file, after making it if ``create``.

    Raises ConfigError (no such log, or a file of something else), sqlite3.Error or OSError.
    """
    if create:
        # 0600: a log holds the users' data; SQLite gives its side files the same mode.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"  # rw: never make an empty log where one has just been deleted
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_MS / 1000)
    try:
        if not _is_log(path, connection, empty_is_fine=create):
            with lock:
                if not _is_log(path, connection, empty_is_fine=create):  # another process may have made it meanwhile
                    _make(connection)
        _prepare(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a log file that is there so that SQLite refuses every write.

    A WAL with something in it stays as it is: a connection that cannot write neither copies it back nor deletes it.
    Where there is none, SQLite needs one while it reads, and only a connection that may write deletes it at its end.
    Raises ConfigError (a file of something else), sqlite3.Error.
    """
    wal = path.with_name(path.name + "-wal")
    mode = "ro" if wal.exists() and wal.stat().st_size else "rw"
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_MS / 1000)
    try:
        for pragma in ("query_only=ON", "wal_autocheckpoint=0", f"cache_size=-{CACHE_KIB}", "cell_size_check=ON"):
            connection.execute(f"PRAGMA {pragma}")
        _is_log(path, connection, empty_is_fine=False)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_log(path: Path, connection: sqlite3.Connection, *, empty_is_fine: bool) -> bool:
    """Return True for a log that this build reads, False if it is still empty. Raises ConfigError for anything else."""
    connection.execute("BEGIN")  # all of one moment: another process may be making it
    application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()[0]
    connection.execute("COMMIT")
    if application == APPLICATION_ID:
        if version == SCHEMA_VERSION:
            return True
        raise ConfigError(
            f"{path}: schema version {version}, this build reads {SCHEMA_VERSION}: use the build that wrote it"
        )
    if application == 0 and tables == 0:
        if empty_is_fine:
            return False
        raise ConfigError(f"{path}: not a log of Grete yet: it has no tables: start the job that writes it")
    raise ConfigError(
        f"{path}: not a log of Grete (application id {application:#x} instead of {APPLICATION_ID:#x}, {tables} tables)"
        ": name another file"
    )


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables in one transaction: a crash leaves an empty file, which the next open completes."""
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES}PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION}; "
        "COMMIT"
    )


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Set what SQLite keeps per connection."""
    mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigError(
            f"{path}: journal mode {mode}: SQLite's WAL needs shared memory: put the file on a local disk"
        )
    for pragma in (
        "synchronous=NORMAL",
        f"cache_size=-{CACHE_KIB}",
        "wal_autocheckpoint=0",  # EmbeddedLog chooses when, so that no commit waits for it
        "secure_delete=OFF",  # a trim would otherwise overwrite all that it frees
        "cell_size_check=ON",  # a damaged page is noticed before it is believed
    ):
        connection.execute(f"PRAGMA {pragma}")
    _pragma(connection, "data_version")  # makes the -wal file, so that the next lines cover its directory entry
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # SQLite does this only in the process that made the -wal; another one may be the first to commit with sync.
        os.fsync(directory)
    finally:
        os.close(directory)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def crc_of(value: bytes | None, key: bytes | None, headers: bytes | None) -> int:
    """Return the checksum beside a message: SQLite notices a damaged page only by its structure."""
    try:
        crc = crc32(value) if value else 0
        if key:
            crc = crc32(key, crc)
        return crc32(headers, crc) if headers else crc
    except TypeError as error:
        raise ConfigError(f"{error}: keys, values and headers must be bytes or None") from error


def put_meta(connection: sqlite3.Connection, meta: Mapping[str, bytes | None]) -> None:
    """Put metadata (None: delete), within a transaction."""
    connection.executemany("DELETE FROM meta WHERE key = ?", [(key,) for key, value in meta.items() if value is None])
    puts = [(key, value) for key, value in meta.items() if value is not None]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", puts)
