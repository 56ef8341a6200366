"""Version 2 of the serdes: equal keys are equal bytes, and values have one order; version 1 writes as it always did."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from grete import (
    Call,
    Files,
    HoppingWindow,
    Input,
    IntervalJoin,
    Job,
    Output,
    Record,
    SessionWindow,
    Store,
    Table,
    TableJoin,
    Task,
    Topic,
    VersionedStore,
    avro,
    int64,
    json,
    utf8,
)
from grete.api.jobs.definition import define, encode_definition, take_over
from grete.api.jobs.versions import FIRST, NEWEST, as_declared, in_two_ways
from grete.api.serdes.serde import Serde, first_serde, key_serde, one_key_serde
from grete.errors import SerdeError

EAST = timezone(timedelta(hours=1))


@dataclass
class Priced:
    price: Decimal
    sizes: set[float]


class Row(msgspec.Struct, array_like=True, tag=True):
    """A struct that is a list in JSON, with a tag before its fields."""

    prices: frozenset[Decimal]
    at: datetime | None = None


class Named(NamedTuple):
    hours: dict[float, Decimal]


class Model(BaseModel):
    """A model: pydantic writes it."""

    price: Decimal
    at: datetime
    n: float
    by_hour: dict[int, float] = {}
    sizes: set[Decimal] = set()


NOON, SAME = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=EAST)
MAP = avro('{"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "double"}}]}')

ALIKE: dict[str, tuple[Serde[Any], list[Any], bytes]] = {
    "Decimal": (json(Decimal), [Decimal(each) for each in ("1.0", "1.00", "1", "0.1E+1")], b'"1"'),
    "whole": (json(Decimal), [Decimal(each) for each in ("100", "1E+2", "100.0")], b'"100"'),
    "small": (json(Decimal), [Decimal(each) for each in ("1E-7", "0.00000010")], b'"1E-7"'),
    "large": (json(Decimal), [Decimal(10) ** 30, Decimal("1E+30"), Decimal("1" + 30 * "0" + ".0")], b'"1E+30"'),
    "exact": (json(Decimal), [Decimal("1" * 40 + ".10"), Decimal("1" * 40 + ".1")], b'"' + 40 * b"1" + b'.1"'),
    "zero": (json(Decimal), [Decimal(each) for each in ("0", "-0", "0.00", "0E+5")], b'"0"'),
    "moment": (json(datetime), [NOON, SAME], b'"2026-01-01T12:00:00Z"'),
    "time": (json(time), [time(12, tzinfo=UTC), time(13, tzinfo=EAST)], b'"12:00:00Z"'),
    "float": (json(float), [5, 5.0], b"5"),
    "minus zero": (json(float), [0.0, -0.0, 0], b"0"),
    "huge": (json(float), [1e22, 10**22], b"1" + 22 * b"0"),
    "plain": (json, [{"a": 5.0, "b": [1, 2.0]}, {"b": [1.0, 2], "a": 5}], b'{"a":5,"b":[1,2]}'),
    "dict": (json(dict[int, int]), [{1: 1, 2: 2}, {2: 2, 1: 1}], b'{"1":1,"2":2}'),
    "keys": (json(dict[Decimal, int]), [{Decimal("1.0"): 1}, {Decimal(1): 1}], b'{"1":1}'),
    "dataclass": (
        json(Priced),
        [Priced(Decimal("1.50"), {10.0, 2.0}), Priced(Decimal("1.5"), {2, 10})],
        b'{"price":"1.5","sizes":[10,2]}',
    ),
    "list": (
        json(Row),
        [Row(frozenset({Decimal("2.0"), Decimal(1)}), SAME), Row(frozenset({Decimal("1.0"), Decimal(2)}), NOON)],
        b'["Row",["1","2"],"2026-01-01T12:00:00Z"]',
    ),
    "named tuple": (json(Named), [Named({1.0: Decimal("1.0")}), Named({1: Decimal(1)})], b'[{"1":"1"}]'),
    "model": (
        json(Model),
        [
            Model(price=Decimal("1.0"), at=SAME, n=5, by_hour={2: 1.0, 1: 2}, sizes={Decimal("2.0"), Decimal(1)}),
            Model(price=Decimal(1), at=NOON, n=5.0, by_hour={1: 2.0, 2: 1}, sizes={Decimal(2), Decimal("1.0")}),
        ],
        b'{"at":"2026-01-01T12:00:00Z","by_hour":{"1":2,"2":1},"n":5,"price":"1","sizes":["1","2"]}',
    ),
    "map of Avro": (
        MAP,
        [{"m": {"b": 1.0, "a": -0.0}}, {"m": {"a": 0, "b": 1}}],
        b"\x04\x02a" + bytes(8) + b"\x02b" + bytes(6) + b"\xf0?\x00",
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_equal_keys_have_equal_bytes(name: str) -> None:
    """And come back equal to what they were."""
    serde, equal, raw = ALIKE[name]
    for value in equal:
        assert value == equal[0]
        assert key_serde(serde).encode(value) == raw
    assert key_serde(serde).decode(raw) == equal[0]
    assert one_key_serde(key_serde(serde)) is key_serde(serde)


@pytest.mark.parametrize("name", ALIKE)
def test_version_1_writes_a_key_as_its_value_came(name: str) -> None:
    """By the serde that a job of before has, which knows no form for keys."""
    serde, equal, _ = ALIKE[name]
    before = first_serde(key_serde(serde))
    assert key_serde(before) is before
    assert len({before.encode(value) for value in equal}) > 1
    assert all(before.decode(before.encode(value)) == value for value in equal)


def test_a_value_keeps_what_a_key_has_not() -> None:
    """The zeros of a price, the time zone of a moment, the point of a float."""
    assert json(Decimal).encode(Decimal("1.50")) == b'"1.50"'
    assert json(datetime).encode(SAME) == b'"2026-01-01T13:00:00+01:00"'
    assert json.encode({"n": 5.0}) == b'{"n":5.0}'
    assert json(dict[int, float]).encode({2: 1.0, 1: 2.0}) == b'{"1":2.0,"2":1.0}'
    assert MAP.encode({"m": {"b": 1.0, "a": 0.0}}) == MAP.encode({"m": {"a": 0.0, "b": 1.0}})


def test_what_has_one_form_keeps_its_serde() -> None:
    """So it costs nothing, and a release before may read and write such a job."""
    for serde in (utf8, json(str), json(list[int]), json(dict[str, bool]), avro('"string"')):
        assert key_serde(serde) is serde
        assert first_serde(serde) is serde


def test_a_key_is_refused_as_a_value_is() -> None:
    """NaN has no form, and what is no JSON has none."""
    for value in (float("nan"), {"a": float("inf")}, object()):
        with pytest.raises(SerdeError, match="cannot encode"):
            one_key_serde(json).encode(value)


def test_a_time_of_another_day_keeps_its_zone() -> None:
    """Moved to UTC it would be another time."""
    early = time(0, 30, tzinfo=EAST)
    assert key_serde(json(time)).decode(key_serde(json(time)).encode(early)) == early
    assert key_serde(json(datetime)).encode(NOON.replace(tzinfo=None)) == b'"2026-01-01T12:00:00"'


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**25), 10**25)
PARTS = st.decimals(allow_nan=False, allow_infinity=False, places=3) | NUMBERS | st.text(max_size=3) | st.booleans()
TREES = st.recursive(
    PARTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
)


@given(TREES)
def test_the_same_value_in_another_spelling_is_the_same_key(value: Any) -> None:
    """Whole floats as ints, zeros behind a Decimal, dicts the other way round: any tree of them."""
    assert key_serde(json).encode(value) == key_serde(json).encode(_respelled(value))


def _respelled(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Decimal):
        return Decimal(f"{value:f}" + ("0" if "." in f"{value:f}" else ".0")) if value else Decimal("-0.0")
    if isinstance(value, list):
        return [_respelled(part) for part in value]
    if isinstance(value, dict):
        return {name: _respelled(value[name]) for name in reversed(value)}
    return value


async def fetch(_: str) -> dict[int, int]:
    """Return nothing of use."""
    return {}


class Everything(Task):
    """Has each kind of declaration."""

    lines = Input(Topic("lines", key=json(Decimal), value=json))
    store = Store("store", key=json(Decimal), value=json(dict[int, int]))
    window = HoppingWindow("window", 10, 5, key=json(Decimal), value=json(dict[int, int]))
    session = SessionWindow("session", 10, json(Decimal), json, lambda one, _: one)
    versioned = VersionedStore("versioned", json(datetime), json, 10)
    joined = IntervalJoin("joined", key=json(float), left=json, right=int64, before_ms=1, after_ms=1)
    rows = TableJoin("rows", json(float), json, json)
    out = Output(Topic("out", key=json(Decimal), value=json(Priced)))
    files = Output(Files("files", json(dict[int, int])))
    table = Output(Table("rows.db", "t", json(dict[int, int]), columns=["a"]))

    def process(self, record: Record[Decimal, Any]) -> None:
        """Do nothing."""

    def on_window(self, window: Any) -> None:
        """Do nothing."""

    def on_join(self, pair: Any) -> None:
        """Do nothing."""


class Asks(Task):
    """Makes a call."""

    lines = Input(Topic("lines", key=json(Decimal), value=json))
    price = Call(fetch, result=json(dict[int, int]))

    async def process(self, record: Record[Decimal, Any]) -> None:
        """Do nothing."""


def written(job: Job) -> dict[str, bytes]:
    """Return the bytes that each store of a job writes for a key and a value of several forms."""
    price, hours = Decimal("1.0"), {2: 1, 1: 2}
    samples: dict[str, tuple[Any, Any]] = {
        "store": (price, hours),
        "window": ((5, price), hours),
        "session": (price, [(1, 2, hours)]),
        "versioned": ((SAME, 7), hours),
        "joined-left": ((5.0, 7), (True, [hours])),
        "joined-right": ((5.0, 7), (True, [1])),
        "rows": (5.0, ((1, hours), (2, hours))),
    }
    stores = job.stages[0].all_stores()
    assert {store.name for store in stores} == samples.keys()
    return {s.name: s.key.encode(samples[s.name][0]) + s.value.encode(samples[s.name][1]) for s in stores}


GOLDEN_FIRST = {  # as releases 0.1 to 0.3 write them
    "store": b'"1.0"{"2":1,"1":2}',
    "window": bytes.fromhex("8000000000000005") + b'"1.0"{"2":1,"1":2}',
    "session": b'"1.0"' + bytes.fromhex("000000000000000100000000000000020000000d") + b'{"2":1,"1":2}',
    "versioned": bytes.fromhex("0000001b")
    + b'"2026-01-01T13:00:00+01:00"'
    + bytes.fromhex("80000000000000073d")
    + b'{"2":1,"1":2}',
    "joined-left": b"\0\0\0\x035.0" + bytes.fromhex("8000000000000007"),
    "joined-right": b"\0\0\0\x035.0" + bytes.fromhex("8000000000000007"),
    "rows": b"5.0",
}


def test_a_job_writes_by_the_version_that_it_has() -> None:
    """In stores, windows, joins, calls and outputs; what is decoded is the same, and so is the way to version 2."""
    job = Job("all", stages=[Everything, Asks])
    now = written(job)
    assert (job.serdes, now["store"]) == (NEWEST, b'"1"{"1":2,"2":1}')
    job.write_by(FIRST)
    first = written(job)
    assert all(first[name].startswith(raw) for name, raw in GOLDEN_FIRST.items()), first
    stage = job.stages[0]
    assert b'{"2":1,"1":2}' in first["joined-left"]
    assert first["rows"].count(b'{"2":1,"1":2}') == 2
    assert all(one != first[name] for name, one in now.items())
    target = stage.outputs["out"].target
    assert isinstance(target, Topic)
    assert one_key_serde(target.key).encode(Decimal("1.0")) == b'"1.0"'
    for name in ("files", "table"):
        assert stage.outputs[name].target.value.encode({2: 1, 1: 2}) == b'{"2":1,"1":2}'
    assert job.stages[1].calls["price"].result.encode({2: 1, 1: 2}) == b'{"2":1,"1":2}'
    assert as_declared(stage.stores["store"]) is Everything.store
    job.write_by(NEWEST)
    assert written(job) == now
    assert job.stages[0].stores["store"] is Everything.store


def test_the_definition_has_the_version() -> None:
    """It is what a job takes over; an older release, which would write the first one, cannot read it."""
    job, other = (Job("all", stages=[Everything, Asks]) for _ in range(2))
    found = define(job, {})
    assert (found["format"], found["serdes"]) == (3, 2)
    job.write_by(FIRST)
    before = define(job, {})
    assert "serdes" not in before
    assert encode_definition({**found, "format": 1}) == encode_definition(before | {"serdes": 2})
    take_over(before, other)
    assert (other.serdes, written(other)["store"]) == (FIRST, b'"1.0"{"2":1,"1":2}')
    assert encode_definition(define(other, {})) == encode_definition(before)
    take_over(found, other)
    assert other.serdes == NEWEST


def test_what_has_two_forms_is_named() -> None:
    """The stores and outputs with two forms are named, whatever version the job has."""
    job = Job("all", stages=[Everything])
    named = in_two_ways(job.stages[0])
    job.write_by(FIRST)
    assert in_two_ways(job.stages[0]) == named
    assert named[:2] == ["everything/store", "everything/window"]
    assert "everything's output out" in named
    assert len(named) == 10
