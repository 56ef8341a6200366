"""Commit messages."""

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, encode_claim
from grete.protocol.commit import Commit, decode_commit, encode_commit
from grete.protocol.errors import DecodeError, UnsupportedFormat
from tests.protocol.golden import COMMIT_HEADER, LARGE, SMALL
from tests.protocol.strategies import commits


@given(commit=commits)
def test_commits_survive(commit: Commit) -> None:
    """A commit is decoded equal to what was written, in all fields."""
    header = ChangelogHeader(ChangelogType.COMMIT, commit.generation, 9, commit.attempt)
    assert commit == decode_commit(encode_commit(header, commit))


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
    for checkpoint_id in (0, 2, -1):
        other = message[:17] + checkpoint_id.to_bytes(2, "big", signed=True) + message[19:]
        with pytest.raises(UnsupportedFormat, match=f"schema version {checkpoint_id}, this build reads 1"):
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
