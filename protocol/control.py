"""Messages of a channel that carry no record: the two markers (A6, R2), progress messages (D1), watermark (E2)."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from grete.protocol._wire import check_range, check_room, check_size, pack, truncated, type_byte, unknown_flags
from grete.protocol.envelope import HEADER_SIZE, Header, MessageType, decode_header_of, encode_header
from grete.protocol.errors import DecodeError
from grete.protocol.ids import RollbackEntry

PROGRESS = MessageType.PROGRESS, MessageType.JOINT_PROGRESS

_AT_END = 1
_MARKER = struct.Struct(">B")
_WHOLE_MARKER, _FIRST = struct.Struct(">BiiqqB"), type_byte(MessageType.MARKER)
_SEQ = struct.Struct(">q")  # the last field of a header
_ROLLBACK_MARKER = struct.Struct(">qi")
_ENTRY = struct.Struct(">iq")
_PROGRESS = struct.Struct(">qi")
_ROWS = struct.Struct(">i")
_ROW = struct.Struct(">iiqq")
_ALL = (1 << 31) - 1  # the source of a row
_WATERMARK = struct.Struct(">Bi")
_IDLE, _LOGICAL = 1, 2
_NO_CHECKPOINT = -1  # an incarnation that found no commit


class Marker(NamedTuple):
    """A checkpoint marker: all records of checkpoints ≤ ``header.checkpoint_id`` have a seq < ``header.seq``.

    ``at_end``: the producer's inputs have ended (A2b).
    """

    header: Header
    at_end: bool


class RollbackMarker(NamedTuple):
    """As ``header.generation`` the producer went back to ``header.checkpoint_id``; ``header.seq`` is its next (R2)."""

    header: Header
    fingerprint: int
    rollback_history: tuple[RollbackEntry, ...]


class ProgressMessage(NamedTuple):
    """Nothing at or below (``t`` µs, ``source``) is still to come in this channel (D1)."""

    header: Header
    t: int
    source: int


class Watermark(NamedTuple):
    """No record with a timestamp below ``watermarks[-1]`` (ms) is expected behind this point of the channel (E2).

    ``idle``: the channel holds no consumer back until its next record or watermark. ``times``: the logical time in µs
    at which each of the watermarks became true; None: there is one, which is true from here on.
    """

    header: Header
    idle: bool
    watermarks: tuple[int, ...]
    times: tuple[int, ...] | None = None


def encode_marker(producer: int, generation: int, checkpoint_id: int, seq: int, at_end: bool) -> bytes:
    """Return a checkpoint marker. Raises ValueError out of range."""
    header = encode_header(Header(MessageType.MARKER, producer, generation, checkpoint_id, seq))
    return header + _MARKER.pack(_AT_END if at_end else 0)


def encode_markers(
    producer: int, generation: int, checkpoint_id: int, seqs: Sequence[int], at_end: bool
) -> list[bytes]:
    """Return a checkpoint marker for each channel, whose next seq is given. Raises ValueError out of range."""
    marker = encode_marker(producer, generation, checkpoint_id, min(seqs, default=0), at_end)
    head, tail = marker[: HEADER_SIZE - _SEQ.size], marker[HEADER_SIZE:]
    return [head + pack("marker: seq", _SEQ, seq) + tail for seq in seqs]


def decode_marker(message: bytes, header: Header | None = None) -> Marker:
    """Raise UnsupportedFormat or DecodeError if it is not a checkpoint marker. ``header``: as it was decoded before."""
    if header is None:
        header = decode_header_of(MessageType.MARKER, message)
    check_size("marker", message, HEADER_SIZE + _MARKER.size)
    flags = message[HEADER_SIZE]
    if flags & ~_AT_END:
        raise unknown_flags("marker", flags, _AT_END)
    return Marker(header, bool(flags))


def marker_fields(message: bytes) -> tuple[int, int, int, int, int] | None:
    """Return producer, generation, checkpoint id, seq and flags of a checkpoint marker; None: it is something else.

    No field is checked: for those who know the fields that they expect.
    """
    return _WHOLE_MARKER.unpack(message)[1:] if len(message) == _WHOLE_MARKER.size and message[0] == _FIRST else None


def encode_rollback_marker(
    producer: int,
    generation: int,
    checkpoint_id: int,
    seq: int,
    fingerprint: int,
    rollback_history: Sequence[RollbackEntry],
) -> bytes:
    """Return a rollback marker. Raises ValueError out of range."""
    for entry in rollback_history:
        if entry.generation < 0 or entry.checkpoint_id < _NO_CHECKPOINT:
            raise ValueError(
                f"rollback marker: {entry}: generation must be at least 0, restored at least {_NO_CHECKPOINT}"
            )
    parts = [
        encode_header(Header(MessageType.ROLLBACK_MARKER, producer, generation, checkpoint_id, seq)),
        pack("rollback marker: fingerprint, count", _ROLLBACK_MARKER, fingerprint, len(rollback_history)),
    ]
    parts += [
        pack("rollback marker: rollback history entry", _ENTRY, entry.generation, entry.checkpoint_id)
        for entry in rollback_history
    ]
    return b"".join(parts)


def decode_rollback_marker(message: bytes) -> RollbackMarker:
    """Raise UnsupportedFormat or DecodeError if it is not a rollback marker."""
    header = decode_header_of(MessageType.ROLLBACK_MARKER, message)
    at = HEADER_SIZE + _ROLLBACK_MARKER.size
    if len(message) < at:
        raise truncated("rollback marker", at, message)
    fingerprint, count = _ROLLBACK_MARKER.unpack_from(message, HEADER_SIZE)
    check_range("rollback marker: rollback history count", count)
    check_room(f"rollback marker: rollback history count {count}", message, at, count * _ENTRY.size)
    check_size("rollback marker", message, at + count * _ENTRY.size)
    rollback_history = tuple(RollbackEntry(*fields) for fields in _ENTRY.iter_unpack(message[at:]))
    for entry in rollback_history:
        check_range("rollback marker: rollback history generation", entry.generation)
        check_range("rollback marker: rollback history restored checkpoint", entry.checkpoint_id, _NO_CHECKPOINT)
    return RollbackMarker(header, fingerprint, rollback_history)


def encode_progress(producer: int, generation: int, checkpoint_id: int, seq: int, t: int, source: int) -> bytes:
    """Return a progress message. Raises ValueError out of range."""
    header = encode_header(Header(MessageType.PROGRESS, producer, generation, checkpoint_id, seq))
    return header + pack("progress message: t, source", _PROGRESS, t, source)


def decode_progress(message: bytes) -> ProgressMessage:
    """Raise UnsupportedFormat or DecodeError if it is not a progress message."""
    header = decode_header_of(MessageType.PROGRESS, message)
    check_size("progress message", message, HEADER_SIZE + _PROGRESS.size)
    return ProgressMessage(header, *_PROGRESS.unpack_from(message, HEADER_SIZE))


def encode_joint_progress(checkpoint_id: int, rows: Sequence[tuple[int, int, int, int]]) -> bytes:
    """Return a progress message of several producers: (producer, generation, seq, t) of each, for all sources.

    Raises ValueError out of range.
    """
    producer, generation, seq, _ = rows[0]
    header = encode_header(Header(MessageType.JOINT_PROGRESS, producer, generation, checkpoint_id, seq))
    return header + b"".join((_ROWS.pack(len(rows)), *(pack("joint progress: row", _ROW, *row) for row in rows)))


def decode_joint_progress(message: bytes) -> list[ProgressMessage]:
    """Return the progress message of each producer: raise UnsupportedFormat or DecodeError if it is no joint one."""
    checkpoint_id = decode_header_of(MessageType.JOINT_PROGRESS, message).checkpoint_id
    at = HEADER_SIZE + _ROWS.size
    if len(message) < at:
        raise truncated("joint progress", at, message)
    (count,) = _ROWS.unpack_from(message, HEADER_SIZE)
    check_range("joint progress: count", count, 1)
    check_size("joint progress", message, at + count * _ROW.size)
    found, kind = [], MessageType.PROGRESS
    for producer, generation, seq, t in _ROW.iter_unpack(message[at:]):
        if producer < 0 or generation < 0 or seq < 0:
            row = f"producer {producer}, generation {generation}, seq {seq}"
            raise DecodeError(f"joint progress: {row}: none may be negative")
        found.append(ProgressMessage(Header(kind, producer, generation, checkpoint_id, seq), t, _ALL))
    return found


def progress_of(kind: MessageType, message: bytes) -> list[ProgressMessage]:
    """Return the progress of each producer in a message whose type is in ``PROGRESS``. As its decoder raises."""
    return [decode_progress(message)] if kind is MessageType.PROGRESS else decode_joint_progress(message)


def encode_watermark(
    producer: int,
    generation: int,
    checkpoint_id: int,
    seq: int,
    idle: bool,
    watermarks: Sequence[int],
    times: Sequence[int] | None = None,
) -> bytes:
    """Return a watermark. Raises ValueError out of range, and for a count that does not fit."""
    count = len(watermarks)
    if count < 1 or count != (1 if times is None else len(times)):
        raise ValueError(f"watermark: {count} watermarks, times {times!r}: need one, or as many times as watermarks")
    flags = (_IDLE if idle else 0) | (0 if times is None else _LOGICAL)
    column = struct.Struct(f">{count}q")
    return b"".join(
        (
            encode_header(Header(MessageType.WATERMARK, producer, generation, checkpoint_id, seq)),
            _WATERMARK.pack(flags, count),
            pack("watermark: watermarks", column, *watermarks),
            b"" if times is None else pack("watermark: times", column, *times),
        )
    )


def decode_watermark(message: bytes) -> Watermark:
    """Raise UnsupportedFormat or DecodeError if it is not a watermark."""
    header = decode_header_of(MessageType.WATERMARK, message)
    at = HEADER_SIZE + _WATERMARK.size
    if len(message) < at:
        raise truncated("watermark", at, message)
    flags, count = _WATERMARK.unpack_from(message, HEADER_SIZE)
    if flags & ~(_IDLE | _LOGICAL):
        raise unknown_flags("watermark", flags, _IDLE | _LOGICAL)
    logical = bool(flags & _LOGICAL)
    check_range("watermark: count", count, 1)
    if not logical and count != 1:
        raise DecodeError(f"watermark: count = {count} without logical times: must be 1")
    size = count * (16 if logical else 8)
    check_room(f"watermark: count {count}", message, at, size)
    check_size("watermark", message, at + size)
    column = struct.Struct(f">{count}q")
    times = column.unpack_from(message, at + column.size) if logical else None
    return Watermark(header, bool(flags & _IDLE), column.unpack_from(message, at), times)
