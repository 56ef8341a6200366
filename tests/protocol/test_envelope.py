"""The header of stream messages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.envelope import HEADER_SIZE, Header, MessageType, decode_header, decode_header_of, encode_header
from grete.protocol.errors import DecodeError, UnsupportedFormat
from tests.protocol.strategies import headers


@given(header=st.sampled_from(MessageType).flatmap(headers), body=st.binary(max_size=9))
def test_headers_survive(header: Header, body: bytes) -> None:
    """A header is decoded as it was written, whatever follows it."""
    message = encode_header(header)
    assert HEADER_SIZE == len(message)
    assert header == decode_header(message + body)


@pytest.mark.parametrize(
    ("byte", "found"),
    [
        (0x20, "format version 2, this build reads 1"),
        (0x00, "format version 0"),
        (0x16, "type 6 is none of FRAME"),
        (0x18, "type 8"),
    ],
)
def test_unknown_types_are_refused(byte: int, found: str) -> None:
    """An unknown format version or type is refused, and the error says what was found."""
    with pytest.raises(UnsupportedFormat, match=found):
        decode_header(bytes([byte]) + bytes(HEADER_SIZE - 1))


@pytest.mark.parametrize("field", ["producer", "generation", "checkpoint_id", "seq"])
def test_negative_fields_are_refused(field: str) -> None:
    """No field may be negative, neither written nor read."""
    negative: dict[str, Any] = {field: -1}
    header = Header(MessageType.FRAME, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="negative"):
        encode_header(header._replace(**negative))
    start = {"producer": 1, "generation": 5, "checkpoint_id": 9, "seq": 17}[field]
    message = bytearray(encode_header(header))
    message[start] = 0x80
    with pytest.raises(DecodeError, match=f"{field} -"):
        decode_header(bytes(message))


def test_too_large_fields_are_refused() -> None:
    """A field that does not fit is an error with the values, not other bytes."""
    with pytest.raises(ValueError, match="2147483648"):
        encode_header(Header(MessageType.FRAME, 2**31, 1, 1, 1))


def test_another_type_is_refused() -> None:
    """A message of another type than the one expected is refused, and the error names both."""
    with pytest.raises(DecodeError, match="expected a MARKER, found a FRAME"):
        decode_header_of(MessageType.MARKER, encode_header(Header(MessageType.FRAME, 1, 1, 1, 1)))
