"""Tables in PostgreSQL as a sink: through a task, its outbox and a real server."""

import datetime as dt
import decimal
import math
import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest

from grete import Input, Job, Output, Record, Table, Task, Topic, avro, json, utf8
from grete.errors import ConfigError, Halted
from grete.sinks.postgres import PostgresDialect
from grete.sinks.sql import ACCOUNT_DDL
from grete.testing import Kit
from tests.execution.harness import Rig
from tests.support.postgres import Postgres

pytestmark = pytest.mark.postgres
LINES = Topic("lines", key=utf8, value=json)


class Order(msgspec.Struct):
    """A row."""

    id: int
    item: str


def job(target: Table[Any]) -> Job:
    """Return a job that writes what it reads."""

    class Export(Task):
        lines = Input(LINES)
        out = Output(target)

        def process(self, record: Record[str, Any]) -> None:
            self.out.send(None, record.value)

    return Job("shop", stages=[Export])


def database(url: str, *statements: str) -> list[Any]:
    """Run statements; return the rows of the last."""
    rows: list[Any] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            rows = cursor.fetchall() if cursor.description else []
    return rows


def feed(rig: Rig, *values: Any) -> None:
    """Process values."""
    rig.rows("lines", [(b"", msgspec.json.encode(value), 1) for value in values])


@pytest.fixture
def shop(postgres_database: str) -> str:
    """The url of a database with a table of orders."""
    database(postgres_database, "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT NOT NULL CHECK (item <> ''))")
    return postgres_database


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grete.sinks.postgres.LOCK_MS", 20)
    monkeypatch.setattr("grete.sinks.postgres.ANSWER_S", 5.0)


def orders(url: str) -> list[Any]:
    """Return all orders."""
    return database(url, "SELECT * FROM orders ORDER BY id")


def test_rows_and_their_checkpoint_are_one_transaction(shop: str) -> None:
    """Inserted with the checkpoint, which is beside them; an upsert keeps the last row of a key."""
    rig = Rig(job(Table(shop, "public.orders", json(Order), key=["id"])))
    feed(rig, {"id": 1, "item": "a"}, {"id": 2, "item": "b"}, {"id": 1, "item": "c"})
    rig.freeze()
    assert orders(shop) == []
    rig.overlay.apply_chunk(b"position")
    rig.processor.after_commit()
    rig.settle()
    assert orders(shop) == [(1, "c"), (2, "b")]
    assert database(shop, "SELECT job, task, version FROM grete_applied") == [("shop", "export-0", 1)]
    rig.processor.outbox.abandon()


@pytest.mark.parametrize(("wished", "had"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_a_commit_is_durable_whatever_the_role_has(shop: str, wished: str, had: str) -> None:
    """Applied outputs are deleted from the state, so they must survive a server crash. A stronger setting is kept."""
    name = urlsplit(shop).path.lstrip("/")
    database(shop, f'ALTER DATABASE "{name}" SET synchronous_commit = {wished}')
    connection = PostgresDialect(shop).connect()
    try:
        assert connection.execute("SHOW synchronous_commit").fetchone() == (had,)
    finally:
        connection.close()


def test_values_take_the_types_of_their_columns(postgres_database: str) -> None:
    """Times, numbers, bytes, arrays and JSON of a typed row arrive as what they are; of a plain row, as text reads."""

    class Wide(msgspec.Struct):
        at: dt.datetime
        day: dt.date
        amount: decimal.Decimal
        key: uuid.UUID
        raw: bytes
        tags: list[str]
        doc: dict[str, int]
        word: str
        flag: bool
        big: int
        none: int | None

    ddl = (
        "CREATE TABLE wide (at TIMESTAMPTZ, day DATE, amount NUMERIC, key UUID, raw BYTEA, tags TEXT[], doc JSONB, "
        'word JSON, flag BOOLEAN, big BIGINT, "100% odd ""name""" INT)'
    )
    database(postgres_database, ddl)
    columns = {name: name for name in Wide.__struct_fields__} | {"none": '100% odd "name"'}
    row = Wide(
        dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        dt.date(2026, 1, 2),
        decimal.Decimal("1.10"),
        uuid.UUID(int=5),
        b"\0\xff",
        ["a", "b"],
        {"x": 1},
        "text",
        True,
        1 << 40,
        None,
    )
    rig = Rig(job(Table(postgres_database, "wide", json(Wide), columns=columns)))
    rig.task.out.send(None, row)
    rig.commit()
    rig.processor.outbox.abandon()
    (found,) = database(postgres_database, "SET timezone = 'UTC'", "SELECT * FROM wide")
    assert found == tuple(getattr(row, name) for name in Wide.__struct_fields__)
    plain = Rig(job(Table(postgres_database, "wide", json, columns=["at", "amount"], key=[])), disk=rig.disk)
    feed(plain, {"at": "2026-01-02T03:04:05Z", "amount": "2.20"})
    plain.checkpoint_id = 1
    plain.commit()
    plain.processor.outbox.abandon()
    assert (
        len(database(postgres_database, "SELECT * FROM wide WHERE amount = 2.20 AND at = '2026-01-02 03:04:05Z'")) == 1
    )


def test_a_column_of_floats_keeps_what_one_of_json_refuses(postgres_database: str) -> None:
    """PostgreSQL has NaN and infinity, alone and in arrays; in JSON they would become null."""
    database(postgres_database, "CREATE TABLE floats (x double precision, many double precision[], told json)")
    floats = {"type": "array", "items": "double"}
    fields = [{"name": "x", "type": "double"}, {"name": "many", "type": floats}, {"name": "told", "type": floats}]
    row = avro({"type": "record", "name": "Floats", "fields": fields})
    target: Table[Any] = Table(postgres_database, "floats", row, columns=["x", "many", "told"])
    rig = Rig(job(target))
    rig.task.out.send(None, {"x": math.inf, "many": [-math.inf, 1.0], "told": [1.5]})
    rig.commit()
    assert database(postgres_database, "SELECT x, many, told::text FROM floats") == [
        (math.inf, [-math.inf, 1], "[1.5]")
    ]
    rig.task.out.send(None, {"x": 1.0, "many": [], "told": [math.nan]})
    with pytest.raises(Halted, match=r"floats.\.told: \$\[0\] is nan, which JSON does not have.*a column of floats"):
        rig.commit()
    rig.processor.outbox.abandon()


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (lambda url: Table(url, "order", json(Order)), 'relation "order" does not exist'),
        (
            lambda url: Table(url, "orders", json, columns=["id", "Item"]),
            'column "Item" of relation "orders" does not exist',
        ),
        (lambda url: Table(url, "orders", json(Order), key=["item"]), "no unique or exclusion constraint matching"),
        (lambda url: Table(_with(url, path="/none"), "orders", json(Order)), 'database "none" does not exist'),
        (
            lambda _: Table("postgresql://h:port/d", "orders", json(Order)),
            "not a url that PostgreSQL's libpq understands",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_processed(shop: str, target: Any, text: str) -> None:
    """No database, no table, no column, no unique key: a ConfigError at the start says so."""
    with pytest.raises(ConfigError) as caught:
        Rig(job(target(shop)))
    assert text in str(caught.value)


def test_a_role_without_rights_is_refused_before_anything_is_processed(shop: str) -> None:
    """No right to insert, then none to make the account: the error says what is not allowed, and what to make."""
    role = f"r{uuid.uuid4().hex[:8]}"
    database(shop, f"CREATE ROLE {role} LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    table = Table(_with(shop, user=role), "orders", json(Order))
    with pytest.raises(ConfigError, match="permission denied for table orders"):
        Rig(job(table))
    database(shop, f"GRANT INSERT ON orders TO {role}")
    with pytest.raises(
        ConfigError, match=r"to make it yourself: CREATE TABLE grete_applied .*permission denied for schema"
    ):
        Rig(job(table))
    database(shop, ACCOUNT_DDL, f"GRANT SELECT, INSERT, UPDATE ON grete_applied TO {role}")
    rig = Rig(job(table))
    feed(rig, {"id": 1, "item": "a"})
    rig.commit()
    rig.processor.outbox.abandon()
    assert orders(shop) == [(1, "a")]
    database(shop, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_row_that_is_refused_halts_and_is_named(shop: str) -> None:
    """The error says table, row, why and what to do; nothing of the checkpoint shows, and later it is applied whole."""
    rig = Rig(job(Table(shop, "orders", json(Order))))
    feed(rig, {"id": 1, "item": "a"}, {"id": 2, "item": ""}, {"id": 3, "item": "c"})
    with pytest.raises(
        Halted, match=r"writing orders, row \{'id': 2, 'item': ''\}: .*violates check.*change the table"
    ):
        rig.commit()
    rig.processor.outbox.abandon()
    assert orders(shop) == []
    database(shop, "ALTER TABLE orders DROP CONSTRAINT orders_item_check")
    Rig(job(Table(shop, "orders", json(Order))), disk=rig.disk).processor.outbox.abandon()
    assert orders(shop) == [(1, "a"), (2, ""), (3, "c")]


def test_a_server_that_is_down_is_tried_again_and_nothing_is_lost(shop: str, postgres: Postgres) -> None:
    """It ends in the middle of a checkpoint: the task goes on, and what waits is applied when the server is back."""
    assert postgres.own, "the server of GRETE_POSTGRES is not ours to stop: run this test without it"
    rig = Rig(job(Table(shop, "orders", json(Order))), sink_buffer_bytes_max=4000)
    outbox = rig.processor.outbox
    feed(rig, {"id": 1, "item": "a"})
    rig.freeze()
    rig.overlay.apply_chunk(b"position")
    rig.processor.after_commit()
    assert outbox.work(rig.now_ms)  # begun
    postgres.stop()
    try:
        rig.settle()
        assert outbox.trouble is not None
        for number in range(2, 6):
            feed(rig, {"id": number, "item": "x" * 1000})
            rig.commit()
            rig.now_ms += outbox.due_in_ms(rig.now_ms)
            rig.settle()
        assert outbox.waiting_bytes > 4000, "over the bound, at which the driver reads no more"
    finally:
        postgres.start()
    rig.now_ms += outbox.due_in_ms(rig.now_ms)
    rig.settle()
    outbox.abandon()
    assert outbox.settled
    assert [row[0] for row in orders(shop)] == [1, 2, 3, 4, 5]


def test_a_lock_and_a_silent_server_are_waited_for_with_back_off(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another session holds the table, longer than the lock's and the answer's time-out: both are transient."""
    rig = Rig(job(Table(shop, "orders", json(Order))))
    outbox = rig.processor.outbox
    with psycopg.connect(shop) as other:
        other.execute("LOCK TABLE orders")
        feed(rig, {"id": 1, "item": "a"})
        rig.commit()
        assert "lock timeout" in (outbox.trouble or "")
        monkeypatch.setattr("grete.sinks.postgres.LOCK_MS", 60_000)
        monkeypatch.setattr("grete.sinks.postgres.ANSWER_S", 0.2)
        rig.now_ms += outbox.due_in_ms(rig.now_ms)
        rig.settle()
        assert "timeout expired" in (outbox.trouble or "")
    rig.now_ms += outbox.due_in_ms(rig.now_ms)
    monkeypatch.setattr("grete.sinks.postgres.ANSWER_S", 5.0)
    rig.settle()
    outbox.abandon()
    assert orders(shop) == [(1, "a")]


def test_passwords_stand_in_no_error(shop: str) -> None:
    """A url with a password that cannot be parsed, or does not connect, is shown without it."""
    secret = "s3cr3t"
    for url in (f"postgresql://u:{secret}" + "@[::1/d", f"postgresql://u:{secret}" + "@h:port/d"):
        with pytest.raises(ConfigError) as caught:
            Rig(job(Table(url, "orders", json(Order))))
        assert secret not in repr(caught.value) + repr(caught.value.__cause__)
    url = _with(shop, user=f"nobody_of_this_name:{secret}")
    with pytest.raises(ConfigError, match="nobody_of_this_name") as caught:
        Rig(job(Table(url, "orders", json(Order))))
    assert secret not in repr(caught.value) + repr(caught.value.__cause__)


def test_without_the_client_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg is looked for only where a url needs it; the error says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'grete\[postgres\]'"):
        Rig(job(Table("postgresql://h/d", "orders", json(Order))))


def test_two_urls_of_one_database_are_refused(shop: str) -> None:
    """Each sink would take the other's checkpoint for applied, and rows of one table would be missing."""
    database(shop, "CREATE TABLE copies (id INT PRIMARY KEY, item TEXT NOT NULL)")
    other = f"{shop}{'&' if '?' in shop else '?'}application_name=other"

    class Export(Task):
        lines = Input(LINES)
        out = Output(Table(shop, "orders", json(Order)))
        copy = Output(Table(other, "copies", json(Order)))

        def process(self, record: Record[str, Any]) -> None:
            self.out.send(None, record.value)
            self.copy.send(None, record.value)

    with pytest.raises(ConfigError, match="are one database, and rows of one would be missing"):
        Rig(Job("shop", stages=[Export])).settle()
    assert orders(shop) == []


def test_the_kit_runs_a_task_with_a_table(shop: str) -> None:
    """Crashes between any two steps: each row is in the table once."""
    kit = Kit(job(Table(shop, "orders", json(Order))))
    for number in range(10):
        kit.feed(LINES, None, {"id": number, "item": "a"})
    kit.run(crashes=8, seed=3)
    kit.crash_all()
    assert [row[0] for row in orders(shop)] == list(range(10))


def _with(url: str, *, path: str | None = None, user: str | None = None) -> str:
    """Return the url with another database or role."""
    parts = urlsplit(url)
    if path is not None:
        parts = parts._replace(path=path)
    if user is not None:
        parts = parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}")
    return parts.geturl()
