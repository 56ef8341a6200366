"""PostgreSQL as a sink, by psycopg 3: the extra 'postgres'. Imported only where a table's url names one."""

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from grete.api.serdes.json_numbers import has_null, refuse_not_finite
from grete.api.sinks.table import is_malformed, without_password
from grete.errors import ConfigError, FrameworkError, Halted, TransientError
from grete.halts import HaltCode
from grete.quoting import HIDDEN, shows_values

T = TypeVar("T")

CONNECT_S = 10  # then it is tried again, with back-off
ANSWER_S = 60.0  # a server that does not answer for so long is left; then it is tried again, with back-off
LOCK_MS = 10_000  # another instance may be asleep with the account in its hands …
IDLE_MS = 30_000  # … so the server ends a transaction in which nothing happens for so long
_PASSING_CLASSES = {"08", "40", "53", "55", "57", "58"}  # connection, conflict, resources, lock, operator, system
_CLASSES_OF_A_ROW = {"22", "23", "P0"}
_READ_ONLY = "25006"  # a fail-over is on its way
_NEVER = ("password authentication failed", "no password supplied", "no pg_hba.conf entry", " does not exist")
_KEPT = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID)
# What is applied is deleted from the state: a commit that a crash of the server takes back would be lost.
_DURABLE = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"


class _Connection(psycopg.Connection[Any]):
    """One that does not wait for ever."""

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Raise OperationalError when what was asked takes longer than ANSWER_S."""
        return super().wait(gen, interval, ANSWER_S if timeout is None else timeout)


def _understood(url: str) -> bool:
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        return False
    return not is_malformed(url)


class PostgresDialect:
    """One database of one server."""

    errors: tuple[type[Exception], ...] = (psycopg.Error,)
    mark = "%s"
    begin = "BEGIN"
    lock = " FOR UPDATE"
    has_table = "SELECT 1 WHERE to_regclass('{}') IS NOT NULL"
    place = "SELECT current_database(), current_schema(), pg_postmaster_start_time()::text"
    alone = "SELECT pg_advisory_xact_lock(7235419)"  # CREATE TABLE IF NOT EXISTS fails when two do it at once

    def __init__(self, url: str) -> None:
        self.name = without_password(url)
        self._url = url

    def connect(self) -> psycopg.Connection[Any]:
        """Connect. Errors name the server, never the password."""
        if not _understood(self._url):  # libpq's text would have the url in it
            raise ConfigError(
                f"{self.name}: not a url that PostgreSQL's libpq understands: postgresql://user@host:5432/database, "
                "special characters in user and password as %XX"
            )
        try:
            connection = _Connection.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_S, application_name="grete"
            )
            for name, ms in (("lock_timeout", LOCK_MS), ("idle_in_transaction_session_timeout", IDLE_MS)):
                connection.execute("SELECT set_config(%s, %s, false)", (name, str(ms)))
            connection.execute(_DURABLE)
        except psycopg.Error as error:
            if error.sqlstate is None and any(text in str(error) for text in _NEVER):
                raise ConfigError(f"{self.name}: {error}: fix the url, or the server's roles and databases") from error
            raise self.failure(error, "connecting") from error
        return connection

    def failure(self, error: Exception, doing: str) -> FrameworkError:
        """Return TransientError for a server that is down, busy or failing over; Halted for all else."""
        state = getattr(error, "sqlstate", None)
        detail = error.diag if isinstance(error, psycopg.Error) else None
        quotes = "" if state is None else f"{HIDDEN}, SQLSTATE {state}"  # what a server says of a statement
        parts = [str(error).partition("\n")[0], *((detail.message_detail, detail.message_hint) if detail else ())]
        said = ": ".join(part for part in parts if part) if shows_values() or not quotes else quotes
        text = f"{self.name}: {doing}: {said} ({type(error).__name__})"
        lost = state is None and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        if lost or state == _READ_ONLY or (state or "")[:2] in _PASSING_CLASSES:
            return TransientError(f"{text}: is the server up, and writable?")
        return Halted(text, code=HaltCode.SINK_REFUSES)

    def refuses_row(self, error: Exception) -> bool:
        """Tell whether a constraint, type or trigger refuses the row: data, integrity, or RAISE of PL/pgSQL."""
        state = getattr(error, "sqlstate", None)
        return isinstance(error, psycopg.DataError) if state is None else state[:2] in _CLASSES_OF_A_ROW

    def adapter(self, connection: psycopg.Connection[Any], table: str) -> Callable[[str, Any], Any]:
        """Return (column, value) → parameter: JSON for json columns and for objects, lists as arrays elsewhere."""
        rows = connection.execute(
            "SELECT attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND t.typname IN ('json', 'jsonb')",
            (table,),
        ).fetchall()
        json_columns = {name for (name,) in rows}

        def adapted(column: str, value: Any) -> Any:
            if value is None:
                return None
            if column in json_columns:
                return _json_text(f"{self.name}: {table}.{column}", value)
            if isinstance(value, (str, int, float, *_KEPT)):
                return value
            plain = msgspec.to_builtins(value, builtin_types=_KEPT)
            return msgspec.json.encode(plain).decode() if isinstance(plain, dict) else plain

        return adapted


def _json_text(where: str, value: Any) -> str:
    """Return the text for a json column. Raises Halted for a float that it does not have, where only it is a float."""
    text = msgspec.json.encode(value)
    if has_null(text):
        try:
            refuse_not_finite(value)
        except ValueError as error:
            raise Halted(f"{where}: {error}: or make it a column of floats", code=HaltCode.SINK_REFUSES) from error
    return text.decode()
