"""The sinks under test that are no log: a declaration, and the content that a stranger finds there."""

import importlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from grete import External, Files, Table, json
from grete.execution.sinks.sink_targets import SinkTarget, sinks_of
from grete.testing.contracts import SinkWorld

DDL = "CREATE TABLE numbers (task TEXT NOT NULL, number BIGINT NOT NULL)"


class Numbered(msgspec.Struct):
    """The row that the tests' tasks write."""

    task: str
    number: int


def declared_for(target: str) -> SinkTarget:
    """Return the declaration of a directory, of a table in a file or at a url, or of ``module:class:place``."""
    if Path(target).is_dir():
        return Files(target, json(Numbered))
    if (own := own_sink(target)) is not None:
        return External("own", json(Numbered), lambda: own(target.split(":", 2)[2]))
    return Table(target, "numbers", json(Numbered))


def own_sink(target: str) -> type[Any] | None:
    """Return the class that ``module:class:place`` names, a sink somebody wrote; None of any other target."""
    module, _, rest = target.partition(":")
    name, colon, _ = rest.partition(":")
    return getattr(importlib.import_module(module), name) if colon and name.isidentifier() else None


class DeclaredWorld(SinkWorld):
    """A place that an output of a task is declared for, by a text that can be handed to another process: ``target``."""

    def __init__(self, target: str, content: Callable[[], dict[str, list[int]]]) -> None:
        super().__init__(lambda: next(iter(sinks_of({"out": declared_for(target)}).values())), content)
        self.target = target


def files_world(directory: Path) -> DeclaredWorld:
    """Return a world of files below ``directory``."""
    directory.mkdir()

    def content() -> dict[str, list[int]]:
        paths = sorted(directory.glob("*.jsonl"), key=lambda path: place_of(path.stem))
        lines = [line for path in paths for line in path.read_bytes().splitlines()]
        return by_task([msgspec.json.decode(line, type=Numbered) for line in lines])

    return DeclaredWorld(str(directory), content)


def place_of(stem: str) -> tuple[int, int]:
    """Return the place of a file in a reader's order: checkpoints, then releases by their first number."""
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
    return DeclaredWorld(str(path), content)


def postgres_world(url: str) -> DeclaredWorld:
    """Return a world of one table in an empty PostgreSQL database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DDL.replace(")", ", place BIGSERIAL)"))

    def content() -> dict[str, list[int]]:
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute("SELECT task, number FROM numbers ORDER BY place").fetchall()
        return by_task([Numbered(*row) for row in rows])

    return DeclaredWorld(url, content)


def by_task(rows: list[Numbered]) -> dict[str, list[int]]:
    """Return task → its numbers."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.task, []).append(row.number)
    return found
