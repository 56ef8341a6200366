"""Protobuf, pydantic and evolving Avro: what comes back, what equal values write, which changes a state allows."""

import json as plain
import random
import subprocess
import sys
from typing import Any

import pydantic
import pytest
from fastavro.utils import generate_many
from hypothesis import given
from hypothesis import strategies as st

from grete import Serde, Store, Topic, avro, json, protobuf, utf8
from grete.api.serdes.shapes import describe_serde, key_changes, shown, value_changes
from grete.errors import ConfigError, SerdeError
from grete.state.read.shown import to_text
from tests.support.messages import field, message


class Address(pydantic.BaseModel):
    street: str
    tags: frozenset[str] = frozenset()


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber", ge=0)
    to: Address | None = None
    lines: list[Address] = []


def changes(before: Serde[Any], now: Serde[Any]) -> list[str]:
    """Return the changes that a definition would name; it is kept as JSON."""
    return value_changes(plain.loads(plain.dumps(describe_serde(before))), describe_serde(now))


# --- pydantic ---------------------------------------------------------------------------------------------------------


def test_models_of_pydantic_come_back() -> None:
    """Alone, in a list, and inside one another; by their aliases, as pydantic writes them."""
    order = Order(orderNumber=1, to=Address(street="Ring", tags=frozenset("ba")), lines=[Address(street="Kai")])
    assert json(Order).decode(json(Order).encode(order)) == order
    assert json(list[Order] | None).decode(json(list[Order] | None).encode([order])) == [order]
    assert plain.loads(json(Order).encode(order))["orderNumber"] == 1


def test_pydantic_checks_what_is_read_and_written() -> None:
    """With its own words."""
    with pytest.raises(SerdeError, match="greater than or equal to 0"):
        json(Order).decode(b'{"orderNumber": -1}')
    with pytest.raises(SerdeError, match="cannot encode int 3"):
        json(Order).encode(3)  # type: ignore[arg-type]  # what a user may do


SETS = """
from tests.api.test_formats import *
print(json(Order).encode(Order(orderNumber=1, to=Address(street="Ring", tags=frozenset("qwertz")))))
"""


def test_equal_models_have_equal_bytes_in_every_process() -> None:
    """Sets are sorted, though pydantic writes them in the order of their hashes."""
    texts = {
        subprocess.run(
            [sys.executable, "-c", SETS], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    (text,) = texts
    assert '["e","q","r","t","w","z"]' in text


def test_a_job_without_pydantic_does_not_import_it() -> None:
    """Nor protobuf, nor what speaks with a registry."""
    code = "import sys, grete; print([m for m in ('pydantic', 'google.protobuf', 'httpx2') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def model(**fields: Any) -> Serde[Any]:
    """Return the JSON serde of a model with these fields."""
    return json(pydantic.create_model("Order", **fields))


def test_models_of_pydantic_change_as_structs_do() -> None:
    """A field with a default may come; none may go, get another type, or come without a default."""
    before = model(id=(str, ...))
    assert changes(before, model(id=(str, ...), n=(int, 0))) == []
    assert changes(before, model(id=(str, ...), n=(list[int], pydantic.Field(default_factory=list)))) == []
    assert "'n' of Order is new and has no default" in changes(before, model(id=(str, ...), n=(int, ...)))[0]
    assert changes(before, model(id=(int, ...))) == ["field 'id' of Order was str and is int"]
    assert changes(before, model(name=(str, ""))) == ["field 'id' of Order is gone"]
    assert shown(describe_serde(json(Order))) == (
        "json(Order(orderNumber: int, to: None | Address(street: str, tags: set[str] = []) = null, "
        "lines: list[Address(street: str, tags: set[str] = [])] = []))"
    )


# --- protobuf ---------------------------------------------------------------------------------------------------------

ID = field(1, "id", "string")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(1 << 63), (1 << 63) - 1))
def test_messages_come_back(text: str, number: int) -> None:
    """Decoding gives back what was encoded."""
    kind = message(ID, field(2, "n"))
    serde = protobuf(kind)
    assert serde.decode(serde.encode(kind(id=text, n=number))) == kind(id=text, n=number)


def test_what_is_no_message_is_refused() -> None:
    """At the declaration, at a send and at a read."""
    kind, other = message(ID), message(ID, name="Other")
    with pytest.raises(ConfigError, match="not a message class: give one that protoc has generated"):
        protobuf(str)
    with pytest.raises(SerdeError, match=r"protobuf\(shop.Order\) cannot encode .*need a shop.Order"):
        protobuf(kind).encode(other())
    with pytest.raises(SerdeError, match=r"protobuf\(shop.Order\) cannot decode bytes"):
        protobuf(kind).decode(b"\xff")


STATE = field(2, "state", ".shop.Order.State")
MESSAGES: list[tuple[str, Any, Any, str]] = [
    ("the same", message(ID), message(ID), ""),
    ("another name", message(ID), message(field(1, "key", "string"), name="Purchase"), ""),
    ("a field comes", message(ID), message(ID, field(2, "n")), ""),
    ("a field goes, its number is reserved", message(ID, field(2, "n")), message(ID, reserved=[2]), ""),
    ("a wider number", message(field(1, "n", "int32")), message(field(1, "n", "int64")), ""),
    ("text as bytes", message(ID), message(field(1, "id", "bytes")), ""),
    ("a value comes", message(STATE, enum={"A": 0}), message(STATE, enum={"A": 0, "B": 1}), ""),
    ("a field goes", message(ID, field(2, "n")), message(ID), "field 2 (n) of shop.Order is gone, and its number"),
    ("a reserved number comes", message(ID, reserved=[2]), message(ID, field(2, "n")), "has a number that was reserv"),
    ("another type", message(ID), message(field(1, "id")), "was string and is int64"),
    ("a narrower number", message(field(1, "n")), message(field(1, "n", "int32")), "was int64 and is int32"),
    ("many", message(ID), message(field(1, "id", "string", repeated=True)), "was string and is repeated string"),
    (
        "a value goes",
        message(STATE, enum={"A": 0, "B": 1}),
        message(STATE, enum={"A": 0}),
        "field 2 (state) of shop.Order has no value B any more",
    ),
    (
        "one of two",
        message(ID, field(2, "n")),
        message(field(1, "id", "string", oneof_index=0), field(2, "n", oneof_index=0), oneofs=["which"]),
        "fields 1 (id) and 2 (n) of shop.Order are in one oneof now",
    ),
    (
        "two fields change numbers",
        message(field(1, "n"), field(2, "m")),
        message(field(1, "m"), field(2, "n")),
        "field m had number 2 and has 1, which was that of n of shop.Order",
    ),
    (
        "two values change numbers",
        message(STATE, enum={"A": 0, "B": 1, "C": 2}),
        message(STATE, enum={"A": 0, "C": 1, "B": 2}),
        "field 2 (state) of shop.Order: value C had number 2 and has 1, which was that of B",
    ),
    (
        "a name with a new number",
        message(ID, field(2, "n", "int64")),
        message(ID, field(3, "n", "string"), reserved=[2]),
        "",
    ),
    (
        "another default",
        message(field(1, "n", default_value="3"), syntax="proto2"),
        message(field(1, "n", default_value="9"), syntax="proto2"),
        "field 1 (n) of shop.Order had the default 3 and has 9",
    ),
    (
        "required",
        message(ID, syntax="proto2"),
        message(ID, field(2, "n"), syntax="proto2"),
        "",
    ),
]


@pytest.mark.parametrize(("before", "now", "told"), [each[1:] for each in MESSAGES], ids=[each[0] for each in MESSAGES])
def test_messages_that_could_not_be_read_are_told(before: Any, now: Any, told: str) -> None:
    """By the numbers of fields, which are what is on the wire."""
    found = changes(protobuf(before), protobuf(now))
    assert bool(found) == bool(told)
    assert told in "".join(found)


def test_a_new_required_field_is_told() -> None:
    """Protobuf itself refuses to write a value of before then."""
    required = field(2, "n")
    required.label = required.LABEL_REQUIRED
    before, now = message(ID, syntax="proto2"), message(ID, required, syntax="proto2")
    assert "is new and required" in changes(protobuf(before), protobuf(now))[0]
    value = protobuf(now).decode(protobuf(before).encode(before(id="a")))
    with pytest.raises(SerdeError, match="missing required"):
        protobuf(now).encode(value)


def test_keys_may_not_change() -> None:
    """And a message that holds itself, or another one, is shown once."""
    inner = message(ID).DESCRIPTOR
    assert inner is not None
    tree = message(ID, field(2, "below", ".shop.Order", repeated=True))
    assert shown(describe_serde(protobuf(tree))) == (
        "protobuf(shop.Order(id: string = 1, below: repeated shop.Order = 2))"
    )
    assert changes(protobuf(tree), protobuf(tree)) == []
    assert key_changes(describe_serde(protobuf(message(ID))), describe_serde(protobuf(tree)))


def test_commands_show_messages_and_models_in_a_line() -> None:
    """As JSON."""
    assert to_text(message(ID, field(2, "n"))(id="a", n=1)) == '{"id": "a", "n": "1"}'
    assert to_text([Address(street="Ring")]) == '[{"street": "Ring", "tags": []}]'


# --- Avro that evolves ------------------------------------------------------------------------------------------------


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of a record Hit."""
    return {
        "type": "record",
        "name": "Hit",
        "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
        **more,
    }


V1 = record(("url", "string"), ("n", "int"))
V2 = record(("url", "string"), ("n", "long"), ("who", ["null", "string"], None))


def test_values_of_each_schema_are_read() -> None:
    """Those of the first have no mark; a value that is put again is the newest schema's."""
    v3 = record(("n", "long"), ("who", ["null", "string"], None))
    first, second = avro(V1), avro(V2, was=[V1])
    third = avro(v3, was=[V1, V2])
    old, new = first.encode({"url": "/", "n": 1}), second.encode({"url": "/", "n": 1 << 40, "who": "ann"})
    assert second.decode(old) == {"url": "/", "n": 1, "who": None}
    assert third.decode(old) == {"n": 1, "who": None}
    assert third.decode(new) == {"n": 1 << 40, "who": "ann"}
    assert new[:2] == b"\xc3\x01"
    with pytest.raises(SerdeError, match="bytes are left over"):
        second.decode(old + b"x")


def test_the_mark_is_that_of_other_implementations() -> None:
    """The fingerprint of "int" in Avro's own tests is 7275d51a3f395c8f, least byte first."""
    serde = avro('"int"', was=['"int"'])
    assert serde.encode(1) == b"\xc3\x01" + bytes.fromhex("7275d51a3f395c8f")[::-1] + b"\x02"


def test_a_change_names_the_schema_of_before() -> None:
    """With it the change is allowed; then nothing may be left out."""
    assert changes(avro(V1), avro(V2, was=[V1])) == []
    assert changes(avro(V1), avro({**V1, "doc": "said", "aliases": ["Old"]})) == []
    assert changes(avro(V2, was=[V1]), avro(V2, was=[V1])) == []
    (text,) = changes(avro(V1), avro(V2))
    assert text.endswith("which can read it")
    (text,) = changes(avro(V1), avro(record(("x", "int"))))
    assert text.endswith("which cannot read it: field 'x' of Hit is new and has no default")
    assert changes(avro(V2, was=[V1]), avro(V2))
    assert changes(avro(V2, was=[V1]), avro(V2, was=[V2]))
    assert key_changes(describe_serde(avro(V1)), describe_serde(avro(V1, was=[V1])))


def test_a_schema_that_cannot_read_is_refused_where_it_is_declared() -> None:
    """Not by a value, later."""
    with pytest.raises(ConfigError, match=r"cannot read values of was\[0\]: field 'n' of Hit was long and is int"):
        avro(V1, was=[V2])


def test_only_values_of_stores_have_fingerprints() -> None:
    """A reader of a topic would not know them, and no key would be found again."""
    serde = avro(V2, was=[V1])
    Store("hits", key=utf8, value=serde)
    with pytest.raises(ConfigError, match=r"the key of store hits: avro\(Hit\) has was="):
        Store("hits", key=serde, value=utf8)
    with pytest.raises(ConfigError, match=r"topic hits: .*leave was= out here"):
        Topic("hits", key=utf8, value=serde)


NAMED = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
TYPES: list[Any] = [
    "int",
    "long",
    "double",
    "string",
    "bytes",
    ["null", "int"],
    ["null", "long", "string"],
    NAMED,
    {**NAMED, "symbols": ["A"]},
    {**NAMED, "symbols": ["A"], "default": "A"},
    {"type": "fixed", "name": "F", "size": 2},
    {"type": "fixed", "name": "F", "size": 3},
    {"type": "array", "items": "int"},
    {"type": "array", "items": "string"},
    {"type": "map", "values": "long"},
    record(("a", "int")),
    record(("a", "long"), ("b", "int", 0)),
    record(("b", "int")),
    record(("next", ["null", "Hit"], None)),
    {"type": "int", "logicalType": "date"},
]
VALUES: dict[str, list[Any]] = {"int": [3], "null": [None], "E": ["A", "B"]}


@pytest.mark.parametrize("writer", TYPES, ids=str)
def test_what_is_allowed_can_be_read(writer: Any) -> None:
    """Each pair of schemas: where nothing is told, fastavro reads samples; they are drawn from the schema."""
    random.seed(1)
    samples = list(generate_many(writer, 8))
    for reader in TYPES:
        try:
            serde = avro(plain.dumps(reader), was=[plain.dumps(writer)])
        except ConfigError as error:
            assert "cannot read values of was[0]" in str(error)  # noqa: PT017  # the other branch is the test
            assert reader != writer
            continue
        for value in samples:
            serde.decode(avro(plain.dumps(writer)).encode(value))
