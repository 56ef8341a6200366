"""Where outputs go that are not a log, under test: a declaration, and what a stranger finds there."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from framework.execution.outbox import sinks_of
from framework.sinks.sink import Owner, Sink
from grete import Files, Table, json

OWNER = Owner("job", "stage-0", "nonce")
DDL = "CREATE TABLE numbers (task TEXT NOT NULL, number BIGINT NOT NULL)"


class Numbered(msgspec.Struct):
    """What the tests' tasks write."""

    task: str
    number: int


class SinkWorld:
    """One place. ``declared`` is an output to it, ``content`` reads it: the numbers of each task, in their order."""

    def __init__(
        self, declared: Files[Numbered] | Table[Numbered], content: Callable[[], dict[str, list[int]]]
    ) -> None:
        self.declared = declared
        self.content = content
        self._opened: list[Sink] = []

    def sink(self, owner: Owner = OWNER) -> Sink:
        """Return the sink as another process has it, open."""
        (sink,) = sinks_of({"out": self.declared}).values()
        self._opened.append(sink)
        sink.open(owner)
        return sink

    def close(self) -> None:
        """Close all of them."""
        for sink in self._opened:
            sink.close()


def files_world(directory: Path) -> SinkWorld:
    """Return a world of files below ``directory``."""
    directory.mkdir()

    def content() -> dict[str, list[int]]:
        paths = sorted(directory.glob("*.jsonl"), key=lambda path: int(path.stem.rpartition("-")[2]))
        lines = [line for path in paths for line in path.read_bytes().splitlines()]
        return by_task([msgspec.json.decode(line, type=Numbered) for line in lines])

    return SinkWorld(Files(str(directory), value=json(Numbered)), content)


def sqlite_world(path: Path) -> SinkWorld:
    """Return a world of one table in an SQLite file."""

    def ask(statement: str) -> list[Any]:
        connection = sqlite3.connect(path)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    ask(DDL)
    content = lambda: by_task([Numbered(*row) for row in ask("SELECT * FROM numbers ORDER BY rowid")])  # noqa: E731
    return SinkWorld(Table(str(path), "numbers", json(Numbered)), content)


def postgres_world(url: str) -> SinkWorld:
    """Return a world of one table in an empty PostgreSQL database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(DDL.replace(")", ", place BIGSERIAL)"))

    def content() -> dict[str, list[int]]:
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute("SELECT task, number FROM numbers ORDER BY place").fetchall()
        return by_task([Numbered(*row) for row in rows])

    return SinkWorld(Table(url, "numbers", json(Numbered)), content)


def by_task(rows: list[Numbered]) -> dict[str, list[int]]:
    """Return task → its numbers."""
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.task, []).append(row.number)
    return found


def entries(*numbers: int, task: str = "a") -> list[tuple[str, bytes]]:
    """Return what an outbox hands to a sink for these numbers."""
    return [("out", msgspec.json.encode(Numbered(task, number))) for number in numbers]


def apply(sink: Sink, checkpoint_id: int, *numbers: int, task: str = "a") -> bool:
    """Apply a checkpoint; return whether there was anything to do."""
    if not sink.begin(checkpoint_id):
        return False
    for number in numbers:
        sink.write(entries(number, task=task))
    sink.commit()
    return True
