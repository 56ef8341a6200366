"""Notes: messages of a changelog of one type and many kinds, so that changelogs never run out of types (0022)."""

import struct
from typing import NamedTuple

from grete.protocol import _wire
from grete.protocol.changelog import (
    CHANGELOG_HEADER_SIZE,
    ChangelogHeader,
    ChangelogType,
    decode_changelog_header_of,
    encode_header_of,
)
from grete.protocol.errors import DecodeError, UnsupportedFormat

IDLE, CALLS, ENDED = 1, 2, 5  # the kinds; 3 and 4 are reserved
_KIND = struct.Struct(">b")
_IDLE = struct.Struct(">biqb")  # kind, partition, t, idle
_COUNT = struct.Struct(">i")
_CALLED = struct.Struct(">qi")  # number of the record, results
_RESULT = struct.Struct(">bi")  # whether the call has succeeded, bytes that follow


class IdleNote(NamedTuple):
    """A source took an external partition for idle at logical time ``t`` µs, until it next takes rows of it (E4).

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


class CallResult(NamedTuple):
    """The result of a call, in bytes; with ``ok`` false the UTF-8 text of its failure."""

    ok: bool
    data: bytes


class CallsNote(NamedTuple):
    """The results of records' calls: (number of the record in its task, results in the order of its calls).

    The numbers rise. Records without calls are left out.
    """

    records: tuple[tuple[int, tuple[CallResult, ...]], ...]

    @property
    def size(self) -> int:
        """Return the number of bytes in all results."""
        return sum(len(result.data) for _, results in self.records for result in results)


def encode_calls(header: ChangelogHeader, note: CallsNote) -> bytes:
    """Return a note of results. Raises ValueError out of range."""
    parts = [
        encode_header_of(ChangelogType.NOTE, header),
        _wire.pack("note", _KIND, CALLS),
        _wire.pack("note: records", _COUNT, len(note.records)),
    ]
    for number, results in note.records:
        parts.append(_wire.pack("note: record", _CALLED, number, len(results)))
        for ok, data in results:
            parts += _wire.pack("note: result", _RESULT, ok, len(data)), data
    return b"".join(parts)


def _decode_calls(message: bytes) -> CallsNote:
    at = CHANGELOG_HEADER_SIZE + _KIND.size

    def take(what: str, layout: struct.Struct) -> tuple[int, ...]:
        nonlocal at
        _wire.check_room(what, message, at, layout.size)
        at += layout.size
        return layout.unpack_from(message, at - layout.size)

    records, last = [], -1
    (count,) = take("note: records", _COUNT)
    for _ in range(_wire.check_range("note: records", count)):
        number, calls = take("note: record", _CALLED)
        if number <= last or calls < 1:
            raise DecodeError(f"note: record {number} with {calls} results after record {last}: numbers only rise")
        last, results = number, []
        for _ in range(calls):
            ok, size = take("note: result", _RESULT)
            if ok not in (0, 1) or size < 0:
                raise DecodeError(f"note: result of {size} bytes with ok = {ok}: must be 0 or 1")
            _wire.check_room("note: result", message, at, size)
            results.append(CallResult(bool(ok), message[at : at + size]))
            at += size
        records.append((number, tuple(results)))
    _wire.check_size("note", message, at)
    return CallsNote(tuple(records))


def encode_note(header: ChangelogHeader, note: IdleNote) -> bytes:
    """Return a note. Raises ValueError out of range."""
    head = encode_header_of(ChangelogType.NOTE, header)
    body = _wire.pack("note", _IDLE, ENDED if note.ended else IDLE, note.partition, note.t, 1)
    return head + body + _wire.pack_text("note: topic", note.topic)


def decode_note(message: bytes) -> IdleNote | CallsNote:
    """Raise UnsupportedFormat or DecodeError if it is not a note of a known kind."""
    decode_changelog_header_of(ChangelogType.NOTE, message)
    _wire.check_room("note: kind", message, CHANGELOG_HEADER_SIZE, _KIND.size)
    (kind,) = _KIND.unpack_from(message, CHANGELOG_HEADER_SIZE)
    if kind == CALLS:
        return _decode_calls(message)
    if kind not in (IDLE, ENDED):
        raise UnsupportedFormat(
            f"note of kind {kind}, this build reads {IDLE} (idle), {CALLS} (calls) and {ENDED} (ended): upgrade before "
            "reading"
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
