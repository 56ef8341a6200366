"""The column of each serde, and a round trip of its cells."""

from typing import Any

import msgspec
import pydantic
import pytest

from grete import avro, json, protobuf
from grete.api.serdes.serde import Codec
from grete.errors import SerdeError
from grete.spark.format.columns import column
from tests.support.messages import field, message

pytestmark = pytest.mark.spark

V1 = {"type": "record", "name": "Hit", "fields": [{"name": "n", "type": "int"}]}
V2 = {**V1, "fields": [*V1["fields"], {"name": "who", "type": "string", "default": "?"}]}


class Order(pydantic.BaseModel):
    item: str


def test_avro_of_two_schemas_is_one_column() -> None:
    """Of text, each value as the newest schema reads it."""
    found = column("value", avro(V2, was=[V1]))
    cells = [avro(V1).encode({"n": 1}), avro(V2, was=[V1]).encode({"n": 2, "who": "ann"}), None]
    texts = found.array(cells).to_pylist()
    assert (found.ddl, texts) == ("value string", ['{"n":1,"who":"?"}', '{"n":2,"who":"ann"}', None])
    assert found.cells(found.array(cells))[1:] == cells[1:]


def test_numbers_that_json_does_not_have_are_texts() -> None:
    """A null would be another value; written back, Avro takes the text for the number, or refuses it."""
    floats, maybe = (
        avro({"type": "record", "name": "Wide", "fields": [{"name": "x", "type": type_}]})
        for type_ in ("double", ["null", "double"])
    )
    values = float("nan"), float("-inf"), 1.5
    wide = column("value", floats)
    cells = [floats.encode({"x": value}) for value in values]
    assert wide.array(cells).to_pylist() == ['{"x":"nan"}', '{"x":"-inf"}', '{"x":1.5}']
    assert wide.cells(wide.array(cells)) == cells
    wide = column("value", maybe)
    assert wide.array([maybe.encode({"x": value}) for value in (*values, None)]).to_pylist()[2:] == [
        '{"x":1.5}',
        '{"x":null}',
    ]
    with pytest.raises(SerdeError, match="'x': 'nan'"):
        wide.cells(wide.array([maybe.encode({"x": values[0]})]))


class Tree:
    """A user's own serde, in which equal values have equal bytes."""

    name, is_json = "tree", True

    def encode(self, value: object) -> bytes:
        return msgspec.json.encode(value, order="sorted")

    def decode(self, data: bytes) -> object:
        return msgspec.json.decode(data)


def test_a_serde_says_itself_that_it_is_json() -> None:
    """A name that begins alike says nothing: such bytes are none that Spark could read as text."""
    assert column("value", Tree()).ddl == "value string"
    assert column("value", Codec("json-framed", (bytes, bytes))).ddl == "value binary"


@pytest.mark.parametrize(
    ("serde", "value", "ddl"),
    [
        (json(Order), Order(item="tea"), "value string"),
        (protobuf(kind := message(field(1, "item", "string"))), kind(item="tea"), "value binary"),
    ],
    ids=["model", "message"],
)
def test_models_are_text_and_messages_are_bytes(serde: Any, value: Any, ddl: str) -> None:
    """Spark's own from_json and from_protobuf read them on."""
    found, cell = column("value", serde), serde.encode(value)
    assert found.ddl == ddl
    assert found.cells(found.array([cell])) == [cell]
