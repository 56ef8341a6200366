"""Frames: consecutive records of one channel, in columns: Python decodes a column with one call.

This is the hot path of every stage: no object, branch or call per record beyond the slices of its key and value.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain, repeat

from grete.protocol import _wire
from grete.protocol._wire import PREFIX_SIZE
from grete.protocol.envelope import HEADER_SIZE, MessageType, decode_header_of
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import NOWHERE, RecordBatch

_WITH_LOGICAL = 1
_WITH_HEADERS = 2
_WITH_NULL_HEADERS = 4  # of some record one user header is null, which releases up to 0.3.0 do not read
_FLAGS_KNOWN = _WITH_LOGICAL | _WITH_HEADERS | _WITH_NULL_HEADERS
_COLUMNS_AT = HEADER_SIZE + PREFIX_SIZE
_FRAME_TYPE = bytes([_wire.type_byte(MessageType.FRAME)])
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
TIME_MS_MAX = (1 << 63) - 1  # of a timestamp, in ms since 1970, before it as after it
_DIGESTED = struct.Struct(">iiiqqi")
_OUTPUT_DIGESTED = struct.Struct(">iiiq")
_NULL = _INT32.pack(-1)  # the length of a value that is null
_NULLS = b"\x80"  # the first byte of a cell with such a value, or a greater one: its count is negative
_HEADER_BYTES_MIN = 6  # of one user header: name length INT16, value length INT32


def encode_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[bytes | None] | None = None,
    *,
    logical: tuple[Sequence[int], Sequence[int]] | None = None,
    digest: int = 0,
) -> bytes:
    """Return the body of a frame, without its header. Raises ValueError if it is empty, uneven or out of range."""
    count = len(keys)
    key_lengths, key_cells = _wire.measure(keys)
    value_lengths, value_cells = _wire.measure(values)
    if not count or count != len(value_lengths) or count != len(timestamps):
        counts = f"{count} keys, {len(values)} values, {len(timestamps)} timestamps"
        raise ValueError(f"frame of {counts}: need equal counts, at least 1")
    flags = 0
    header_cells: Sequence[bytes] = ()
    try:
        fixed = [struct.pack(f">{count}i{count}i{count}q", *key_lengths, *value_lengths, *timestamps)]
        if logical is not None:
            flags |= _WITH_LOGICAL
            fixed.append(struct.pack(f">I{count}q{count}i", digest, *logical[0], *logical[1]))
        if headers is not None:
            flags |= _WITH_HEADERS
            header_lengths, cells = _wire.measure(headers)
            header_cells = list(cells)
            if _has_nulls(header_cells):
                flags |= _WITH_NULL_HEADERS
            fixed.append(struct.pack(f">{count}i", *header_lengths))
    except struct.error as error:
        raise ValueError(f"frame of {count} records: a column is uneven or out of range: {error}") from error
    return _wire.seal(flags, count, b"".join(chain(fixed, key_cells, value_cells, header_cells)))


def frame_count(message: bytes) -> int:
    """Return the number of records of a frame without decoding them. Raises UnsupportedFormat, DecodeError."""
    return _prefix(message)[1]


def decode_columns(message: bytes, source: TopicPartition = NOWHERE, offset: int = -1) -> RecordBatch:
    """Return the records of a whole frame, header included, which was read at an offset of ``source``.

    Raises UnsupportedFormat, DecodeError.
    """
    flags, count, crc = _prefix(message)
    _wire.check_crc("frame", message, _COLUMNS_AT, crc)
    at = _COLUMNS_AT
    ints, longs = f">{count}i", f">{count}q"
    key_lengths = struct.unpack_from(ints, message, at)
    value_lengths = struct.unpack_from(ints, message, at + 4 * count)
    timestamps = struct.unpack_from(longs, message, at + 8 * count)
    at += 16 * count
    logical, digest = None, 0
    if flags & _WITH_LOGICAL:
        (digest,) = _UINT32.unpack_from(message, at)
        logical = struct.unpack_from(longs, message, at + 4), struct.unpack_from(ints, message, at + 4 + 8 * count)
        at += 4 + 12 * count
    header_lengths: Sequence[int] | None = None
    if flags & _WITH_HEADERS:
        header_lengths = struct.unpack_from(ints, message, at)
        at += 4 * count
    keys, at = _wire.cut_nullable("frame: keys", message, at, key_lengths)
    values, at = _wire.cut_nullable("frame: values", message, at, value_lengths)
    headers = None
    if header_lengths is not None:
        headers, at = _wire.cut_nullable("frame: headers", message, at, header_lengths)
    _wire.check_size("frame", message, at)
    return RecordBatch(keys, values, timestamps, headers, logical, digest, source, offset)


def digest_records(
    digest: int,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[bytes | None] | None,
    logical: tuple[Sequence[int], Sequence[int]],
) -> int:
    """Return the digest of a channel after these records, given the one before them (D3); 0 before the first record.

    It runs over one record after another, so it does not depend on how they are cut into frames. Raises ValueError.
    """
    headers = None if headers is None else _digested(headers)
    key_lengths, value_lengths, header_lengths = map(_lengths, (keys, values, headers))
    try:
        fixed = map(_DIGESTED.pack, key_lengths, value_lengths, header_lengths, timestamps, *logical)
        cells = (fixed, _cells(keys), _cells(values), *(() if headers is None else (_cells(headers),)))
        return zlib.crc32(b"".join(chain.from_iterable(zip(*cells, strict=True))), digest)
    except struct.error as error:
        raise ValueError(f"digest of {len(keys)} records: a column is uneven or out of range: {error}") from error


def digest_outputs(
    digest: int,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[bytes | None],
) -> int:
    """Return the digest of an output partition after these records; ``digest`` is the one before them (D5).

    It is that of a channel without the logical time, which is among the headers. Raises ValueError: uneven lengths.
    """
    headers = _digested(headers)
    key_lengths, value_lengths, header_lengths = map(_lengths, (keys, values, headers))
    try:
        fixed = map(_OUTPUT_DIGESTED.pack, key_lengths, value_lengths, header_lengths, timestamps)
        cells = zip(fixed, _cells(keys), _cells(values), _cells(headers), strict=True)
        return zlib.crc32(b"".join(chain.from_iterable(cells)), digest)
    except (struct.error, ValueError) as error:
        raise ValueError(f"digest of {len(keys)} outputs: a column is uneven or out of range: {error}") from error


def digest_rows(
    offsets: Sequence[int],
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[bytes | None],
) -> int:
    """Return the digest of rows of an external input, in columns, for the input decision that takes them (D2).

    It is crc32 over offsets INT64, timestamps INT64, key, value and header lengths INT32 (-1: null, none), keys, values
    and headers: column after column. Raises ValueError for columns of uneven length.
    """
    count, headers = len(offsets), _digested(headers)
    try:
        lengths = chain.from_iterable(map(_lengths, (keys, values, headers)))
        fixed = struct.pack(f">{2 * count}q{3 * count}i", *offsets, *timestamps, *lengths)
    except struct.error as error:
        raise ValueError(f"digest of {count} rows: a column is uneven or out of range: {error}") from error
    digest = zlib.crc32(fixed)
    for cells in (keys, values, headers):
        digest = zlib.crc32(b"".join(filter(None, cells)), digest)
    return digest


def _has_nulls(cells: Sequence[bytes | None]) -> bool:
    """Tell whether one of these cells of user headers has a header that is null."""
    return max(filter(None, cells), default=b"") >= _NULLS


def _digested(cells: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """Return cells of user headers as digests have them: as before null was known, with no bytes for it.

    A record that an older release has sent, or decided on, has the same digest when it is made or read again.
    """
    if not _has_nulls(cells):
        return cells
    return [
        encode_headers([(name, value or b"") for name, value in decode_headers(cell)])
        if cell and cell >= _NULLS
        else cell
        for cell in cells
    ]


def _lengths(cells: Sequence[bytes | None] | None) -> Iterable[int]:
    return repeat(-1) if cells is None else _wire.measure(cells)[0]


def _cells(cells: Sequence[bytes | None]) -> Iterable[bytes]:
    """Return a cell for each record: nothing for a null."""
    if None in cells:
        return [cell or b"" for cell in cells]
    return cells  # type: ignore[return-value]  # none of them is None


def last_logical(body: bytes) -> tuple[int, int]:
    """Return (t in µs, source id) of the last record of a body that ``encode_columns`` made with logical time."""
    flags, count, _ = _wire.read_prefix("frame", body, 0, _FLAGS_KNOWN)
    assert flags & _WITH_LOGICAL, "a frame without logical time"
    times = PREFIX_SIZE + 16 * count + _UINT32.size
    t, source = times + 8 * (count - 1), times + 8 * count + 4 * (count - 1)
    return _INT64.unpack_from(body, t)[0], _INT32.unpack_from(body, source)[0]


def _prefix(message: bytes) -> tuple[int, int, int]:
    """Return (flags, count, crc32) of a frame whose fixed columns are known to fit."""
    if message[:1] != _FRAME_TYPE:
        decode_header_of(MessageType.FRAME, message)
    flags, count, crc = _wire.read_prefix("frame", message, HEADER_SIZE, _FLAGS_KNOWN)
    _wire.check_range("frame: count", count, 1)
    width, extra = 16, 0
    if flags & _WITH_LOGICAL:
        width, extra = width + 12, 4
    if flags & _WITH_HEADERS:
        width += 4
    _wire.check_room(f"frame: count {count}", message, _COLUMNS_AT, count * width + extra)
    return flags, count, crc


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return one record's user headers as one cell: names may repeat, order is kept. Raises ValueError: a long name."""
    parts, count = [b""], len(headers)
    for name, value in headers:
        parts.append(_wire.pack_text("header name", name))
        if value is None:
            parts.append(_NULL)
            count = ~len(headers)
        else:
            parts += _INT32.pack(len(value)), value
    parts[0] = _INT32.pack(count)
    return b"".join(parts)


def decode_headers(cell: bytes) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers that ``encode_headers`` was given. Raises DecodeError."""
    if len(cell) < _INT32.size:
        raise _wire.truncated("user headers", _INT32.size, cell)
    count, at, least = _INT32.unpack_from(cell)[0], _INT32.size, 0
    if count < 0:
        count, least = _wire.check_range("user headers, of which one is null: count", ~count, 1), -1
    _wire.check_room(f"user headers: count {count}", cell, at, count * _HEADER_BYTES_MIN)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _wire.unpack_text("user header: name", cell, at)
        start = at + _INT32.size
        if start > len(cell):
            raise _wire.truncated("user header: value length", start, cell)
        length = _wire.check_range("user header: value length", _INT32.unpack_from(cell, at)[0], least)
        at = start + max(length, 0)
        if at > len(cell):
            raise _wire.truncated("user header: value", at, cell)
        headers.append((name, None if length < 0 else cell[start:at]))
    _wire.check_size("user headers", cell, at)
    return tuple(headers)
