"""Messages of the members' topic: what is written is read, and what this build cannot know is said."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.members import (
    REPORT_BYTES_MAX,
    EndedTask,
    HaltedPartition,
    Heartbeat,
    HeldPartition,
    JobAssignment,
    Leave,
    MemberReport,
    MembersMessage,
    PartitionPlace,
    PartitionState,
    decode_members_message,
    encode_members_message,
)

NAME, NUMBER = st.text(min_size=1, max_size=9), st.integers(0, 65_535)
COUNT = st.integers(-1, 2**63 - 1)
HELD = st.builds(HeldPartition, NUMBER, st.sampled_from(get_args(PartitionState)), COUNT, COUNT)
HEARTBEAT = st.builds(
    Heartbeat,
    member=NAME,
    session=NAME,
    machine=st.text(max_size=9),
    began=COUNT,
    beat=st.integers(0, 2**63 - 1),
    follows=COUNT,
    leaving=st.booleans(),
    warms=st.booleans(),
    held=st.lists(HELD, max_size=3).map(tuple),
    code=NAME | st.just(UNSET),
    timeout_ms=st.integers(0, 2**63 - 1) | st.just(UNSET),
    since_ms=st.integers(0, 2**63 - 1) | st.just(UNSET),
)
ENDED = st.builds(EndedTask, NAME, st.integers(1, 2**31 - 1))
LEAVE = st.builds(
    Leave,
    member=NAME,
    session=NAME,
    halted=st.lists(NUMBER, max_size=3).map(tuple),
    ended=st.lists(ENDED, max_size=3).map(tuple) | st.just(UNSET),
)
PLACE = st.builds(PartitionPlace, st.text(max_size=9), st.text(max_size=9), st.lists(NAME, max_size=2).map(tuple))
HALTED = st.builds(HaltedPartition, NUMBER, NAME, NAME)
ASSIGNMENT = st.builds(
    JobAssignment,
    session=NAME,
    places=st.lists(PLACE, max_size=3).map(tuple),
    halted=st.lists(HALTED, max_size=2).map(tuple),
)


REPORT = st.builds(MemberReport, session=NAME, body=st.binary(max_size=99))


@given(HEARTBEAT | LEAVE | ASSIGNMENT | REPORT)
def test_what_is_written_is_read(message: MembersMessage) -> None:
    """Every value of the four messages comes back."""
    assert decode_members_message(encode_members_message(message)) == message


def test_a_build_without_reports_passes_over_them() -> None:
    """0.4.0 knew three messages, and takes any other for one that it cannot read; its members go on."""
    of_old = msgspec.json.Decoder(Heartbeat | Leave | JobAssignment)
    with pytest.raises(msgspec.ValidationError, match="report"):
        of_old.decode(encode_members_message(MemberReport(session="s", body=b"x")))


def test_a_report_that_no_broker_takes_is_none() -> None:
    """The largest one fits into a message of a million bytes, and a larger one is refused by who reads it."""
    largest = encode_members_message(MemberReport(session="s" * 200, body=bytes(REPORT_BYTES_MAX)))
    assert len(largest) < 1_000_000
    with pytest.raises(DecodeError):
        decode_members_message(encode_members_message(MemberReport(session="s", body=bytes(REPORT_BYTES_MAX + 1))))


def test_a_newer_version_is_said() -> None:
    """A member of a newer build is no damage: the error says what to do."""
    with pytest.raises(UnsupportedFormat, match="version 2, this build reads 1: upgrade"):
        decode_members_message(b'{"type":"beat","v":2}')


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"v":1,"type":"leave","member":"m"}'])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """Bytes of anybody's, cut, nested without end or without a field, raise DecodeError."""
    with pytest.raises(DecodeError, match=f"of {len(data)} bytes"):
        decode_members_message(data)
