"""Bytes from outside can be anything: a decoder answers with a value or with DecodeError, in bounded memory."""

import contextlib
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.errors import DecodeError
from grete.protocol.frames import frame_count
from tests.protocol.golden import FULL_HEX, GOLDEN, RESET_HEX, Golden
from tests.protocol.golden_commits import LARGE_HEX, WIDE_HEX

WHOLE = [golden for golden in GOLDEN if golden.name not in ("header", "changelog header")]  # these read a prefix
# name → where what the crc32 covers begins
CHECKED = {"frame": 34, "frame, all columns": 34, "data": 26, "reset": 26}
CHECKED |= dict.fromkeys((each.name for each in GOLDEN if each.name.startswith("commit, schema 2")), 23)
EXTREMES = (0, 1, -1, -2, -(2**31), 2**31 - 1, 2**30, 2**16, 255)


def outcome(decode: Callable[[bytes], Any], message: bytes) -> Any:
    """Return the value or None where DecodeError is raised; anything else raised is the failure looked for."""
    with contextlib.suppress(DecodeError):
        return decode(message)
    return None


def resealed(golden: Golden, message: bytes) -> bytes:
    """Return the message with its crc32 put right: what a faulty writer would send, not a faulty wire."""
    at = CHECKED.get(golden.name)
    return message if at is None else message[: at - 4] + zlib.crc32(message[at:]).to_bytes(4, "big") + message[at:]


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_every_truncation_is_refused(golden: Golden) -> None:
    """A message cut off anywhere is refused, even if its crc32 is put right."""
    for size in range(len(golden.data)):
        with pytest.raises(DecodeError):
            golden.decode(golden.data[:size])
        if size >= CHECKED.get(golden.name, len(golden.data)):
            with pytest.raises(DecodeError):
                golden.decode(resealed(golden, golden.data[:size]))


@pytest.mark.parametrize("golden", WHOLE, ids=[golden.name for golden in WHOLE])
def test_trailing_bytes_are_refused(golden: Golden) -> None:
    """A message with bytes after its end is refused, even if its crc32 is put right."""
    for tail in (b"\0", b"xyz"):
        with pytest.raises(DecodeError):
            golden.decode(resealed(golden, golden.data + tail))


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_bit_flips_raise_nothing_else(golden: Golden) -> None:
    """A flipped bit gives a value or DecodeError; where a crc32 covers it, always DecodeError."""
    for bit in range(len(golden.data) * 8):
        message = bytearray(golden.data)
        message[bit // 8] ^= 1 << bit % 8
        if bit // 8 >= CHECKED.get(golden.name, len(message)):
            with pytest.raises(DecodeError):
                golden.decode(bytes(message))
        outcome(golden.decode, bytes(message))
        outcome(golden.decode, resealed(golden, bytes(message)))


@pytest.mark.parametrize("golden", GOLDEN, ids=[golden.name for golden in GOLDEN])
def test_extreme_integers_raise_nothing_else(golden: Golden) -> None:
    """Any four bytes replaced by a huge, negative or shifted number give a value or DecodeError."""
    for at in range(len(golden.data) - 3):
        for extreme in EXTREMES:
            message = golden.data[:at] + struct.pack(">i", extreme) + golden.data[at + 4 :]
            outcome(golden.decode, message)
            outcome(golden.decode, resealed(golden, message))


@given(golden=st.sampled_from(GOLDEN), keep=st.integers(0, 40), tail=st.binary(max_size=120))
def test_random_bytes_raise_nothing_else(golden: Golden, keep: int, tail: bytes) -> None:
    """Random bytes after any part of a valid message give a value or DecodeError."""
    message = golden.data[:keep] + tail
    outcome(golden.decode, message)
    if keep >= CHECKED.get(golden.name, keep):
        outcome(golden.decode, resealed(golden, message))


@given(
    golden=st.sampled_from(GOLDEN),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.binary(max_size=6)), max_size=5),
)
def test_edited_messages_raise_nothing_else(golden: Golden, edits: list[tuple[int, int, bytes]]) -> None:
    """Bytes inserted, deleted and replaced in a valid message give a value or DecodeError."""
    message = golden.data
    for at, delete, insert in edits:
        message = message[:at] + insert + message[at + delete :]
    outcome(golden.decode, message)
    outcome(golden.decode, resealed(golden, message))


def test_overlapping_lengths_are_refused() -> None:
    """Lengths that fit one by one but together reach past the end are refused: no record may borrow another's bytes."""
    golden = next(golden for golden in GOLDEN if golden.name == "frame")
    for lengths in ((1, 2, 2, 1), (3, 2, 2, 0), (5, 5, 5, 5), (2, 2, 2, -1), (2**31 - 1, 2**31 - 1, 2**31 - 1, 3)):
        message = golden.data[:34] + struct.pack(">4i", *lengths) + golden.data[50:]
        with pytest.raises(DecodeError, match=r"frame: (keys|values)|after its end"):
            golden.decode(resealed(golden, message))


FULL, LARGE, RESET, WIDE = map(bytes.fromhex, (FULL_HEX, LARGE_HEX, RESET_HEX, WIDE_HEX))
HUGE = struct.pack(">i", 2**31 - 1)
LONG = b"\xfe" + b"\xff" * 8 + b"\x01"  # the greatest Avro long


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("frame", FULL[:26] + HUGE + FULL[30:]),
        ("frame", FULL[:25] + b"\0" + HUGE + FULL[30:]),
        ("data", RESET[:18] + HUGE + RESET[22:]),
        ("reset", RESET[:26] + b"\x7f\xff" + RESET[28:]),
        ("user headers", HUGE + b"\0" * 40),
        ("user headers", b"\0\0\0\1" + b"\0\1k" + HUGE + b"\0" * 40),
        ("restore", bytes.fromhex(f"12 {'00' * 24} {'00' * 8}") + HUGE + b"\0" * 40),
        ("watermarks with logical times", bytes.fromhex(f"14 {'00' * 24} 02") + HUGE + b"\0" * 40),
        ("commit", LARGE[:25] + LONG + b"\2" * 40),
        ("commit, schema 2", WIDE[:31] + b"\xdd\x7f\xff\xff\xff" + WIDE[32:]),  # rollback history
        ("commit, schema 2, tables", WIDE.replace(b"\x93\x00\x00\x01", b"\xdd\x7f\xff\xff\xff\0\0\1", 1)),  # a column
    ],
)
def test_huge_counts_allocate_nothing(name: str, message: bytes) -> None:
    """A count of 2^31 - 1 or more is refused before anything of that size is allocated."""
    golden = next(golden for golden in GOLDEN if golden.name == name)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            golden.decode(resealed(golden, message))
        if name == "frame":
            with pytest.raises(DecodeError):
                frame_count(message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
