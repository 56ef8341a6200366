"""Shared parts of the formats: type byte, text, columns with count and checksum. For this package only."""

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import cast

from grete.protocol.errors import DecodeError, UnsupportedFormat

FORMAT_VERSION = 1
NONCE_SIZE = 16  # of a claim; commits and the changelog position repeat it
TEXT_BYTES_MAX = 32_767  # lengths of texts are INT16

_PREFIX = struct.Struct(">BiI")  # flags, count, crc32 of everything after it
PREFIX_SIZE = _PREFIX.size
_TEXT = struct.Struct(">h")


def type_byte(message_type: int, version: int = FORMAT_VERSION) -> int:
    """Return the first byte of every message: format version in the high 4 bits, type in the low 4."""
    return version << 4 | message_type


def unknown_type(byte: int, names: Sequence[str]) -> UnsupportedFormat:
    """Return the error for a first byte that this build does not know."""
    version, kind = byte >> 4, byte & 0xF
    if version != FORMAT_VERSION:
        found = f"format version {version}, this build reads {FORMAT_VERSION}"
    else:
        found = f"type {kind} is none of {', '.join(names)}"
    return UnsupportedFormat(f"type byte {byte:#04x}: {found}: the wrong topic, or upgrade before reading")


def unknown_flags(what: str, flags: int, known: int) -> UnsupportedFormat:
    """Return the error for a flag that this build does not know: what it changes in the layout cannot be guessed."""
    return UnsupportedFormat(f"{what}: flags {flags:#04x}, this build knows {known:#04x}: upgrade before reading")


def truncated(what: str, need: int, message: bytes) -> DecodeError:
    """Return the error for a message shorter than its fields."""
    return DecodeError(f"{what}: {len(message)} bytes, need {need}")


def check_size(what: str, message: bytes, size: int) -> None:
    """Raise DecodeError unless the message ends exactly at ``size``."""
    if len(message) == size:
        return
    if len(message) < size:
        raise truncated(what, size, message)
    raise DecodeError(f"{what}: {len(message) - size} bytes after its end at {size}")


def check_range(what: str, value: int, least: int = 0) -> int:
    """Return the value, or raise DecodeError when it is below ``least``."""
    if value < least:
        raise DecodeError(f"{what} = {value}: must be at least {least}")
    return value


def pack(what: str, layout: struct.Struct, *values: object) -> bytes:
    """Pack fixed fields. Raises ValueError naming the values when one does not fit its field."""
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise ValueError(f"{what} {values!r} does not fit {layout.format!r}: {error}") from error


def pack_text(what: str, text: str) -> bytes:
    """Encode length INT16 + UTF-8. Raises ValueError when it is too long or cannot be encoded."""
    data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"{what}: {len(data)} bytes of UTF-8, at most {TEXT_BYTES_MAX}")
    return _TEXT.pack(len(data)) + data


def unpack_text(what: str, message: bytes, at: int) -> tuple[str, int]:
    """Return (text, position after it). Raises DecodeError."""
    start = at + _TEXT.size
    if start > len(message):
        raise truncated(what, start, message)
    end = start + check_range(f"{what}: length", _TEXT.unpack_from(message, at)[0])
    if end > len(message):
        raise truncated(what, end, message)
    try:
        return message[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what}: {end - start} bytes are not UTF-8") from error


def seal(flags: int, count: int, rest: bytes) -> bytes:
    """Put flags INT8, count INT32 and crc32 INT32 before the bytes that they describe."""
    return _PREFIX.pack(flags, count, zlib.crc32(rest)) + rest


def read_prefix(what: str, message: bytes, at: int, flags_known: int) -> tuple[int, int, int]:
    """Return (flags, count, crc32), not yet compared. Raises UnsupportedFormat on a flag of the future, DecodeError."""
    if len(message) < at + PREFIX_SIZE:
        raise truncated(what, at + PREFIX_SIZE, message)
    flags, count, crc = _PREFIX.unpack_from(message, at)
    if flags & ~flags_known:
        raise unknown_flags(what, flags, flags_known)
    check_range(f"{what}: count", count)
    return flags, count, crc


def check_crc(what: str, message: bytes, at: int, crc: int) -> None:
    """Raise DecodeError unless everything from ``at`` on has this crc32."""
    found = zlib.crc32(memoryview(message)[at:])
    if found != crc:
        raise DecodeError(f"{what}: crc32 {found:#010x}, written was {crc:#010x}: the bytes are damaged")


def check_room(what: str, message: bytes, at: int, size: int) -> None:
    """Raise DecodeError if ``size`` bytes do not fit after ``at``; called before anything of that size is allocated."""
    if size > len(message) - at:
        raise DecodeError(f"{what}: columns need {size} bytes, the message has {len(message) - at} left")


def measure(cells: Sequence[bytes | None]) -> tuple[list[int], Iterable[bytes]]:
    """Return (lengths, -1 for None; the cells that are not None)."""
    try:
        return list(map(len, cells)), cells  # type: ignore[arg-type, return-value]  # None is rare: let it raise instead of asking each
    except TypeError:
        return [-1 if cell is None else len(cell) for cell in cells], filter(None, cells)


def cut(what: str, message: bytes, at: int, lengths: Sequence[int]) -> tuple[list[bytes], int]:
    """Return (one slice per length, position after the last). Raises DecodeError: a negative length, past the end.

    One call of struct cuts them all: measured, less than half the time of a loop if they are of one length.
    """
    if not lengths:
        return [], at
    if min(lengths) < 0:
        raise DecodeError(f"{what}: length {min(lengths)}")
    end = at + sum(lengths)
    if end > len(message):
        raise truncated(what, end, message)
    count, first = len(lengths), lengths[0]
    cells = f"{first}s" * count if lengths.count(first) == count else ("%ds" * count) % tuple(lengths)
    return list(struct.Struct(cells).unpack_from(message, at)), end


def cut_nullable(what: str, message: bytes, at: int, lengths: Sequence[int]) -> tuple[list[bytes | None], int]:
    """Like ``cut``; a length of -1 gives None."""
    if not lengths or min(lengths) >= 0:
        return cast("tuple[list[bytes | None], int]", cut(what, message, at, lengths))
    if min(lengths) < -1:
        raise DecodeError(f"{what}: length {min(lengths)}")
    present, end = cut(what, message, at, [max(length, 0) for length in lengths])
    return [None if length < 0 else cell for length, cell in zip(lengths, present, strict=True)], end
