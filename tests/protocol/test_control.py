"""Checkpoint markers, rollback markers and progress messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.control import (
    RollbackMarker,
    Watermark,
    decode_joint_progress,
    decode_marker,
    decode_progress,
    decode_rollback_marker,
    decode_watermark,
    encode_joint_progress,
    encode_marker,
    encode_markers,
    encode_progress,
    encode_rollback_marker,
    encode_watermark,
)
from grete.protocol.envelope import Header, MessageType
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import RollbackEntry
from tests.protocol.strategies import headers, int32s, int64s, rollback_histories


@given(header=headers(MessageType.MARKER), at_end=st.booleans())
def test_markers_survive(header: Header, at_end: bool) -> None:
    """A marker is decoded as it was written (A6, A2b)."""
    assert (header, at_end) == decode_marker(encode_marker(*header[1:], at_end=at_end))


@given(seqs=st.lists(st.integers(0, 2**63 - 1), max_size=5), at_end=st.booleans())
def test_markers_for_several_channels_are_those_for_each(seqs: list[int], at_end: bool) -> None:
    """Markers that are made together are those that are made one by one, and none has a negative seq."""
    assert encode_markers(1, 2, 3, seqs, at_end) == [encode_marker(1, 2, 3, seq, at_end) for seq in seqs]
    with pytest.raises(ValueError, match="may be negative"):
        encode_markers(1, 2, 3, [*seqs, -1], at_end)
    with pytest.raises(ValueError, match="does not fit"):
        encode_markers(1, 2, 3, [*seqs, 2**63], at_end)


@given(header=headers(MessageType.ROLLBACK_MARKER), fingerprint=int64s, rollback_history=rollback_histories)
def test_rollback_markers_survive(
    header: Header, fingerprint: int, rollback_history: tuple[RollbackEntry, ...]
) -> None:
    """A rollback marker is decoded with its whole rollback history, in order (R2, R3)."""
    message = encode_rollback_marker(*header[1:], fingerprint, rollback_history)
    assert RollbackMarker(header, fingerprint, rollback_history) == decode_rollback_marker(message)


@given(header=headers(MessageType.PROGRESS), t=int64s, source=int32s)
def test_progress_messages_survive(header: Header, t: int, source: int) -> None:
    """A progress message is decoded as it was written (D1)."""
    assert (header, t, source) == decode_progress(encode_progress(*header[1:], t, source))


natural = int32s.filter(lambda number: number >= 0)


@given(first=headers(MessageType.PROGRESS), others=st.lists(st.tuples(natural, natural, natural, int64s), max_size=9))
def test_joint_progress_messages_survive(first: Header, others: list[tuple[int, int, int, int]]) -> None:
    """A joint progress message is decoded as the messages of which it is made (D1)."""
    header, rows = first, [(first.producer, first.generation, first.seq, 7), *others]
    decoded = decode_joint_progress(encode_joint_progress(header.checkpoint_id, rows))
    assert [(h.producer, h.generation, h.seq, t) for h, t, _ in decoded] == rows
    assert {(h.type, h.checkpoint_id, source) for h, _, source in decoded} == {
        (MessageType.PROGRESS, header.checkpoint_id, 2**31 - 1)
    }


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("", "25 bytes, need 29"),
        ("00000000", "count = 0: must be at least 1"),
        ("00000001", "29 bytes, need 53"),
        ("00000001" + "ffffffff" + "00" * 20, "producer -1"),
        ("00000001" + "00000001" + "ffffffff" + "00" * 16, "generation -1"),
        ("00000001" + "00000001" * 2 + "ff" * 8 + "00" * 8, "seq -1"),
        ("00000001" + "00" * 25, "1 bytes after its end"),
    ],
)
def test_broken_joint_progress_messages_are_refused(body: str, found: str) -> None:
    """Each broken field is refused, and the error gives its value."""
    with pytest.raises(DecodeError, match=found):
        decode_joint_progress(encode_joint_progress(3, [(1, 2, 4, 5)])[:25] + bytes.fromhex(body))


@given(
    header=headers(MessageType.WATERMARK),
    idle=st.booleans(),
    advances=st.lists(st.tuples(int64s, int64s), min_size=1, max_size=9),
    logical=st.booleans(),
)
def test_watermarks_survive(header: Header, idle: bool, advances: list[tuple[int, int]], logical: bool) -> None:
    """A watermark is decoded as it was written: one, or several with their logical times (E2)."""
    watermarks, times = zip(*(advances if logical else advances[:1]), strict=True)
    wanted = Watermark(header, idle, watermarks, times if logical else None)
    assert wanted == decode_watermark(encode_watermark(*header[1:], *wanted[1:]))


@pytest.mark.parametrize(("watermarks", "times"), [((), None), ((1, 2), None), ((1, 2), (1,)), ((), ())])
def test_wrong_counts_of_watermarks_are_not_written(watermarks: tuple[int, ...], times: tuple[int, ...] | None) -> None:
    """Without logical times there is one watermark, with them as many as there are times."""
    with pytest.raises(ValueError, match="need one, or as many times as watermarks"):
        encode_watermark(1, 2, 3, 4, idle=False, watermarks=watermarks, times=times)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("00 000000", "need 30"),
        ("04 00000001 0000000000000000", "flags 0x04"),
        ("00 00000000", "count = 0"),
        ("00 ffffffff", "count = -1"),
        ("00 00000002 0000000000000000 0000000000000000", "count = 2 without logical times"),
        ("02 7fffffff 0000000000000000", "count 2147483647"),
        ("02 00000001 0000000000000000", "count 1"),
        ("00 00000001 0000000000000000 00", "1 bytes after its end"),
    ],
)
def test_broken_watermarks_are_refused(body: str, found: str) -> None:
    """Each broken field of a watermark is refused, and the error gives its value."""
    message = encode_watermark(1, 2, 3, 4, idle=False, watermarks=(5,))[:25] + bytes.fromhex(body)
    with pytest.raises(DecodeError, match=found):
        decode_watermark(message)


def test_unknown_marker_flags_are_refused() -> None:
    """A flag of a later build on a marker is refused as unsupported."""
    with pytest.raises(UnsupportedFormat, match="flags 0x02"):
        decode_marker(encode_marker(1, 2, 3, 4, at_end=False)[:-1] + b"\x02")


@pytest.mark.parametrize("entry", [RollbackEntry(-1, 0), RollbackEntry(1, -2), RollbackEntry(2**31, 0)])
def test_wrong_rollback_histories_are_not_written(entry: RollbackEntry) -> None:
    """A negative or too large generation and a checkpoint below -1 (nothing restored) are refused by the writer."""
    with pytest.raises(ValueError, match=str(entry.generation)):
        encode_rollback_marker(1, 2, 3, 4, 5, [entry])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("0000000000000000 000000", "need 37"),
        ("0000000000000000 ffffffff", "count = -1"),
        ("0000000000000000 00000001 00000000 00000000000000", "columns need 12 bytes"),
        ("0000000000000000 00000001 ffffffff 0000000000000000", "generation = -1"),
        ("0000000000000000 00000001 00000000 fffffffffffffffe", "restored checkpoint = -2"),
        ("0000000000000000 00000000 00", "1 bytes after its end"),
    ],
)
def test_broken_rollback_markers_are_refused(body: str, found: str) -> None:
    """Each broken field of a rollback marker is refused, and the error gives its value."""
    message = encode_rollback_marker(1, 2, 3, 4, 5, [])[:25] + bytes.fromhex(body)
    with pytest.raises(DecodeError, match=found):
        decode_rollback_marker(message)


def test_types_are_not_mixed_up() -> None:
    """No control message is read as another: same length or not."""
    marker, progress = encode_marker(1, 2, 3, 4, at_end=True), encode_progress(1, 2, 3, 4, 0, 0)
    rollback_marker = encode_rollback_marker(1, 2, 3, 4, 0, [])
    assert len(progress) == len(rollback_marker)
    for decode, others in (
        (decode_marker, (progress, rollback_marker)),
        (decode_progress, (marker, rollback_marker)),
        (decode_rollback_marker, (marker, progress)),
    ):
        for other in others:
            with pytest.raises(DecodeError, match="expected a"):
                decode(other)
