"""The file of an embedded log: its tables, how it is opened and made, and what SQLite's errors mean to an operator.

Nothing in the process may open and close the database or its -shm file beside SQLite: POSIX drops all locks of a process
on a file when any descriptor of it is closed, and two writers at once would corrupt it. Hence pragmas instead of header reads.
"""

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from framework.errors import ConfigError, FrameworkError, Halted, TransientError
from framework.logs.embedded.lock import WriterLock

APPLICATION_ID = 0x47524554  # "GRET", where `file` and SQLite's own tools look for it
SCHEMA_VERSION = 1
PAGE_BYTES = 4096
CACHE_KIB = 16 << 10  # pages of one connection; a larger transaction spills into the WAL, which is only slower
BUSY_MS = 10_000  # only a foreign program can make SQLite itself wait: our writers queue at the writer lock

OFFSET_BITS = 40  # message id = partition id << 40 | offset: the row id is the only index
OFFSET_MASK = (1 << OFFSET_BITS) - 1

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
    key BLOB, value BLOB, headers BLOB
) STRICT;
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
"""


def open_file(path: Path, lock: WriterLock, create: bool) -> sqlite3.Connection:
    """Open the log file, after making it if ``create``. Raises ConfigError, Halted (corrupt) or TransientError (disk full)."""
    try:
        if create and not path.exists():
            with lock:
                _touch(path)
        connection = _connect(path)
    except (OSError, sqlite3.Error) as error:
        raise explain(path, error) from error
    try:
        if not _is_ours(path, connection, empty_is_ours=create):
            with lock:
                if not _is_ours(path, connection, empty_is_ours=create):  # another process may have made it meanwhile
                    _make(connection)
        _prepare(path, connection)
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise explain(path, error) from error
    except FrameworkError:
        connection.close()
        raise
    return connection


def explain(path: Path, error: Exception) -> FrameworkError:
    """Return what to raise for an error of SQLite or the operating system: the class says what the operator must do."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF  # extended codes carry the primary one in their low byte
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return corrupt(path, str(error))
    if primary == sqlite3.SQLITE_FULL:
        return TransientError(
            f"{path}: {error}: free disk space (or raise the quota), then restart; nothing was half written"
        )
    if primary == sqlite3.SQLITE_IOERR:
        return TransientError(f"{path}: {error} ({_name(error)}): check the disk and its free space, then restart")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
        return TransientError(
            f"{path}: {error} for {BUSY_MS} ms: end the other program that has this file open, then restart"
        )
    if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return ConfigError(f"{path}: {error}: the file and its directory must be readable and writable for this user")
    if isinstance(error, OSError):
        return ConfigError(f"{path}: {error.strerror}: name a file in a directory that this user may write")
    return ConfigError(
        f"{path}: {error}: keys, values and headers must be bytes or None, timestamps integers of 64 bits"
    )


def corrupt(path: Path, what: str) -> Halted:
    """Return the error for a file that contradicts itself."""
    return Halted(f"{path}: {what}: corrupt: restore the file from a copy, or delete the job directory to start over")


def _name(error: Exception) -> str:
    return str(getattr(error, "sqlite_errorname", "unknown"))


def _touch(path: Path) -> None:
    """Make the file empty, readable by its owner only; SQLite gives its side files the same mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass  # another process was first


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise ConfigError(f"{path}: there is no such log: check the path, or let the job make it by running it")
    uri = f"file:{quote(str(path.absolute()))}?mode=rw"  # rw: a file deleted just now is an error, not a new empty log
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_MS / 1000)


def _is_ours(path: Path, connection: sqlite3.Connection, empty_is_ours: bool) -> bool:
    """Return whether it is a log that this build can read, False if it is still empty. Raises ConfigError if it is neither."""
    application, version = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if application == APPLICATION_ID:
        if version == SCHEMA_VERSION:
            return True
        raise ConfigError(
            f"{path}: schema version {version}, this build reads {SCHEMA_VERSION}: use the build that wrote it, or start over"
        )
    objects = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == 0 and objects == 0 and empty_is_ours:
        return False
    raise ConfigError(
        f"{path}: application id {application:#x} with {objects} tables, a log of Grete has {APPLICATION_ID:#x}: name another file"
    )


def _make(connection: sqlite3.Connection) -> None:
    """Make the tables in one transaction: a crash leaves an empty file, which the next open completes."""
    connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.executescript(
        f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION}; COMMIT"
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
        "wal_autocheckpoint=0",  # EmbeddedLog decides when
        "secure_delete=OFF",  # a trim would otherwise overwrite all it frees
        "cell_size_check=ON",  # a damaged page is noticed before it is believed
    ):
        connection.execute(f"PRAGMA {pragma}")
    _pragma(connection, "data_version")  # makes the -wal file, so that the next line covers it
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(
            directory
        )  # SQLite does it for who made the -wal; another process may be the first to commit with sync
    finally:
        os.close(directory)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value
