"""Finds the dialect of a table's url, and gathers the tables of a task by database."""

import importlib.util
import os
import re
from collections.abc import Mapping
from typing import Any

from grete.api.sinks.table import FROM_ENVIRONMENT, POSTGRES, Table
from grete.errors import ConfigError
from grete.sinks.sql import SqlSink
from grete.sinks.sql_dialect import Dialect
from grete.sinks.sqlite import SqliteDialect


def sql_sinks(tables: Mapping[str, Table[Any]]) -> dict[str, SqlSink]:
    """Return attribute → sink; tables of one database share one, and so one transaction. Opens nothing.

    Raises ConfigError: a variable that is not set, a client that is not installed.
    """
    by_url: dict[str, dict[str, Table[Any]]] = {}
    for attribute, table in tables.items():
        url = _resolved(table)  # one sink a file, however it is spelled: two would take each other's checkpoints
        by_url.setdefault(url if "://" in url else os.path.realpath(url), {})[attribute] = table
    found: dict[str, SqlSink] = {}
    for url, group in by_url.items():
        sink = SqlSink(_dialect(url), group)
        found |= dict.fromkeys(group, sink)
    return found


def _resolved(table: Table[Any]) -> str:
    """Return the url itself, from the environment if that is where it is."""
    if not table.url.startswith(FROM_ENVIRONMENT):
        return table.url
    name = table.url.removeprefix(FROM_ENVIRONMENT)
    url = os.environ.get(name, "").rstrip("\r\n")  # a secret that is mounted as a file ends in one
    scheme, colon, _ = url.partition("://")
    settings = not colon and re.match(r"\w+ *=", url)  # of libpq, with a password perhaps: it is no file's name
    if not url or settings or not url.isprintable() or (colon and scheme not in POSTGRES):
        what = "holds no url of a database" if url else "is not set"
        raise ConfigError(f"{table!r}: environment variable {name} {what}: set it to a file's path or postgresql://…")
    return url


def _dialect(url: str) -> Dialect:
    if "://" not in url:
        return SqliteDialect(url)
    if importlib.util.find_spec("psycopg") is None:
        raise ConfigError("a table in PostgreSQL needs the extra 'postgres': pip install 'grete[postgres]'")
    from grete.sinks.postgres import PostgresDialect

    return PostgresDialect(url)
