"""The export: what the table and the archive hold, also after crashes."""

import sqlite3
from pathlib import Path

import pytest

from grete.errors import ConfigError, TaskError
from grete.testing import Kit
from tasks.sinks import Stock, job, stock

TABLE = "CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER)"


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the job's database and archive are relative paths


def sql(statement: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement in the job's database."""
    database = sqlite3.connect("shop.db")
    with database:
        rows = database.execute(statement).fetchall()
    database.close()
    return rows


def archived() -> list[str]:
    """Return the lines of all files, in the order of their checkpoints."""
    return [line for path in sorted(Path("archive").glob("part-*")) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("seed", range(3))
def test_the_table_has_the_last_row_and_the_archive_each(seed: int) -> None:
    """An upsert by key keeps one row for an item; a crash at any moment repeats no line of the archive."""
    sql(TABLE)
    kit = Kit(job)
    for pieces in range(9, 0, -1):
        kit.feed(stock, None, Stock("tea", pieces))
        kit.feed(stock, None, Stock("salt", 10 * pieces))
        kit.run(crashes=1, seed=10 * seed + pieces)
    kit.stop()
    assert sorted(sql("SELECT * FROM stock")) == [("salt", 10), ("tea", 1)]
    tea = [line for line in archived() if "tea" in line]
    assert tea == [f'{{"item":"tea","pieces":{pieces}}}' for pieces in range(9, 0, -1)]


def test_a_missing_table_is_named_before_anything_is_processed() -> None:
    """The task refuses to start, and the archive stays empty."""
    sql("CREATE TABLE other (item TEXT)")
    kit = Kit(job)
    kit.feed(stock, None, Stock("tea", 1))
    with pytest.raises((ConfigError, TaskError), match="stock"):
        kit.run()
    assert archived() == []
