"""The order in which a task takes a recorded history."""

from collections import defaultdict
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from grete.batch.record_order import Piece, merged, pieces_of_rows
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition

channels = st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=4)


@given(channels, st.integers(1, 400), st.randoms(use_true_random=False))
def test_channels_merge_by_the_time_that_they_have_reached(
    times: list[list[int]], bytes_max: int, shuffled: Random
) -> None:
    """Each channel comes whole and in order; the time that channels have reached never falls from one to another.

    The pieces come to the sort in any order, as blocks of several machines do.
    """
    pieces = [
        piece
        for channel, stamps in enumerate(times)
        for piece in pieces_of_rows(
            TopicPartition("t", channel),
            channel,
            [LogRow(offset, 0, at, None, b"v", None) for offset, at in enumerate(stamps)],
            bytes_max,
        )
    ]
    shuffled.shuffle(pieces)
    found: dict[int, list[int]] = defaultdict(list)
    order: list[tuple[int, int]] = []
    for piece in merged(sorted(pieces, key=lambda piece: piece[:3]), len(times)):
        channel = piece.batch.source.partition
        for index, at in enumerate(piece.batch.timestamps):
            assert piece.batch.offset_at(index) == len(found[channel])
            found[channel].append(at)
            order.append((max(found[channel]), channel))
    assert [found[channel] for channel in range(len(times))] == times
    assert len(times) == 1 or order == sorted(order)


def test_a_refused_row_goes_through() -> None:
    """A row that is no record keeps its reason through the merge."""
    (piece,) = pieces_of_rows(TopicPartition("t", 0), 0, [LogRow(0, 0, 5, None, b"?", None)])
    other = piece._replace(channel=1, start=6)
    refused: list[Piece] = [piece._replace(refused="no timestamp"), other]
    assert [each.refused for each in merged(refused, 2)] == ["no timestamp", None]
