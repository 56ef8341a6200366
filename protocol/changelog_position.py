"""The changelog position of a local store: the commit that its content is the state of (R1)."""

import struct
from typing import NamedTuple

from grete.protocol._wire import NONCE_SIZE, check_range, check_size, pack


class ChangelogPosition(NamedTuple):
    """Changelog offset of a commit, its generation and checkpoint, and the nonce of the claim it was written under."""

    offset: int
    generation: int
    checkpoint_id: int
    nonce: bytes


_LAYOUT = struct.Struct(">qiq16s")

CHANGELOG_POSITION_SIZE = _LAYOUT.size


def encode_changelog_position(changelog_position: ChangelogPosition) -> bytes:
    """Return 36 bytes. Raises ValueError if the nonce is not 16 bytes or a field is negative or too large."""
    if (
        len(changelog_position.nonce) != NONCE_SIZE
        or changelog_position.offset < 0
        or changelog_position.generation < 0
        or changelog_position.checkpoint_id < 0
    ):
        raise ValueError(f"{changelog_position}: need a nonce of {NONCE_SIZE} bytes and no negative field")
    return pack("changelog position", _LAYOUT, *changelog_position)


def decode_changelog_position(data: bytes) -> ChangelogPosition:
    """Raise DecodeError if it is not a changelog position: the store was written by something else."""
    check_size("changelog position", data, CHANGELOG_POSITION_SIZE)
    changelog_position = ChangelogPosition(*_LAYOUT.unpack(data))
    for name, value in zip(changelog_position._fields[:3], changelog_position[:3], strict=True):
        check_range(f"changelog position: {name}", value)
    return changelog_position
