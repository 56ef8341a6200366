"""The pointer in the local store."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.pointer import POINTER_SIZE, Pointer, decode_pointer, encode_pointer
from tests.protocol.strategies import naturals32, naturals64

GOOD = Pointer(1, 2, 3, bytes(16))


@given(pointer=st.builds(Pointer, naturals64, naturals32, naturals64, st.binary(min_size=16, max_size=16)))
def test_pointers_survive(pointer: Pointer) -> None:
    """A pointer is read back as it was written (R1)."""
    assert pointer == decode_pointer(encode_pointer(pointer))


@pytest.mark.parametrize(
    "change", [{"offset": -1}, {"generation": -1}, {"version": -1}, {"nonce": b""}, {"generation": 2**31}]
)
def test_unfit_pointers_are_not_written(change: dict[str, Any]) -> None:
    """A negative or too large field and a nonce that is not 16 bytes are refused by the writer."""
    with pytest.raises(ValueError, match=r"pointer|Pointer"):
        encode_pointer(GOOD._replace(**change))


@pytest.mark.parametrize(("at", "field"), [(0, "offset"), (8, "generation"), (12, "version")])
def test_negative_fields_are_refused(at: int, field: str) -> None:
    """A negative field is refused by the reader, by its name."""
    data = bytearray(encode_pointer(GOOD))
    data[at] = 0x80
    with pytest.raises(DecodeError, match=f"pointer: {field} = -"):
        decode_pointer(bytes(data))


def test_other_sizes_are_refused() -> None:
    """A pointer of another size is of another format."""
    with pytest.raises(DecodeError, match=f"35 bytes, need {POINTER_SIZE}"):
        decode_pointer(bytes(35))
