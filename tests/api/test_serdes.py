"""Serdes: what they write, in what order it sorts, and how they refuse."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete import Serde, avro, bytes_serde, int64, json, utf8
from grete.api.serdes.serde import functions_of, key_serde
from grete.errors import ConfigError, SerdeError

INT64S = st.integers(-(1 << 63), (1 << 63) - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INT64S | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
SCHEMA = {"type": "record", "name": "Hit", "fields": [{"name": "url", "type": "string"}, {"name": "n", "type": "long"}]}


class Point(msgspec.Struct):
    x: int
    y: int


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary(), INT64S, JSON)
def test_values_come_back(text: str, data: bytes, number: int, value: Any) -> None:
    """Decoding gives back what was encoded."""
    assert utf8.decode(utf8.encode(text)) == text
    assert bytes_serde.decode(bytes_serde.encode(data)) == data
    assert int64.decode(int64.encode(number)) == number
    assert json.decode(json.encode(value)) == value


def test_int64_is_the_long_of_other_kafka_clients() -> None:
    """In topics, int64 is 8 bytes in two's complement, big endian: Kafka's LongSerializer."""
    assert int64.encode(1) == bytes(7) + b"\x01"
    assert int64.encode(-2) == b"\xff" * 7 + b"\xfe"


@given(INT64S, INT64S)
def test_int64_keys_of_a_store_sort_as_numbers(a: int, b: int) -> None:
    """The form of int64 that stores use for keys has the order of the numbers, negative ones included."""
    keys = key_serde(int64)
    assert (keys.encode(a) < keys.encode(b)) == (a < b)
    assert keys.decode(keys.encode(a)) == a


def test_equal_json_has_equal_bytes() -> None:
    """The order of a dict or set does not show in its bytes: they can be keys, and are the same in every process."""
    assert json.encode({"b": 1, "a": {"y": 0, "x": 0}}) == json.encode({"a": {"x": 0, "y": 0}, "b": 1})
    assert json.encode({"q", "b", "z", "a"}) == b'["a","b","q","z"]'


def test_json_of_dicts_with_int_keys() -> None:
    """Dicts whose keys are numbers are written, unsorted, and come back through their type."""
    numbers = json(dict[int, str])
    assert numbers.decode(numbers.encode({2: "b", 1: "a"})) == {1: "a", 2: "b"}


def test_typed_json_decodes_into_the_type() -> None:
    """json(Type) gives objects of the type and refuses JSON that does not fit it."""
    points = json(Point)
    assert points.decode(points.encode(Point(1, 2))) == Point(1, 2)
    with pytest.raises(SerdeError, match=r"json\(Point\) cannot decode.*missing required field `y`"):
        points.decode(b'{"x": 1}')


def test_avro_round_trips_from_dict_or_text() -> None:
    """A schema as a dict and as JSON text give the same serde."""
    hit = {"url": "/", "n": 3}
    assert avro(SCHEMA) == avro(msgspec.json.encode(SCHEMA).decode())
    assert avro(SCHEMA).decode(avro(SCHEMA).encode(hit)) == hit
    assert avro(SCHEMA).encode(hit) == b"\x02/\x06"


@pytest.mark.parametrize(
    ("serde", "value", "text"),
    [
        (utf8, 5, "serde utf8 cannot encode int 5: TypeError"),
        (utf8, "\ud800", "serde utf8 cannot encode str '\\ud800': UnicodeEncodeError"),
        (bytes_serde, "x", "serde bytes cannot encode str 'x': TypeError: need bytes"),
        (int64, "5", "serde int64 cannot encode str '5'"),
        (int64, 1 << 63, "serde int64 cannot encode int 9223372036854775808"),
        (int64, 1.0, "serde int64 cannot encode float 1.0"),
        (key_serde(int64), -(1 << 63) - 1, "serde int64 cannot encode int -9223372036854775809"),
        (json, object, "serde json cannot encode type <class 'object'>"),
        (avro(SCHEMA), {"url": "/"}, "serde avro(Hit) cannot encode dict {'url': '/'}"),
        (avro(SCHEMA), {"url": "/", "n": 1, "m": 2}, "serde avro(Hit) cannot encode"),
    ],
)
def test_bad_values_are_refused_by_name(serde: Serde[Any], value: object, text: str) -> None:
    """The error names the serde, the value and the reason."""
    with pytest.raises(SerdeError) as caught:
        serde.encode(value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("serde", "data", "text"),
    [
        (utf8, b"\xff", "serde utf8 cannot decode bytes b'\\xff': UnicodeDecodeError"),
        (int64, b"123", "serde int64 cannot decode bytes b'123'"),
        (int64, bytes(9), "serde int64 cannot decode"),
        (json, b"{", "serde json cannot decode"),
        (avro(SCHEMA), b"\x02", "serde avro(Hit) cannot decode"),
        (avro(SCHEMA), b"\x02/\x06!", "1 bytes are left over"),
    ],
)
def test_bad_bytes_are_refused_by_name(serde: Serde[Any], data: bytes, text: str) -> None:
    """The error names the serde, the bytes and the reason; bytes left over are an error."""
    with pytest.raises(SerdeError) as caught:
        serde.decode(data)
    assert text in str(caught.value)


def test_long_values_are_cut_in_errors() -> None:
    """An error does not carry a megabyte."""
    with pytest.raises(SerdeError) as caught:
        int64.encode("x" * 1_000_000)  # type: ignore[arg-type]  # the point
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("schema", ["{", {"type": "record"}, {"type": "nothing"}, "[]["])
def test_bad_schemas_are_refused_at_once(schema: Any) -> None:
    """A text that is no Avro schema is a ConfigError at the declaration."""
    with pytest.raises(ConfigError, match="avro: not a schema"):
        avro(schema)


def test_serdes_are_equal_when_they_write_the_same() -> None:
    """Two codecs made alike are equal, others are not: so a topic with two serdes can be found."""
    assert json(Point) == json(Point)
    assert json(Point) != json
    assert avro(SCHEMA) == avro(dict(SCHEMA))
    assert avro(SCHEMA) != avro(SCHEMA | {"name": "Other"})
    assert key_serde(int64) != int64


@dataclass(frozen=True)
class Upper:
    """A user's own serde; the broken one gives text."""

    name: str = "upper"
    broken: bool = False

    def encode(self, value: str) -> bytes:
        return value.upper() if self.broken else value.upper().encode()  # type: ignore[return-value]  # the point

    def decode(self, data: bytes) -> str:
        return data.decode()


def test_own_serdes_are_checked_for_bytes() -> None:
    """A user's serde works as it is, and one that encodes to something else than bytes is caught at the call."""
    serde: Serde[str] = Upper()
    assert functions_of(serde)[0]("a") == b"A"
    with pytest.raises(TypeError, match="need bytes"):
        functions_of(Upper(broken=True))[0]("a")


def test_none_is_explained() -> None:
    """A record without a key has the key None: what Python says about it is no help."""
    with pytest.raises(SerdeError, match=r"^serde utf8 cannot encode None: a record's key or value is None"):
        utf8.encode(None)  # type: ignore[arg-type]  # the point
