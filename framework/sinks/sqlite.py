"""SQLite as a sink: the file of another program, with its tables."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from grete.errors import ConfigError, FrameworkError, Halted, TransientError
from grete.halts import HaltCode

BUSY_S = 5.0  # another writer is waited for; then it is tried again, with back-off
# The low byte of an extended code is the primary one.
_MAY_PASS = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_INTERRUPT,
}
_OF_A_ROW = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG}


class SqliteDialect:
    """One database file."""

    errors: tuple[type[Exception], ...] = (sqlite3.Error, OverflowError)  # an int beyond 64 bits
    mark = "?"
    begin = "BEGIN IMMEDIATE"  # takes the only writer's lock: no other instance reads the account until we commit
    lock = ""
    has_table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{}'"
    place = "SELECT file FROM pragma_database_list WHERE name = 'main'"
    alone = "SELECT 1"  # the writer's lock does that

    def __init__(self, path: str) -> None:
        self.name = f"SQLite file {path}"
        self._path = Path(path)

    def connect(self) -> sqlite3.Connection:
        """Open the file. It is not made: its tables are the user's."""
        if not self._path.is_file():
            raise ConfigError(f"{self.name}: there is no such file: create it, with its tables, before the job starts")
        # An absolute path, or SQLite takes its first folder for a host's name.
        uri = f"file:{quote(str(self._path.resolve()))}?mode=rw"
        try:
            connection = sqlite3.connect(
                uri, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=16, uri=True
            )
        except sqlite3.Error as error:
            raise self.failure(error, "opening it") from error
        try:
            # What is applied is deleted from the state: it must survive a power loss, in every journal mode.
            connection.execute("PRAGMA synchronous = EXTRA")
        except sqlite3.Error as error:
            connection.close()
            raise self.failure(error, "opening it") from error
        return connection

    def failure(self, error: Exception, doing: str) -> FrameworkError:
        """Return TransientError for a busy file or a full disk; Halted for all else."""
        code = getattr(error, "sqlite_errorcode", None)
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        text = f"{self.name}: {doing}: {error} ({name})"
        if code is None or code & 0xFF not in _MAY_PASS:
            return Halted(text, code=HaltCode.SINK_REFUSES)
        return TransientError(f"{text}: end what else uses the file, or free its disk")

    def refuses_row(self, error: Exception) -> bool:
        """Tell whether a constraint or trigger refuses the row, or SQLite a value of it."""
        code = getattr(error, "sqlite_errorcode", None)
        return isinstance(error, OverflowError) or (code is not None and code & 0xFF in _OF_A_ROW)

    def adapter(self, connection: sqlite3.Connection, table: str) -> Callable[[str, Any], Any]:
        """Return (column, value) → what SQLite stores: numbers, text, bytes; JSON for lists and objects."""
        return _adapted


def _adapted(_column: str, value: Any) -> Any:
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))  # times in ISO 8601, decimals and UUIDs as text
    return msgspec.json.encode(plain).decode() if isinstance(plain, (list, dict)) else plain
