"""Frames: the records of a channel in columns."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.envelope import HEADER_SIZE, Header, MessageType, encode_header
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.frames import (
    decode_columns,
    decode_headers,
    digest_outputs,
    digest_records,
    digest_rows,
    encode_columns,
    encode_headers,
    frame_count,
    last_logical,
)
from grete.protocol.record_batch import RecordBatch
from tests.protocol.strategies import columns, user_headers

HEADER = encode_header(Header(MessageType.FRAME, 1, 2, 3, 4))
FLAGS_AT, COUNT_AT, COLUMNS_AT = HEADER_SIZE, HEADER_SIZE + 1, HEADER_SIZE + 9


def frame(written: RecordBatch) -> bytes:
    """Return a whole frame."""
    keys, values, timestamps, headers, logical, digest = written[:6]
    return HEADER + encode_columns(keys, values, timestamps, headers, logical=logical, digest=digest)


def resealed(message: bytes) -> bytes:
    """Return the frame with its crc32 put right."""
    crc = zlib.crc32(message[COLUMNS_AT:]).to_bytes(4, "big")
    return message[: COLUMNS_AT - 4] + crc + message[COLUMNS_AT:]


@given(written=columns())
def test_records_survive(written: RecordBatch) -> None:
    """Records are decoded as they were written: nulls are not empty, order and columns stay."""
    message = frame(written)
    assert len(written.keys) == frame_count(message)
    assert written == decode_columns(message)


@given(headers=user_headers)
def test_user_headers_survive(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    """User headers are decoded as they were written: order and repeated names stay, and null is not empty."""
    assert headers == decode_headers(encode_headers(headers))


def test_a_null_header_has_the_digest_of_an_empty_one() -> None:
    """Releases that knew no null wrote it so: what they have sent or decided on has the same digest when made again."""
    empty, null = ([encode_headers([("a", value), ("b", b"1")]), None] for value in (b"", None))
    cells, times, logical = [b"k", b"l"], (1, 2), ((3, 4), (5, 6))
    assert empty != null
    for one, other in (
        [digest_records(0, cells, cells, times, headers, logical) for headers in (empty, null)],
        [digest_outputs(0, cells, cells, times, headers) for headers in (empty, null)],
        [digest_rows(times, times, cells, cells, headers) for headers in (empty, null)],
    ):
        assert one == other


def test_a_frame_says_that_a_header_is_null() -> None:
    """A release that reads none refuses the flag, where it would take the cell for damaged; others are as before."""
    for value, flags in ((b"", 2), (None, 6)):
        body = encode_columns([b"k"], [b"v"], [1], [encode_headers([("a", value)])])
        assert body[0] == flags


def test_large_frames_survive() -> None:
    """A frame of ten thousand records, with a null in the middle, is decoded as it was written."""
    keys: list[bytes | None] = [b"%d" % number for number in range(10_000)]
    values: list[bytes | None] = [bytes(number % 50) for number in range(10_000)]
    keys[5_000] = values[5_001] = None
    written = RecordBatch(keys, values, tuple(range(10_000)), None)
    assert written == decode_columns(frame(written))


@pytest.mark.parametrize(
    ("keys", "values", "timestamps"),
    [([], [], []), ([b"k"], [], [1]), ([b"k"], [b"v"], []), ([b"k", b"k"], [b"v"], [1, 2, 3])],
)
def test_uneven_columns_are_not_written(keys: list[bytes], values: list[bytes], timestamps: list[int]) -> None:
    """A frame without records or with columns of different lengths is refused by the writer."""
    with pytest.raises(ValueError, match="need equal counts, at least 1"):
        encode_columns(keys, values, timestamps)


def test_uneven_optional_columns_are_not_written() -> None:
    """Columns of headers or logical time of another length, and numbers that do not fit, are refused by the writer."""
    with pytest.raises(ValueError, match="uneven or out of range"):
        encode_columns([b"k"], [b"v"], [1], [None, None])
    with pytest.raises(ValueError, match="uneven or out of range"):
        encode_columns([b"k"], [b"v"], [1], logical=((1, 2), (1,)))
    with pytest.raises(ValueError, match="uneven or out of range"):
        encode_columns([b"k"], [b"v"], [2**63])


def test_unknown_flags_are_refused() -> None:
    """A flag of a later build changes the layout: it is refused as unsupported, not guessed at."""
    message = bytearray(frame(RecordBatch([b"k"], [b"v"], (1,), None)))
    message[FLAGS_AT] = 0x80
    with pytest.raises(UnsupportedFormat, match="flags 0x80, this build knows 0x07"):
        decode_columns(bytes(message))


def test_damage_is_found() -> None:
    """A changed byte of a value is found by the crc32, and the error gives both."""
    message = bytearray(frame(RecordBatch([b"k"], [b"v"], (1,), None)))
    message[-1] ^= 1
    with pytest.raises(DecodeError, match="crc32 0x"):
        decode_columns(bytes(message))


@pytest.mark.parametrize(("count", "found"), [(0, "count = 0"), (-1, "count = -1"), (2, "columns need 32 bytes")])
def test_wrong_counts_are_refused(count: int, found: str) -> None:
    """A count that is not positive, or larger than the message can hold, is refused; no frame is empty."""
    message = frame(RecordBatch([b"k"], [b"v"], (1,), None))
    message = message[:COUNT_AT] + struct.pack(">i", count) + message[COUNT_AT + 4 :]
    for decode in (decode_columns, frame_count):
        with pytest.raises(DecodeError, match=found):
            decode(message)


def test_wrong_lengths_are_refused() -> None:
    """A length below -1 is refused even if the others make up for it."""
    message = frame(RecordBatch([b"k", b"kk"], [b"v", b"v"], (1, 2), None))
    message = message[:COLUMNS_AT] + struct.pack(">2i", -2, 5) + message[COLUMNS_AT + 8 :]
    with pytest.raises(DecodeError, match="length -2"):
        decode_columns(resealed(message))


def test_other_messages_are_no_frames() -> None:
    """A message of another type is refused, and the error names it."""
    marker = encode_header(Header(MessageType.MARKER, 1, 2, 3, 4)) + b"\0" * 30
    for decode in (decode_columns, frame_count):
        with pytest.raises(DecodeError, match="expected a FRAME, found a MARKER"):
            decode(marker)


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("0000", "need 4"),
        ("ffffffff", "one is null: count = 0: must be at least 1"),
        ("fffffffe 0000 fffffffe", "value length = -2"),
        ("00000002 0001 6b 00000000", "columns need 12 bytes"),
        ("00000001 0006 6b 0000 0000", "need 12"),
        ("00000001 8000 6b6b 00000000", "length = -32768"),
        ("00000001 0001 ff 00000000", "not UTF-8"),
        ("00000001 0004 6b6b6b6b", "need 14"),
        ("00000001 0000 ffffffff", "value length = -1"),
        ("00000001 0000 00000001", "need 11"),
        ("00000000 00", "1 bytes after its end"),
        ("00000002 0005 6b6b6b6b6b 00000000 00", "need 17"),
    ],
)
def test_broken_user_headers_are_refused(cell: str, found: str) -> None:
    """Each broken length, count and name of user headers is refused, and the error gives the value."""
    with pytest.raises(DecodeError, match=found):
        decode_headers(bytes.fromhex(cell))


def test_long_header_names_are_not_written() -> None:
    """A header name that does not fit its length field is refused by the writer."""
    with pytest.raises(ValueError, match="32768 bytes of UTF-8, at most 32767"):
        encode_headers([("k" * 32_768, b"")])


def _timed(written: RecordBatch) -> RecordBatch:
    count = len(written.keys)
    return written._replace(logical=written.logical or (tuple(range(count)), (1,) * count))


def _digest(before: int, written: RecordBatch, start: int = 0, stop: int | None = None) -> int:
    cut = slice(start, stop)
    assert written.logical is not None
    times, sources = written.logical
    headers = None if written.headers is None else written.headers[cut]
    columns_ = written.keys[cut], written.values[cut], written.timestamps[cut], headers
    return digest_records(before, *columns_, (times[cut], sources[cut]))


@given(written=columns().map(_timed), at=st.integers(0, 9), before=st.integers(0, 2**32 - 1))
def test_a_digest_does_not_depend_on_the_cut(written: RecordBatch, at: int, before: int) -> None:
    """The digest of a channel is the same however its records are cut into frames (D3)."""
    assert _digest(before, written) == _digest(_digest(before, written, 0, at), written, at)


def test_the_digest_of_a_record_is_that_of_its_bytes() -> None:
    """Digests are compared across builds: their bytes are fixed as README.md says (D3)."""
    written = RecordBatch([None, b"k"], [b"v", None], (-1, 2), [None, b"head"], ((10, 11), (1, 2)))
    first = struct.pack(">iiiqqi", -1, 1, -1, -1, 10, 1) + b"v"
    second = struct.pack(">iiiqqi", 1, -1, 4, 2, 11, 2) + b"k" + b"head"
    assert _digest(7, written) == zlib.crc32(first + second, 7)


@given(written=columns().map(_timed), other=columns().map(_timed))
def test_other_records_have_another_digest(written: RecordBatch, other: RecordBatch) -> None:
    """Records that differ in anything, their cut into cells included, differ in their digest (D3)."""
    fields = (written.keys, written.values, tuple(written.timestamps), written.headers or [None] * len(written.keys))
    others = (other.keys, other.values, tuple(other.timestamps), other.headers or [None] * len(other.keys))
    same = (*fields, written.logical) == (*others, other.logical)
    assert (_digest(0, written) == _digest(0, other)) == same


@given(written=columns().map(_timed))
def test_the_last_logical_time_is_found_without_decoding(written: RecordBatch) -> None:
    """The key of a body's last record is read from its columns (D1)."""
    keys, values, timestamps, headers, logical, digest = written[:6]
    assert logical is not None
    body = encode_columns(keys, values, timestamps, headers, logical=logical, digest=digest)
    assert last_logical(body) == (logical[0][-1], logical[1][-1])


def test_a_digest_of_outputs_does_not_depend_on_the_cut() -> None:
    """As the digest of a channel, over all that a reader of the partition sees, whatever was released together (D5)."""
    outputs: list[list[Any]] = [[b"k", None, b""], [b"", b"ab", None], [10, 11, 12], [b"h", b"h", b"hh"]]
    whole = digest_outputs(0, *outputs)
    assert whole == zlib.crc32(bytes.fromhex(
        "00000001 00000000 00000001 000000000000000a 6b 68"
        "ffffffff 00000002 00000001 000000000000000b 6162 68"
        "00000000 ffffffff 00000002 000000000000000c 6868"
    ))  # fmt: skip
    for cut in range(4):
        part = digest_outputs(0, *([column[i] for i in range(cut)] for column in outputs))
        assert digest_outputs(part, *(column[cut:] for column in outputs)) == whole
    with pytest.raises(ValueError, match="uneven"):
        digest_outputs(0, [None], [None], [1, 2], [None, None])


def test_a_digest_of_rows_covers_every_column() -> None:
    """A change in any column of a row, its offset too, changes the digest; no byte passes between cells (D2)."""
    rows: list[list[Any]] = [[3, 5], [10, 10], [b"k", None], [b"", b"ab"], [None, b"c"]]
    before = digest_rows(*rows)
    assert before == zlib.crc32(bytes.fromhex(
        "0000000000000003 0000000000000005 000000000000000a 000000000000000a"  # offsets, timestamps
        "00000001 ffffffff 00000000 00000002 ffffffff 00000001"  # lengths of keys, values, headers
        "6b 6162 63"
    ))  # fmt: skip
    changes = [(0, 1, 6), (1, 0, 11), (2, 0, b"l"), (2, 1, b""), (3, 0, None), (3, 1, b"ac"), (4, 0, b""), (4, 1, None)]
    for column, at, other in changes:
        changed = [list(each) for each in rows]
        changed[column][at] = other
        assert digest_rows(*changed) != before, (column, at)
    with pytest.raises(ValueError, match="uneven"):
        digest_rows([1, 2], [1], [None], [None], [None])


def test_a_digest_is_of_whole_records() -> None:
    """A timestamp that does not fit, or none, is an error that says so (D3)."""
    with pytest.raises(ValueError, match="digest of 1 records: a column is uneven or out of range"):
        digest_records(0, [None], [b"x"], [1 << 63], None, ([1], [1]))
