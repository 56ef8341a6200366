"""The connections of the SQLite sink."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from grete import Table, json
from grete.sinks.sqlite import SqliteDialect
from grete.testing.contracts.sink import apply
from tests.contracts.sinks import sqlite_world
from tests.execution.harness import Rig
from tests.sinks.test_sqlite import Order, database, feed, job, orders


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


def test_names_are_taken_as_they_are(tmp_path: Path) -> None:
    """A quote in the name of a table or column neither ends the name nor begins a statement."""
    path, column = tmp_path / "odd.db", 'odd ""; drop'
    database(path, 'CREATE TABLE "of ""all""" ("odd """"; drop" INTEGER PRIMARY KEY, item TEXT)')
    target = Table(str(path), 'of "all"', json, columns={"id": column, "item": "item"}, key=[column])
    rig = Rig(job(target))
    feed(rig, {"id": 1, "item": "a"}, {"id": 1, "item": "b"}, key=b"plain")
    rig.commit()
    rig.processor.outbox.abandon()
    assert database(path, 'SELECT * FROM "of ""all"""') == [(1, "b")]


def test_tables_of_one_database_change_in_one_transaction_in_the_order_of_the_sends(tmp_path: Path) -> None:
    """A row that refers to one of another table, sent before, is accepted; there is one account for both."""
    refused = "NEW.order_id NOT IN (SELECT id FROM orders) BEGIN SELECT RAISE(ABORT, 'none'); END"  # as a foreign key
    known = f"CREATE TRIGGER known BEFORE INSERT ON lines WHEN {refused}"
    shop = tmp_path / "shop.db"
    database(shop, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, price TEXT)")
    database(shop, "CREATE TABLE lines (order_id INTEGER NOT NULL, item TEXT)", known)
    lines = Table(str(shop), "lines", json, columns={"id": "order_id", "item": "item"})
    rig = Rig(job(Table(str(shop), "orders", json(Order)), lines))
    pairs = [[{"id": n, "item": "a", "price": None}, {"id": n, "item": "x"}] for n in (1, 2)]
    feed(rig, *pairs, key=b"dict")
    rig.commit()
    assert [row[:2] for row in orders(shop)] == [(1, "a"), (2, "a")]
    assert database(shop, "SELECT * FROM lines") == [(1, "x"), (2, "x")]
    assert database(shop, "SELECT version FROM grete_applied") == [(1,)]
