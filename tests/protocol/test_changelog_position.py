"""The changelog position in the local store."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.changelog_position import (
    CHANGELOG_POSITION_SIZE,
    ChangelogPosition,
    decode_changelog_position,
    encode_changelog_position,
)
from grete.protocol.errors import DecodeError
from tests.protocol.strategies import naturals32, naturals64

GOOD = ChangelogPosition(1, 2, 3, bytes(16))


@given(
    changelog_position=st.builds(
        ChangelogPosition, naturals64, naturals32, naturals64, st.binary(min_size=16, max_size=16)
    )
)
def test_changelog_positions_survive(changelog_position: ChangelogPosition) -> None:
    """A changelog position is decoded as it was written (R1)."""
    assert changelog_position == decode_changelog_position(encode_changelog_position(changelog_position))


@pytest.mark.parametrize(
    "change", [{"offset": -1}, {"generation": -1}, {"checkpoint_id": -1}, {"nonce": b""}, {"generation": 2**31}]
)
def test_unfit_changelog_positions_are_not_written(change: dict[str, Any]) -> None:
    """A negative or too large field and a nonce that is not 16 bytes are refused by the writer."""
    with pytest.raises(ValueError, match=r"changelog position|ChangelogPosition"):
        encode_changelog_position(GOOD._replace(**change))


@pytest.mark.parametrize(("at", "field"), [(0, "offset"), (8, "generation"), (12, "checkpoint_id")])
def test_negative_fields_are_refused(at: int, field: str) -> None:
    """A negative field is refused by the reader, by its name."""
    data = bytearray(encode_changelog_position(GOOD))
    data[at] = 0x80
    with pytest.raises(DecodeError, match=f"changelog position: {field} = -"):
        decode_changelog_position(bytes(data))


def test_other_sizes_are_refused() -> None:
    """A changelog position of another size is of another format."""
    with pytest.raises(DecodeError, match=f"35 bytes, need {CHANGELOG_POSITION_SIZE}"):
        decode_changelog_position(bytes(35))
