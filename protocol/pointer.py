"""What the local store knows about itself: the commit that its content is the state of (R1)."""

import struct
from typing import NamedTuple

from protocol._wire import NONCE_SIZE, check_range, check_size, pack


class Pointer(NamedTuple):
    """Changelog offset of a commit, its generation and version, and the nonce of the claim it was written under."""

    offset: int
    generation: int
    version: int
    nonce: bytes


_LAYOUT = struct.Struct(">qiq16s")

POINTER_SIZE = _LAYOUT.size


def encode_pointer(pointer: Pointer) -> bytes:
    """Return 36 bytes. Raises ValueError if the nonce is not 16 bytes or a field is negative or too large."""
    if len(pointer.nonce) != NONCE_SIZE or pointer.offset < 0 or pointer.generation < 0 or pointer.version < 0:
        raise ValueError(f"{pointer}: need a nonce of {NONCE_SIZE} bytes and no negative field")
    return pack("pointer", _LAYOUT, *pointer)


def decode_pointer(data: bytes) -> Pointer:
    """Raise DecodeError if it is not a pointer: the store was written by something else."""
    check_size("pointer", data, POINTER_SIZE)
    pointer = Pointer(*_LAYOUT.unpack(data))
    for name, value in zip(pointer._fields[:3], pointer[:3], strict=True):
        check_range(f"pointer: {name}", value)
    return pointer
