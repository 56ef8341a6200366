"""The connections of the SQLite sink."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from grete.sinks.sqlite import SqliteDialect
from grete.testing.contracts.sink import apply
from tests.contracts.sinks import sqlite_world


def test_what_is_applied_survives_a_power_loss_in_each_journal_mode(tmp_path: Path) -> None:
    """In the mode WAL, SQLite's default syncs no commit; what the sink has taken is deleted from the state."""
    path = tmp_path / "shop.db"
    made = sqlite3.connect(path)
    made.execute("PRAGMA journal_mode = WAL")
    made.close()
    connection = SqliteDialect(str(path)).connect()
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)  # EXTRA
    connection.close()


class EndedError(Exception):
    """The process has ended."""


class Ending(sqlite3.Connection):
    """One whose process ends before a statement: the one of this number."""

    left = 1 << 20

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Do the statement, unless it is too late."""
        Ending.left -= 1
        if Ending.left <= 0:
            raise EndedError
        return super().execute(*arguments)


def test_an_end_between_any_two_statements_shows_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and account are one transaction: whichever statement is done no more, the next process does the rest."""
    connect, statement = sqlite3.connect, 0
    monkeypatch.setattr(sqlite3, "connect", lambda *given, **options: connect(*given, **options, factory=Ending))
    ended = True
    while ended:
        statement += 1
        world = sqlite_world(tmp_path / f"numbers-{statement}.db")
        sink = world.sink()
        Ending.left, ended = statement, False
        try:
            apply(sink, 1, 1, 2)
        except EndedError:
            ended = True
        Ending.left = 1 << 20
        sink.close()
        assert world.content() in ({}, {"a": [1, 2]})
        again = world.sink()
        apply(again, 1, 1, 2)
        again.close()
        assert world.content() == {"a": [1, 2]}
    assert statement > 5  # at least: begin, the account, a savepoint, its release, the account, the commit
