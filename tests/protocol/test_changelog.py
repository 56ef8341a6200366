"""Changelog messages other than commits."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.changelog import (
    CHANGELOG_HEADER_SIZE,
    ChangelogHeader,
    ChangelogType,
    Claim,
    Data,
    InputDecision,
    Outcome,
    OutputRelease,
    TakenRows,
    TimeLease,
    decode_changelog_header,
    decode_claim,
    decode_data,
    decode_input_decision,
    decode_outcome,
    decode_output_release,
    decode_time_lease,
    encode_changelog_header,
    encode_claim,
    encode_data,
    encode_input_decision,
    encode_outcome,
    encode_output_release,
    encode_time_lease,
    resets_of,
)
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallResult, CallsNote, IdleNote, decode_note, encode_calls, encode_note
from tests.protocol.strategies import changelog_headers, data, int64s, naturals32, naturals64, texts, uint32s

HEADERS = {kind: ChangelogHeader(kind, 3, 5, 0) for kind in ChangelogType}
CLAIM = Claim(bytes(16), "host", 1, 2)


@given(header=st.sampled_from(ChangelogType).flatmap(changelog_headers), body=st.binary(max_size=9))
def test_headers_survive(header: ChangelogHeader, body: bytes) -> None:
    """A header is decoded as it was written, whatever follows it."""
    message = encode_changelog_header(header)
    assert CHANGELOG_HEADER_SIZE == len(message)
    assert header == decode_changelog_header(message + body)


@given(header=changelog_headers(ChangelogType.DATA), written=data())
def test_data_survives(header: ChangelogHeader, written: Data) -> None:
    """Writes are decoded in order: a tombstone is not an empty value, no reset is not a reset of nothing (R1)."""
    message = encode_data(header, *written)
    assert written == decode_data(message)
    assert resets_of(message) == written.reset_stores
    with pytest.raises(DecodeError):
        resets_of(message[: CHANGELOG_HEADER_SIZE + 5])


@given(
    header=changelog_headers(ChangelogType.CLAIM),
    claim=st.builds(Claim, st.binary(min_size=16, max_size=16), texts, naturals32, naturals64),
)
def test_claims_survive(header: ChangelogHeader, claim: Claim) -> None:
    """A claim is decoded as it was written (C1)."""
    assert claim == decode_claim(encode_claim(header, claim))


@given(
    header=changelog_headers(ChangelogType.INPUT_DECISION),
    decision=st.builds(InputDecision, texts, naturals32, naturals64, naturals32, int64s, int64s),
    rows=st.none() | st.builds(TakenRows, naturals64, uint32s),
)
def test_decisions_survive(header: ChangelogHeader, decision: InputDecision, rows: TakenRows | None) -> None:
    """An input decision is decoded as it was written, in both formats; a byte less or more is refused (D2)."""
    if rows is not None:
        rows = rows._replace(last_offset=max(rows.last_offset, decision.first_offset))
    decision = decision._replace(rows=rows)
    message = encode_input_decision(header, decision)
    assert message[0] == (0x1B if rows is None else 0x2B)
    assert decision == decode_input_decision(message)
    for broken in (message[:-1], message + b"\0"):
        with pytest.raises(DecodeError):
            decode_input_decision(broken)


@given(header=changelog_headers(ChangelogType.TIME_LEASE), t=int64s)
def test_leases_survive(header: ChangelogHeader, t: int) -> None:
    """A time lease is decoded as it was written (D2)."""
    assert TimeLease(t) == decode_time_lease(encode_time_lease(header, TimeLease(t)))


@given(
    header=changelog_headers(ChangelogType.OUTPUT_RELEASE),
    entries=st.lists(st.tuples(st.builds(TopicPartition, texts, naturals32), naturals64, uint32s), max_size=3),
    digests=st.booleans(),
)
def test_releases_survive(
    header: ChangelogHeader, entries: list[tuple[TopicPartition, int, int]], digests: bool
) -> None:
    """A release is decoded as it was written, in both formats; cut short or with a byte more it is refused (D5)."""
    seqs = tuple((partition, seq) for partition, seq, _ in entries)
    release = OutputRelease(seqs, tuple(digest for _, _, digest in entries) if digests else None)
    message = encode_output_release(header, release)
    assert message[0] == (0x2D if digests else 0x1D)
    assert release == decode_output_release(message)
    for broken in (message[:-1], message + b"\0"):
        with pytest.raises(DecodeError):
            decode_output_release(broken)


def test_a_release_cut_behind_a_long_topic_is_refused() -> None:
    """A name that fills the room of two entries does not hide that the second one is missing (D5)."""
    partition = TopicPartition("t" * 100, 0)
    header = HEADERS[ChangelogType.OUTPUT_RELEASE]
    whole = encode_output_release(header, OutputRelease(((partition, 1), (TopicPartition("u", 0), 1))))
    first = encode_output_release(header, OutputRelease(((partition, 1),)))
    with pytest.raises(DecodeError, match="release"):
        decode_output_release(whole[: len(first)])


def test_digests_of_releases_and_decisions_fit() -> None:
    """Digests that do not fit, or do not match, are not written; a last offset below the first is not read (D2, D5)."""
    header = HEADERS[ChangelogType.OUTPUT_RELEASE]
    with pytest.raises(ValueError, match="1 seqs, 2 digests"):
        encode_output_release(header, OutputRelease(((TopicPartition("t", 0), 1),), (1, 2)))
    with pytest.raises(ValueError, match="does not fit"):
        encode_output_release(header, OutputRelease(((TopicPartition("t", 0), 1),), (1 << 32,)))
    header = HEADERS[ChangelogType.INPUT_DECISION]
    with pytest.raises(ValueError, match="does not fit"):
        encode_input_decision(header, InputDecision("t", 0, 0, 1, 0, 0, TakenRows(0, -1)))
    with pytest.raises(DecodeError, match="last offset = 4: must be at least 5"):
        decode_input_decision(encode_input_decision(header, InputDecision("t", 0, 5, 1, 0, 0, TakenRows(4, 0))))


@given(header=changelog_headers(ChangelogType.OUTCOME), bulk_write_id=texts, counts=st.booleans())
def test_outcomes_survive(header: ChangelogHeader, bulk_write_id: str, counts: bool) -> None:
    """An outcome is decoded as it was written (1.8)."""
    assert Outcome(bulk_write_id, counts) == decode_outcome(encode_outcome(header, Outcome(bulk_write_id, counts)))


@pytest.mark.parametrize(
    ("byte", "found"),
    [(0x28, "format version 2"), (0x3B, "format version 3"), (0x17, "type 7"), (0x10, "type 0 is none of")],
)
def test_unknown_types_are_refused(byte: int, found: str) -> None:
    """An unknown format version or type, a stream's among them, is refused, and the error says what was found."""
    with pytest.raises(UnsupportedFormat, match=found):
        decode_changelog_header(bytes([byte]) + bytes(16))


@pytest.mark.parametrize(("field", "at"), [("generation", 1), ("seq", 5), ("attempt", 13)])
def test_negative_fields_are_refused(field: str, at: int) -> None:
    """No field of the header may be negative, neither written nor read."""
    header, negative = HEADERS[ChangelogType.DATA], dict[str, Any]({field: -1})
    with pytest.raises(ValueError, match="negative"):
        encode_changelog_header(header._replace(**negative))
    message = bytearray(encode_changelog_header(header))
    message[at] = 0x80
    with pytest.raises(DecodeError, match=f"{field} -"):
        decode_changelog_header(bytes(message))


def test_types_are_not_mixed_up() -> None:
    """No message is written under a header of another type, none is read as another type."""
    claim = encode_claim(HEADERS[ChangelogType.CLAIM], CLAIM)
    for decode in (decode_data, decode_input_decision, decode_time_lease, decode_output_release):
        with pytest.raises(DecodeError, match="found a CLAIM"):
            decode(claim)
    with pytest.raises(ValueError, match="a DATA needs a header of that type"):
        encode_data(HEADERS[ChangelogType.CLAIM], [], [], [])


@pytest.mark.parametrize(
    ("stores", "keys", "values", "found"),
    [
        ([1], [], [], "need equal counts"),
        ([1], [b"k"], [], "need equal counts"),
        ([2**15], [b"k"], [b"v"], "out of range"),
    ],
)
def test_uneven_data_is_not_written(stores: list[int], keys: list[bytes], values: list[bytes], found: str) -> None:
    """Columns of different lengths and store ids that do not fit are refused by the writer."""
    with pytest.raises(ValueError, match=found):
        encode_data(HEADERS[ChangelogType.DATA], stores, keys, values)


def test_broken_data_is_refused() -> None:
    """A flag of a later build, a negative count and a count beyond the message are refused, each by its name."""
    message = encode_data(HEADERS[ChangelogType.DATA], [1], [b"k"], [None])
    with pytest.raises(UnsupportedFormat, match="flags 0x04"):
        decode_data(message[:17] + b"\x04" + message[18:])
    for count, found in ((-1, "count = -1"), (2, "columns need 20 bytes")):
        with pytest.raises(DecodeError, match=found):
            decode_data(message[:18] + struct.pack(">i", count) + message[22:])
    with pytest.raises(DecodeError, match="need 26"):
        decode_data(message[:25])


def test_null_keys_are_refused() -> None:
    """A key of a negative length is refused even if another makes up for it: only values can be null."""
    message = encode_data(HEADERS[ChangelogType.DATA], [1, 1], [b"k", b"k"], [b"v", b"v"])
    rest = message[26:30] + struct.pack(">2i", -1, 3) + message[38:]
    with pytest.raises(DecodeError, match="data: keys: length -1"):
        decode_data(message[:22] + zlib.crc32(rest).to_bytes(4, "big") + rest)


def test_resets_do_not_stand_in_for_columns() -> None:
    """A reset's store ids take their room: what is left for the columns is measured after them."""
    message = encode_data(HEADERS[ChangelogType.DATA], [1], [b"k"], [b"v"], range(9))
    rest = message[26:46]
    with pytest.raises(DecodeError, match="columns need 10 bytes, the message has 0 left"):
        decode_data(message[:22] + zlib.crc32(rest).to_bytes(4, "big") + rest)


def test_unfit_claims_are_refused() -> None:
    """A nonce that is not 16 bytes is refused by the writer, a negative process id by the reader."""
    header = HEADERS[ChangelogType.CLAIM]
    with pytest.raises(ValueError, match="nonce of 3 bytes"):
        encode_claim(header, CLAIM._replace(nonce=b"abc"))
    with pytest.raises(DecodeError, match="pid = -1"):
        decode_claim(encode_claim(header, CLAIM._replace(pid=-1)))


def test_unfit_decisions_are_refused() -> None:
    """A number that does not fit is refused by the writer, a negative offset by the reader."""
    header = HEADERS[ChangelogType.INPUT_DECISION]
    with pytest.raises(ValueError, match="does not fit"):
        encode_input_decision(header, InputDecision("t", 2**31, 0, 0, 0, 0))
    with pytest.raises(DecodeError, match="first offset = -5"):
        decode_input_decision(encode_input_decision(header, InputDecision("t", 0, -5, 0, 0, 0)))


@given(changelog_headers(ChangelogType.NOTE), st.builds(IdleNote, texts, naturals32, int64s, st.booleans()))
def test_notes_survive(header: ChangelogHeader, note: IdleNote) -> None:
    """A note is read as it was written, and says its time as an input decision does."""
    message = encode_note(header, note)
    assert (decode_changelog_header(message), decode_note(message)) == (header, note)
    assert note.first_t == note.last_t == note.t


results = st.lists(st.builds(CallResult, st.booleans(), st.binary(max_size=9)), min_size=1, max_size=3).map(tuple)


@given(changelog_headers(ChangelogType.NOTE), st.dictionaries(st.integers(0, 1 << 62), results, max_size=4))
def test_results_of_calls_survive(header: ChangelogHeader, found: dict[int, tuple[CallResult, ...]]) -> None:
    """A note of results is read as it was written."""
    note = CallsNote(tuple(sorted(found.items())))
    message = encode_calls(header, note)
    assert (decode_changelog_header(message), decode_note(message)) == (header, note)


def test_unfit_results_of_calls_are_refused() -> None:
    """Every field is checked, and nothing is read behind the end."""
    called = CallsNote(((7, (CallResult(ok=True, data=b"abc"),)), (9, (CallResult(ok=False, data=b"x"),))))
    message, at = encode_calls(HEADERS[ChangelogType.NOTE], called), CHANGELOG_HEADER_SIZE
    for size in range(at, len(message)):
        with pytest.raises(DecodeError):
            decode_note(message[:size])
    for where, wrong, match in (
        (1, b"\xff" * 4, "records = -1"),
        (5, b"\xff" * 8, "record -1 with 1 results after record -1"),
        (13, bytes(4), "record 7 with 0 results"),
        (17, b"\x02", "result of 3 bytes with ok = 2"),
        (18, b"\xff" * 4, "result of -1 bytes"),
        (25, bytes(7) + b"\x07", "record 7 with 1 results after record 7"),
    ):
        with pytest.raises(DecodeError, match=match):
            decode_note(message[: at + where] + wrong + message[at + where + len(wrong) :])
    with pytest.raises(DecodeError, match="1 bytes after its end"):
        decode_note(message + b"x")


def test_a_note_of_another_kind_is_refused() -> None:
    """An unknown kind is refused as an unknown type is; so is an idle flag that says nothing."""
    message = encode_note(HEADERS[ChangelogType.NOTE], IdleNote("t", 0, 5))
    at = CHANGELOG_HEADER_SIZE
    with pytest.raises(UnsupportedFormat, match=r"note of kind 3, .* 1 \(idle\), 2 \(calls\) and 5 \(ended\)"):
        decode_note(message[:at] + b"\x03" + message[at + 1 :])
    with pytest.raises(DecodeError, match="must be 1"):
        decode_note(message[: at + 13] + b"\x00" + message[at + 14 :])
    with pytest.raises(DecodeError, match="partition = -1"):
        decode_note(message[: at + 1] + b"\xff" * 4 + message[at + 5 :])
