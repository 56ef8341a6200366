"""Commit messages."""

import zlib
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, encode_claim
from grete.protocol.commit import (
    ChannelCommit,
    Commit,
    InputCommit,
    ProducerRollbacks,
    decode_commit,
    encode_commit,
)
from grete.protocol.errors import DecodeError, UnsupportedFormat
from grete.protocol.ids import RollbackEntry
from tests.protocol.avro_commit import encode_avro
from tests.protocol.golden_commits import COMMIT_HEADER, LARGE, SMALL, WIDE, WIDE_HEX
from tests.protocol.strategies import commits


@given(commit=commits)
def test_commits_survive(commit: Commit) -> None:
    """A commit is decoded equal to what was written, in all fields."""
    header = ChangelogHeader(ChangelogType.COMMIT, commit.generation, 9, commit.attempt)
    assert commit == decode_commit(encode_commit(header, commit))


@given(commit=commits)
def test_commits_of_releases_before_are_read(commit: Commit) -> None:
    """A commit of schema version 1 is decoded equal to what was written, in all fields."""
    header = ChangelogHeader(ChangelogType.COMMIT, commit.generation, 9, commit.attempt)
    assert commit == decode_commit(encode_avro(header, commit))


def test_what_all_channels_share_takes_no_room() -> None:
    """A commit behind 256 producers takes little more than the differences of their seqs."""
    sizes = []
    for rows in (1, 256):
        channels = tuple(ChannelCommit(100_000 + each, 2, 1_764_000_000_000, 50_000 + each, 9) for each in range(rows))
        known = tuple(ProducerRollbacks(each.producer, (RollbackEntry(2, 1),)) for each in channels)
        wide = replace(SMALL, inputs=(InputCommit("i", 0, 9, channels),), known=known)
        sizes.append(len(encode_commit(COMMIT_HEADER, wide)))
    assert sizes[1] < sizes[0] + 3 * 2 * 256


def test_columns_of_other_lengths_are_refused() -> None:
    """A table whose columns have not equally many rows is refused, and one without a first column."""
    body = encode_commit(COMMIT_HEADER, WIDE)[23:]
    for found, changed in ((b"\x94\x01\0\1\2", b"\x93\x01\0\1"), (b"\x93\0\0\1", b"\x90")):
        other = body.replace(found, changed, 1)
        message = bytes.fromhex(WIDE_HEX)[:19] + zlib.crc32(other).to_bytes(4, "big") + other
        with pytest.raises(DecodeError, match="a column of"):
            decode_commit(message)


def test_commits_are_hashable_values() -> None:
    """A commit that was read is immutable all through: it can be kept in a set."""
    assert 1 == len({LARGE, decode_commit(encode_commit(COMMIT_HEADER, LARGE))})


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"fingerprint": 2**63}, "does not fit"),
        ({"checkpoint_id": None}, "does not fit"),
        ({"cursor": "text"}, "does not fit"),
        ({"nonce": b"short"}, "does not fit"),
        ({"generation": 4}, "generation 4 under a header of generation 3"),
    ],
)
def test_unfit_commits_are_not_written(change: dict[str, Any], found: str) -> None:
    """A field of another type or size, or a generation that is not the header's, is refused by the writer."""
    with pytest.raises(ValueError, match=found):
        encode_commit(COMMIT_HEADER, replace(SMALL, **change))


def test_other_schema_checkpoints_are_refused() -> None:
    """A commit of another schema version is refused before its record is looked at."""
    message = encode_commit(COMMIT_HEADER, SMALL)
    for checkpoint_id in (0, 3, -1):
        other = message[:17] + checkpoint_id.to_bytes(2, "big", signed=True) + message[19:]
        with pytest.raises(UnsupportedFormat, match=f"schema version {checkpoint_id}, this build reads 1 and 2"):
            decode_commit(other)


def test_negative_checkpoints_are_refused() -> None:
    """A checkpoint below 0 and a negative count of data messages are refused by the reader."""
    for commit, found in (
        (replace(SMALL, checkpoint_id=-1), "checkpoint = -1"),
        (replace(SMALL, data_count=-3), "count = -3"),
    ):
        with pytest.raises(DecodeError, match=found):
            decode_commit(encode_commit(COMMIT_HEADER, commit))


def test_generations_must_agree() -> None:
    """A commit whose header gives another generation is refused: validity is judged by the header (C2)."""
    message = bytearray(encode_commit(COMMIT_HEADER, SMALL))
    message[4] = 4
    with pytest.raises(DecodeError, match="generation 3 under a header of generation 4"):
        decode_commit(bytes(message))


def test_other_messages_are_no_commits() -> None:
    """A claim is refused, and no commit is written under a claim's header."""
    header = COMMIT_HEADER._replace(type=ChangelogType.CLAIM)
    with pytest.raises(DecodeError, match="expected a COMMIT, found a CLAIM"):
        decode_commit(encode_claim(header, Claim(bytes(16), "h", 1, 1)))
    with pytest.raises(ValueError, match="a COMMIT needs a header of that type"):
        encode_commit(header, SMALL)
