"""Lines of JSON: a record as `grete topic read --json` prints it."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from grete import Topic, bytes_serde, int64, json, utf8
from grete.api.serdes.avro_serde import avro
from grete.errors import SerdeError
from grete.feeds.line_forms import Line, LineForm, record_of
from grete.protocol.frames import decode_headers, encode_headers
from grete.state.read.shown import decoded_plain

PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "n", "type": "long"}]}


@dataclass(frozen=True)
class Own:
    """A serde of a user's own, in which a value begins with what ``before`` says."""

    name: str
    is_json: bool
    before: bytes = b""

    def encode(self, value: object) -> bytes:
        return self.before + msgspec.json.encode(value, order="sorted")

    def decode(self, data: bytes) -> object:
        return msgspec.json.decode(data.removeprefix(self.before))


def line_of(text: str, key: Any = utf8, value: Any = json) -> Line:
    """Return the record of a line."""
    return record_of(Topic("t", key=key, value=value), LineForm.JSON)(text.encode())


@pytest.mark.parametrize(
    ("serde", "text", "data"),
    [
        (utf8, '"grün"', "grün".encode()),
        (int64, "-5", (-5).to_bytes(8, "big", signed=True)),
        (bytes_serde, '"00ff"', b"\x00\xff"),
        (json, '{"b": 9007199254740993, "a": 1.0}', b'{"b": 9007199254740993, "a": 1.0}'),
        (json, "null", None),
        (json, '{"hex": "6e756c6c", "of": "json"}', b"null"),
        (avro(PAIR), '{"n": 3}', b"\x06"),
        (int64, '{"hex": "0102", "not": "int64"}', b"\x01\x02"),
        (json, '{"hex": "0102", "not": "int64"}', b'{"hex": "0102", "not": "int64"}'),
        (Own("tree", is_json=True), '{"b":  1}', b'{"b":  1}'),
        (Own("json-framed", is_json=False, before=b"\x01"), '{"b":  1}', b'\x01{"b":1}'),
    ],
)
def test_a_value_has_the_bytes_of_its_serde(serde: Any, text: str, data: bytes | None) -> None:
    """JSON stays as it is, null is a deletion, and bytes that are none of the serde's come back."""
    assert line_of(f'{{"key": "k", "value": {text}}}', value=serde)[:2] == (b"k", data)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (json, None),
        (json, b"null"),
        (json, b"{"),
        (json, b'{"hex":"00","of":"json"}'),
        (json, b'{"hex":"00","not":"json"}'),
        (json, b'{"hex":"00"}'),
        (bytes_serde, b""),
        (int64, b"\x01"),
    ],
)
def test_what_is_printed_is_read_again(serde: Any, data: bytes | None) -> None:
    """A value that is null stays one and no deletion, and one that looks like bytes in hex digits stays what it is."""
    printed = msgspec.json.encode(decoded_plain(serde, data)).decode()
    assert line_of(f'{{"key": "k", "value": {printed}}}', value=serde).value == data


def test_equal_keys_have_equal_bytes() -> None:
    """Lines may write them in several ways: they go to one partition."""
    for key in (json, Own("tree", is_json=True)):
        assert line_of('{"key": {"b": 1, "a": 2}}', key=key).key == line_of('{"key": {"a":2,"b":1}}', key=key).key


def test_time_and_headers_are_taken_over() -> None:
    """But for the number that the record had in the topic that it was read from, and its place there."""
    headers = ("trace", b"x"), ("none", None), ("trace", b"\xff\x00")
    line = line_of(
        '{"topic": "t", "partition": 3, "offset": 7, "key": null, "value": 1, "timestamp_ms": 12, '
        '"headers": [["trace", "x"], ["grete.producer", "s-0"], ["grete.seq", "1"], ["none", null], '
        '["trace", {"hex": "ff00"}]]}'
    )
    assert line == Line(None, b"1", 12, encode_headers(headers))
    assert decode_headers(line.headers or b"") == headers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "Expected `object`"),
        ('{"valeu": 1}', "unknown field `valeu`"),
        ('{"topic": "other", "value": 1}', "it is of topic 'other'"),
        ('{"key": 5, "value": 1}', "utf8"),
        ('{"value": ', "malformed|truncated"),
        ('{"timestamp_ms": "now"}', "Expected `int"),
        ('{"timestamp_ms": 9223372036854775808}', "Expected `int` <= "),
    ],
)
def test_what_is_no_record_is_refused(text: str, words: str) -> None:
    """The text says why; who reads the lines says which one it was."""
    with pytest.raises((SerdeError, ValueError), match=words):
        line_of(text)
