"""Whether code closes the files of SQLite that it opens: Python 3.13 warns of each one that it does not."""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def all_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Assert that the block opens files of SQLite and closes every one; a connection that is held does not close."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def remember(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*arguments, **options))
        return opened[-1]

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", remember)
        yield
    left = [connection for connection in opened if is_open(connection)]
    for connection in left:
        connection.close()
    assert opened
    assert not left


def is_open(connection: sqlite3.Connection) -> bool:
    """Whether a connection can still be used."""
    try:
        connection.execute("PRAGMA user_version")
    except sqlite3.ProgrammingError:
        return False
    return True
