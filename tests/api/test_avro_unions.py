"""Unions of Avro: the branch is kept from the first read to the last write, or a value that names none is refused."""

from typing import Any, Literal

import msgspec
import pydantic
import pytest

from grete import Input, Job, Output, Record, SchemaRegistry, Serde, Store, Task, Topic, avro, json, utf8
from grete.errors import ConfigError, SerdeError
from grete.testing import Kit

FIELDS = [{"name": "order", "type": "string"}]
PLACED, SHIPPED = (
    {"type": "record", "name": name, "namespace": "shop", "fields": FIELDS} for name in ("Placed", "Gone")
)


def of(union: Any) -> dict[str, Any]:
    """Return the schema of a record with one field."""
    return {"type": "record", "name": "Envelope", "fields": [{"name": "event", "type": union}]}


def event(name: str) -> dict[str, str]:
    """Return a record of the union."""
    return {"-type": f"shop.{name}", "order": "7"}


def both(schema: Any) -> list[Serde[Any]]:
    """Return the serde of a schema, and that of a registry."""
    return [avro(schema), Topic("t", key=utf8, value=SchemaRegistry("mock://unions").avro(schema)).value]


@pytest.mark.parametrize("serde", both(of([PLACED, SHIPPED])), ids=["avro", "registry"])
def test_what_a_job_passes_on_has_the_branch_that_came(serde: Serde[Any]) -> None:
    """Through a store, a stream between stages and a crash, though both records have the same fields."""
    entry, between, target = (Topic(name, key=utf8, value=serde) for name in ("in", "between", "out"))

    class First(Task):
        source = Input(entry)
        out = Output(between)

        def process(self, record: Record[str, Any]) -> None:
            self.out.send(record.key, record.value)

    class Last(Task):
        source = Input(between)
        last = Store("last", key=utf8, value=avro(of([PLACED, SHIPPED])))
        out = Output(target)

        def process(self, record: Record[str, Any]) -> None:
            self.last.put(record.key, record.value)
            self.out.send(record.key, self.last.get(record.key))

    kit = Kit(Job("unions", stages=[First, Last]))
    for name in ("Gone", "Placed"):
        kit.feed(entry, name, {"event": event(name)})
    kit.run(crashes=2)
    assert sorted(kit.pairs(target)) == [(name, {"event": event(name)}) for name in ("Gone", "Placed")]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (of({"type": "array", "items": [PLACED, SHIPPED]}), {"event": [event("Gone"), event("Placed")]}),
        (of({"type": "map", "values": [SHIPPED, PLACED]}), {"event": {"a": event("Gone"), "b": event("Placed")}}),
        ([PLACED, SHIPPED, "null"], event("Gone")),
        ([PLACED, of(["null", "shop.Placed"])], {"-type": "Envelope", "event": {"order": "7"}}),
        (of(["null", PLACED, {"type": "map", "values": "string"}]), {"event": event("Placed")}),
        (of(["null", PLACED]), {"event": {"order": "7"}}),
    ],
    ids=["array", "map", "root", "by reference", "record and map", "one record"],
)
def test_a_branch_comes_back_wherever_the_union_is(schema: Any, value: Any) -> None:
    """A value has no mark where the union has a single record."""
    for serde in both(msgspec.json.encode(schema).decode()):
        assert serde.decode(serde.encode(value)) == value


def test_a_branch_may_be_named_as_fastavro_does() -> None:
    """The pair (name, value) is taken, too."""
    serde = avro(of([PLACED, SHIPPED]))
    assert serde.decode(serde.encode({"event": ("shop.Gone", {"order": "7"})})) == {"event": event("Gone")}


def test_a_value_that_fits_several_branches_and_names_none_is_refused() -> None:
    """Before, it was written as the first; so text that may be a symbol, too. An unknown name has the known ones."""
    for serde in both(of([PLACED, SHIPPED])):
        with pytest.raises(SerdeError, match=r'may be shop.Placed or shop.Gone.*give \{"-type": "shop.Placed", …\}'):
            serde.encode({"event": {"order": "7"}})
    with pytest.raises(SerdeError, match=r"'shop.Lost' is none of shop.Placed, shop.Gone"):
        avro(of([PLACED, SHIPPED])).encode({"event": event("Lost")})
    color = avro(of(["string", {"type": "enum", "name": "Color", "symbols": ["RED"]}]))
    with pytest.raises(SerdeError, match=r"'RED' may be string or Color.*give \(\"string\", value\)"):
        color.encode({"event": "RED"})
    assert [color.encode({"event": value}) for value in ("BLUE", ("string", "RED"), ("Color", "RED"))] == [
        b"\x00\x08BLUE",
        b"\x00\x06RED",
        b"\x02\x00",
    ]


def test_fields_that_differ_tell_the_branch() -> None:
    """A dict without a mark is of the record that has all its fields, by their types; none: Avro's own refusal."""

    def record(name: str, **fields: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": each, **of_} for each, of_ in fields.items()]}

    text, number = {"type": "string"}, {"type": "long", "default": 0}
    serde = avro(of([record("A", x=text, n=number), record("B", x=text), record("C", x={"type": "int"}, n=number)]))
    for name, value in (("A", {"x": "1", "n": 1}), ("B", {"x": "1"}), ("C", {"x": 1, "n": 0}), ("C", {"x": 1})):
        read = serde.decode(serde.encode({"event": value}))
        assert read["event"]["-type"] == name
        assert serde.decode(serde.encode(read)) == read
    with pytest.raises(SerdeError, match="cannot encode"):
        serde.encode({"event": {"x": None}})


def test_a_schema_that_got_a_second_record_reads_what_was_written() -> None:
    """Values of before have no mark to be read by; each new value has one."""
    before = avro(of(["null", PLACED]))
    now = avro(of(["null", PLACED, SHIPPED]), was=[of(["null", PLACED])])
    assert now.decode(before.encode({"event": {"order": "7"}})) == {"event": event("Placed")}
    assert now.decode(now.encode({"event": event("Gone")})) == {"event": event("Gone")}


class Placed(msgspec.Struct, tag_field="-type", tag="shop.Placed"):
    """One of the records."""

    order: str


class Gone(msgspec.Struct, tag_field="-type", tag="shop.Gone"):
    """The other."""

    order: str


class Tagged(msgspec.Struct):
    """Their envelope."""

    event: Placed | Gone


class PlacedModel(pydantic.BaseModel):
    order: str


class GoneModel(pydantic.BaseModel):
    order: str


class Models(pydantic.BaseModel):
    event: PlacedModel | GoneModel


class Told(pydantic.BaseModel):
    order: str
    kind: Literal["gone"]


class Telling(pydantic.BaseModel):
    event: PlacedModel | Told


def test_types_of_such_a_union_have_tags_or_are_refused() -> None:
    """Structs with tags keep the branch; of models that are written alike each would be read as the first."""
    registry = SchemaRegistry("mock://typed")
    tagged = Topic("t", key=utf8, value=registry.avro(of([PLACED, SHIPPED]), Tagged)).value
    assert tagged.decode(tagged.encode(Tagged(Gone("7")))) == Tagged(Gone("7"))
    with pytest.raises(ConfigError, match=r"Models does not tell .*\(shop.Placed and shop.Gone\): use structs"):
        registry.avro(of([PLACED, SHIPPED]), Models)
    with pytest.raises(ConfigError, match="PlacedModel and GoneModel are of one union and have the same fields"):
        json(Models)
    told = Telling(event=Told(order="7", kind="gone"))
    assert json(Telling).decode(json(Telling).encode(told)) == told


@pytest.mark.parametrize("which", [0, 1], ids=["avro", "registry"])
def test_defaults_are_filled_and_other_fields_are_refused(which: int) -> None:
    """As Confluent's serializers do in their strict form: a name that is wrong, or missing, is in the error."""
    note, currency = {"name": "note", "type": ["null", "string"]}, {"name": "currency", "type": "string"}
    fields = [{"name": "id", "type": "string"}, note | {"default": None}, currency | {"default": "EUR"}]
    serde = both({"type": "record", "name": "Order", "fields": [*fields, {"name": "cents", "type": ["null", "long"]}]})[
        which
    ]
    assert serde.decode(serde.encode({"id": "1", "cents": 5})) == {
        "id": "1",
        "note": None,
        "currency": "EUR",
        "cents": 5,
    }
    for value, said in (({"id": "1", "cents": 5, "currncy": "USD"}, "currncy"), ({"id": "1"}, "cents")):
        with pytest.raises(SerdeError, match=f"ValueError: .*{said}"):
            serde.encode(value)
