"""The sinks under test that are no log: a declaration, and the content that a stranger finds there."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from grete import Files, Table, json
from grete.execution.sinks.sink_targets import sinks_of
from grete.testing.contracts import SinkWorld

DDL = "CREATE TABLE numbers (task TEXT NOT NULL, number BIGINT NOT NULL)"


class Numbered(msgspec.Struct):
    """The row that the tests' tasks write."""

    task: str
    number: int


class DeclaredWorld(SinkWorld):
    """A place that an output of a task is declared for: ``declared``."""

    def __init__(
        self, declared: Files[Numbered] | Table[Numbered], content: Callable[[], dict[str, list[int]]]
    ) -> None:
        super().__init__(lambda: next(iter(sinks_of({"out": declared}).values())), content)
        self.declared = declared


def files_world(directory: Path) -> DeclaredWorld:
    """Return a world of files below ``directory``."""
    directory.mkdir()

    def content() -> dict[str, list[int]]:
        paths = sorted(directory.glob("*.jsonl"), key=lambda path: place_of(path.stem))
        lines = [line for path in paths for line in path.read_bytes().splitlines()]
        return by_task([msgspec.json.decode(line, type=Numbered) for line in lines])

    return DeclaredWorld(Files(str(directory), value=json(Numbered)), content)


def place_of(stem: str) -> tuple[int, int]:
    """Return what a reader orders a task's files by: checkpoints, then releases by their first number."""
    _, _, released = stem.partition("-seq-")
    return (1, int(released.partition("-")[0])) if released else (0, int(stem.rpartition("-")[2]))


def sqlite_world(path: Path) -> DeclaredWorld:
    """Return a world of one table in an SQLite file."""

    def ask(statement: str) -> list[Any]:
        connection = sqlite3.connect(path)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    ask(DDL)
    content = lambda: by_task([Numbered(*row) for row in ask("SELECT * FROM numbers ORDER BY rowid")])  # noqa: E731  # one line
    return DeclaredWorld(Table(str(path), "numbers", json(Numbered)), content)


def postgres_world(url: str) -> DeclaredWorld:
    """Return a world of one table in an empty PostgreSQL database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DDL.replace(")", ", place BIGSERIAL)"))

    def content() -> dict[str, list[int]]:
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute("SELECT task, number FROM numbers ORDER BY place").fetchall()
        return by_task([Numbered(*row) for row in rows])

    return DeclaredWorld(Table(url, "numbers", json(Numbered)), content)


def by_task(rows: list[Numbered]) -> dict[str, list[int]]:
    """Return task → its numbers."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.task, []).append(row.number)
    return found
