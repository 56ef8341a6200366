"""The 25 bytes at the head of every message of a stream."""

import struct
from enum import IntEnum
from typing import NamedTuple

from grete.protocol._wire import pack, truncated, type_byte, unknown_type
from grete.protocol.errors import DecodeError


class MessageType(IntEnum):
    """The type of a stream message. 8 to 15 belong to the changelog."""

    FRAME = 0
    MARKER = 1
    ROLLBACK_MARKER = 2
    PROGRESS = 3
    WATERMARK = 4
    JOINT_PROGRESS = 5


class Header(NamedTuple):
    """The sender: producer id, its generation, the checkpoint that the message belongs to, and a number in the channel.

    ``seq`` is, in a frame, that of its first record; in a checkpoint marker, that of the first record after the
    checkpoint; in a rollback marker, that of the next record to come; in a watermark, the channel's next. In a joint
    progress message all fields are those of its first row.
    """

    type: MessageType
    producer: int
    generation: int
    checkpoint_id: int
    seq: int


_LAYOUT = struct.Struct(">Biiqq")
_TYPES = {type_byte(kind): kind for kind in MessageType}

HEADER_SIZE = _LAYOUT.size


def encode_header(header: Header) -> bytes:
    """Return 25 bytes. Raises ValueError if a field is negative or too large."""
    kind, producer, generation, checkpoint_id, seq = header
    if producer < 0 or generation < 0 or checkpoint_id < 0 or seq < 0:
        raise ValueError(f"{header}: no field may be negative")
    return pack("header", _LAYOUT, type_byte(kind), producer, generation, checkpoint_id, seq)


def decode_header(message: bytes) -> Header:
    """Return the header of a message of any type. Raises UnsupportedFormat, DecodeError."""
    if len(message) < HEADER_SIZE:
        raise truncated("header", HEADER_SIZE, message)
    byte, producer, generation, checkpoint_id, seq = _LAYOUT.unpack_from(message)
    kind = _TYPES.get(byte)
    if kind is None:
        raise unknown_type(byte, [f"{known.name} ({known.value})" for known in MessageType])
    if producer < 0 or generation < 0 or checkpoint_id < 0 or seq < 0:
        fields = f"producer {producer}, generation {generation}, checkpoint_id {checkpoint_id}, seq {seq}"
        raise DecodeError(f"header: {fields}: none may be negative")
    return Header(kind, producer, generation, checkpoint_id, seq)


def decode_header_of(kind: MessageType, message: bytes) -> Header:
    """Return the header of a message that must be of one type. Raises UnsupportedFormat, DecodeError."""
    header = decode_header(message)
    if header.type is not kind:
        raise DecodeError(f"expected a {kind.name}, found a {header.type.name}")
    return header
