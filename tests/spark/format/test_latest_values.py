"""The state out of data messages, column by column, is the one that a restore gives."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete.core.changelog.changelog_fold import Segment
from grete.protocol.changelog import ChangelogHeader, ChangelogType, encode_data
from grete.spark.format import latest_values
from grete.spark.format.latest_values import NewestEntries
from grete.state.read.checkpoints.snapshots import contents, live
from tests.core.test_changelog_fold import BASE

ROWS = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.binary(max_size=2), st.none() | st.binary(max_size=3)), max_size=12
)
MESSAGES = st.lists(st.tuples(ROWS, st.none() | st.sets(st.sampled_from([1, 2]))), max_size=6)


@settings(max_examples=200)
@given(written=st.lists(MESSAGES, max_size=4), tidy=st.integers(1, 20))
def test_columns_are_what_a_restore_gives(
    written: list[list[tuple[list[tuple[int, bytes, bytes | None]], set[int] | None]]], tidy: int
) -> None:
    """Overwritten, deleted and reset entries are gone; each says which commit wrote it, however often it is tidied."""
    segments = []
    for number, messages in enumerate(written):
        encoded = []
        for rows, reset in messages:
            stores, keys, values = zip(*rows, strict=True) if rows else ((), (), ())
            header = ChangelogHeader(ChangelogType.DATA, 1, 1, 0)
            encoded.append(encode_data(header, stores, keys, values, None if reset is None else sorted(reset)))
        segments.append(Segment(BASE, number, tuple(encoded)))
    expected = contents(segments, frozenset({1}))[1]
    newest = NewestEntries(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(latest_values, "_TIDY_ROWS", tidy)
        newest.feed(segments)
        found = zip(*(column.to_pylist() for column in newest.columns()), strict=True)
    assert sorted(found) == sorted(zip(*live(expected), strict=True))
