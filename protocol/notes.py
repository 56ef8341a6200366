"""Notes: messages of a changelog of one type and many kinds, so that changelogs never run out of types (0022)."""

import struct
from typing import NamedTuple

from protocol import _wire
from protocol.changelog import (
    CHANGELOG_HEADER_SIZE,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header_of,
    encode_header_of,
)
from protocol.errors import DecodeError, UnsupportedFormat

IDLE, ENDED = 1, 5  # the kinds; 2 to 4 are reserved
_KIND = struct.Struct(">b")
_IDLE = struct.Struct(">biqb")  # kind, partition, t, idle


class IdleNote(NamedTuple):
    """At logical time ``t`` µs a source took an external partition for idle, until it next takes rows of it (E4).

    ``ended``: not its clock, but a person has said that nothing follows, so that what waits for time fires (E7).
    """

    topic: str
    partition: int
    t: int
    ended: bool = False

    @property
    def first_t(self) -> int:
        """The logical time, as an input decision names it."""
        return self.t

    @property
    def last_t(self) -> int:
        """The logical time, as an input decision names it."""
        return self.t


def encode_note(header: ChangelogHeader, note: IdleNote) -> bytes:
    """Return a note. Raises ValueError out of range."""
    head = encode_header_of(ChangelogType.NOTE, header)
    body = _wire.pack("note", _IDLE, ENDED if note.ended else IDLE, note.partition, note.t, 1)
    return head + body + _wire.pack_text("note: topic", note.topic)


def decode_note(message: bytes) -> IdleNote:
    """Raise UnsupportedFormat or DecodeError if it is not a note of a known kind."""
    decode_changelog_header_of(ChangelogType.NOTE, message)
    _wire.check_room("note: kind", message, CHANGELOG_HEADER_SIZE, _KIND.size)
    (kind,) = _KIND.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if kind not in (IDLE, ENDED):
        raise UnsupportedFormat(
            f"note of kind {kind}, this build reads {IDLE} (idle) and {ENDED} (ended): upgrade before reading"
        )
    at = CHANGELOG_HEADER_SIZE + _IDLE.size
    if len(message) < at:
        raise _wire.truncated("note", at, message)
    _, partition, t, idle = _IDLE.unpack_from(message, CHANGELOG_HEADER_SIZE)
    topic, end = _wire.unpack_text("note: topic", message, at)
    _wire.check_size("note", message, end)
    if idle != 1:
        raise DecodeError(f"note: idle = {idle}: must be 1, a partition becomes active by an input decision")
    return IdleNote(topic, _wire.check_range("note: partition", partition), t, kind == ENDED)
