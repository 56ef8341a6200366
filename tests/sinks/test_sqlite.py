"""Tables in SQLite as a sink: through a task, its outbox and a real file."""

import datetime as dt
import decimal
import gc
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grete import DeadLetter, Input, Job, Output, Record, Table, Task, Topic, avro, json, utf8
from grete.errors import ConfigError, Halted, SerdeError, TaskError
from grete.execution.timing.reserved_stores import OUTBOX
from grete.settings import Settings
from grete.testing import Kit
from tests.execution.harness import Rig
from tests.support.sqlite_files import all_closed

LINES = Topic("lines", key=utf8, value=json)
LETTERS = Topic("letters", key=utf8, value=json)


class Order(msgspec.Struct):
    """A row."""

    id: int
    item: str
    price: decimal.Decimal | None = None


def job(*targets: Any) -> Job:
    """Return a job that writes what it reads: a list has a row for each of the targets."""

    class Export(Task):
        lines = Input(LINES, errors=DeadLetter(LETTERS))
        out = Output(targets[0])
        second = Output(targets[-1] if len(targets) > 1 else Topic("unused", key=utf8, value=utf8))

        def process(self, record: Record[str, Any]) -> None:
            rows = record.value if isinstance(record.value, list) else [record.value]
            for output, row in zip((self.out, self.second), rows, strict=False):
                output.send(None, msgspec.convert(row, Order) if record.key == "order" else row)

    return Job("shop", stages=[Export])


def database(path: Path, *statements: str) -> list[Any]:
    """Run statements on a database file; return the rows of the last."""
    connection = sqlite3.connect(path)
    try:
        rows: list[Any] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


def feed(rig: Rig, *values: Any, key: bytes = b"order") -> None:
    """Process values."""
    rig.rows("lines", [(key, msgspec.json.encode(value), 1) for value in values])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database with a table of orders."""
    path = tmp_path / "shop.db"
    database(path, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL CHECK (item <> ''), price TEXT)")
    return path


def orders(path: Path) -> list[Any]:
    """Return all orders."""
    return database(path, "SELECT * FROM orders ORDER BY id")


def test_rows_of_a_struct_are_inserted_with_their_checkpoint(shop: Path) -> None:
    """The struct's fields are the columns.

    Nothing shows before the commit; then checkpoint and rows show together (S2).
    """
    rig = Rig(job(Table(str(shop), "orders", json(Order))))
    feed(rig, {"id": 1, "item": "bread", "price": "2.50"}, {"id": 2, "item": "salt"})
    rig.freeze()
    assert orders(shop) == []
    rig.overlay.apply_chunk(b"position")
    rig.processor.after_commit()
    rig.settle()
    assert orders(shop) == [(1, "bread", "2.50"), (2, "salt", None)]
    assert database(shop, "SELECT job, task, version FROM grete_applied") == [("shop", "export-0", 1)]
    rig.commit()
    rig.commit()
    assert set(rig.disk.stores[OUTBOX].values) == {b"account", b"nonce"}, "applied rows leave the state"


def test_an_upsert_keeps_the_last_row_of_a_key(shop: Path) -> None:
    """Within a checkpoint and across checkpoints; columns that are not the row's keep their value."""
    database(shop, "ALTER TABLE orders ADD COLUMN note TEXT DEFAULT 'x'")
    rig = Rig(job(Table(str(shop), "orders", json, key=["id"], columns={"nr": "id", "what": "item"})))
    feed(rig, {"nr": 1, "what": "a"}, {"nr": 2, "what": "b"}, {"nr": 1, "what": "c"}, key=b"dict")
    rig.commit()
    database(shop, "UPDATE orders SET note = 'mine'")
    feed(rig, {"nr": 2, "what": "d"}, key=b"dict")
    rig.commit()
    assert orders(shop) == [(1, "c", None, "mine"), (2, "d", None, "mine")]


def test_values_are_stored_as_sqlite_can(tmp_path: Path) -> None:
    """Times, decimals and UUIDs become text, objects and lists JSON, bytes stay bytes."""

    class Wide(msgspec.Struct):
        at: dt.datetime
        day: dt.date
        amount: decimal.Decimal
        key: uuid.UUID
        raw: bytes
        tags: list[str]
        flag: bool
        none: int | None

    path = tmp_path / "wide.db"
    database(path, "CREATE TABLE wide (at, day, amount, key, raw, tags, flag, none)")
    rig = Rig(job(Table(str(path), "wide", json(Wide))))
    row = Wide(
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        dt.date(2026, 1, 2),
        decimal.Decimal("1.10"),
        uuid.UUID(int=5),
        b"\0",
        ["a"],
        True,
        None,
    )
    feed(rig, msgspec.to_builtins(row), key=b"dict")
    rig.commit()
    assert database(path, "SELECT * FROM wide") == [
        ("2026-01-02T03:04:05Z", "2026-01-02", "1.10", str(uuid.UUID(int=5)), b"\0", '["a"]', 1, None)
    ]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            lambda p: Table(str(p / "none.db"), "orders", json(Order)),
            "there is no such file: create it, with its tables",
        ),
        (lambda p: Table(str(p / "shop.db"), "order", json(Order)), "no such table: order"),
        (
            lambda p: Table(str(p / "shop.db"), "orders", json, columns=["id", "colour"]),
            "checking table orders with columns id, colour: table orders has no column named colour",
        ),
        (
            lambda p: Table(str(p / "shop.db"), "orders", json(Order), key=["item"]),
            "ON CONFLICT clause does not match any PRIMARY KEY or UNIQUE constraint",
        ),
        (lambda _: Table("env:GRETE_TEST_NO_DB", "orders", json(Order)), "variable GRETE_TEST_NO_DB is not set"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_processed(shop: Path, target: Any, text: str) -> None:
    """No file, no table, no column, no unique key, no variable: a ConfigError at the start says so."""
    with pytest.raises(ConfigError) as caught:
        Rig(job(target(shop.parent)))
    assert text in str(caught.value)


def test_the_url_may_stand_in_the_environment(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``env:NAME`` is read when the task starts."""
    monkeypatch.setenv("GRETE_TEST_DB", str(shop))
    rig = Rig(job(Table("env:GRETE_TEST_DB", "orders", json(Order))))
    feed(rig, {"id": 1, "item": "a"})
    rig.commit()
    assert orders(shop) == [(1, "a", None)]


def test_a_row_that_is_refused_halts_and_is_named_and_nothing_of_its_checkpoint_shows(shop: Path) -> None:
    """The error says table, row, why and what to do; once the table takes it, the checkpoint is applied as it was."""
    rig = Rig(job(Table(str(shop), "orders", json(Order))))
    feed(rig, {"id": 1, "item": "a"}, {"id": 2, "item": ""}, {"id": 3, "item": "c"})
    with pytest.raises(
        Halted, match=r"writing orders, row \{'id': 2, 'item': '', .*CHECK constraint.*change the table"
    ):
        rig.commit()
    rig.processor.outbox.abandon()
    assert orders(shop) == []
    database(shop, "DROP TABLE orders", "CREATE TABLE orders (id INTEGER, item TEXT, price TEXT)")
    Rig(job(Table(str(shop), "orders", json(Order))), disk=rig.disk)
    assert [row[0] for row in orders(shop)] == [1, 2, 3]


def test_a_row_that_is_none_is_refused_when_it_is_sent(shop: Path) -> None:
    """Missing and surplus fields and values that the type refuses are the task's error, not the commit's."""
    rig = Rig(job(Table(str(shop), "orders", json(Order)), Table(str(shop), "orders", json, columns=["id", "item"])))
    with pytest.raises(SerdeError, match=r"output to Table\(.*shop\.db', 'orders'\): .*'id', 'item', 'note'"):
        rig.task.second.send(None, {"id": 1, "item": "a", "note": "?"})
    with pytest.raises(SerdeError, match="'id'"):
        rig.task.second.send(None, {"id": 1})
    with pytest.raises(TaskError, match="cannot encode Order"):
        rig.task.out.send(None, Order("one", "a"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TaskError, match="cannot encode None"):
        rig.task.out.send(None, None)


def test_a_number_that_sqlite_does_not_have_is_refused_when_it_is_sent(shop: Path) -> None:
    """SQLite makes null of NaN, and JSON does so within a column; Avro has such numbers, so its serde passes them."""
    row = avro({"type": "map", "values": ["double", {"type": "array", "items": "double"}]})
    rig = Rig(job(Table(str(shop), "orders", row, columns=["id", "item"])))
    for value in ({"id": float("nan"), "item": 1.0}, {"id": 1.0, "item": [float("inf")]}):
        with pytest.raises(SerdeError, match=r"'orders'\): serde avro\(map\) cannot .* which JSON does not have"):
            rig.task.out.send(None, value)


def test_two_jobs_of_one_name_are_told_apart(shop: Path) -> None:
    """A job that was started again, or a copy of it, does not take the other's account for its own (S2)."""
    table = Table(str(shop), "orders", json(Order))
    first = Rig(job(table))
    feed(first, {"id": 1, "item": "a"})
    first.commit()
    with pytest.raises(
        Halted, match=r"another job named 'shop' has applied checkpoint 1 .* delete the rows of grete_applied"
    ):
        Rig(job(table))
    database(shop, "DELETE FROM grete_applied WHERE job = 'shop'")
    again = Rig(job(table))
    feed(again, {"id": 2, "item": "b"})
    again.commit()
    assert [row[0] for row in orders(shop)] == [1, 2]


def test_a_database_that_lost_what_was_applied_is_noticed(shop: Path) -> None:
    """A backup brought back, or another database: rows that are kept nowhere any more are not passed over (S2)."""
    table = Table(str(shop), "orders", json(Order))
    rig = Rig(job(table))
    feed(rig, {"id": 1, "item": "a"})
    rig.commit()
    backup = shop.read_bytes()
    feed(rig, {"id": 2, "item": "b"})
    rig.commit()
    rig.commit()
    rig.processor.outbox.abandon()
    shop.write_bytes(backup)
    with pytest.raises(
        Halted, match=r"has checkpoint 1 .* but checkpoint 2 was applied .* from a backup.* set version = 2 in"
    ):
        Rig(job(table), disk=rig.disk)
    database(shop, "UPDATE grete_applied SET version = 2")
    Rig(job(table), disk=rig.disk)


def test_an_output_that_was_removed_too_early_is_noticed(shop: Path) -> None:
    """Committed rows whose table is declared no more are not lost: the task halts and says what to declare."""
    rig = Rig(job(Table(str(shop), "orders", json(Order))))
    feed(rig, {"id": 1, "item": "a"})
    rig.freeze()
    rig.overlay.apply_chunk(b"position")
    with pytest.raises(ConfigError, match="committed rows of output 'out' are not applied yet: declare the table"):
        Rig(job(Topic("other", key=utf8, value=json)), disk=rig.disk)


def test_a_locked_database_is_tried_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer keeps the file: the task goes on, and the checkpoint is applied when the file is free."""
    monkeypatch.setattr("grete.sinks.sqlite.BUSY_S", 0.01)
    rig = Rig(job(Table(str(shop), "orders", json(Order))))
    other = sqlite3.connect(shop, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    feed(rig, {"id": 1, "item": "a"})
    rig.commit()
    outbox = rig.processor.outbox
    assert "database is locked" in (outbox.trouble or "")
    other.execute("ROLLBACK")
    other.close()
    rig.now_ms += outbox.due_in_ms(rig.now_ms)
    rig.settle()
    assert (len(orders(shop)), outbox.trouble) == (1, None)


def test_a_task_reads_no_more_when_too_much_waits(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing before it has seen the table, and no more once sink_buffer_bytes_max wait.

    Nothing is lost (1.8 S2).
    """
    monkeypatch.setattr("grete.sinks.sqlite.BUSY_S", 0.001)
    kit = Kit(job(Table(str(shop), "orders", json(Order))), settings=Settings(sink_buffer_bytes_max=4000))

    def feed_and_advance(first: int, last: int) -> int:
        """Feed some orders, let a checkpoint go by after each few; return how many have been read in all."""
        for number in range(first, last):
            kit.feed(LINES, "order", {"id": number, "item": "a" * 50})
            if number % 5 == 4:
                kit.advance(400)
        return kit.counters["external records"]

    other = sqlite3.connect(shop, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert feed_and_advance(0, 10) == 0
    other.execute("ROLLBACK")
    kit.run()
    other.execute("BEGIN IMMEDIATE")
    read = feed_and_advance(10, 100)
    assert 20 < read < 60
    kit.advance(5000)
    assert kit.counters["external records"] == read
    other.execute("ROLLBACK")
    other.close()
    kit.run()
    kit.stop()
    assert [row[0] for row in orders(shop)] == list(range(100))


def test_a_kit_that_is_dropped_closes_its_databases(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test need not stop its kit: the file is closed all the same, and so are those of tasks that were killed."""
    with all_closed(monkeypatch):
        kit = Kit(job(Table(str(shop), "orders", json(Order))))
        kit.feed(LINES, "order", {"id": 1, "item": "a"})
        kit.run()
        kit.crash_all()
        kit.run()
        del kit
        gc.collect()
    assert len(orders(shop)) == 1


@pytest.mark.parametrize("other_host", [False, True])
def test_the_kit_runs_a_task_with_a_table(shop: Path, *, other_host: bool) -> None:
    """Crashes between any two steps, with or without the disk: each row is in the table once."""
    kit = Kit(job(Table(str(shop), "orders", json(Order))))
    for number in range(20):
        kit.feed(LINES, "order", {"id": number, "item": "a"})
        if number % 5 == 0:
            kit.run(crashes=3, seed=number)
            kit.crash("export", other_host=other_host)
    kit.run(crashes=5, seed=1)
    assert [row[0] for row in orders(shop)] == list(range(20))
