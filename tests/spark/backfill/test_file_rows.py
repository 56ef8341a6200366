"""The account of an archive: which offsets are in no file."""

import pytest

from grete.batch.record_order import Piece
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch
from grete.spark.backfill.account.file_rows import FileRows, OffsetHole


def piece(*offsets: int) -> Piece:
    """Return consecutive rows of an archive."""
    nothing = [None] * len(offsets)
    return Piece(
        0, 0, 0, RecordBatch(nothing, nothing, [1] * len(offsets), source=TopicPartition("a", 0), offset=offsets)
    )


@pytest.mark.parametrize(
    ("pieces", "holes"),
    [
        ([(0, 1), (2, 3)], []),
        ([(0, 1), (3, 4)], [OffsetHole(2, 3)]),  # one offset is enough
        ([(0, 2, 3)], [OffsetHole(1, 2)]),
        ([(4, 5), (9,)], [OffsetHole(0, 4), OffsetHole(6, 9)]),
    ],
)
def test_offsets_that_are_in_no_file_are_named(pieces: list[tuple[int, ...]], holes: list[OffsetHole]) -> None:
    """A file of the archive is missing: the state would lack what it had."""
    rows = FileRows("a", 0, next_offset=0)
    assert len(list(rows.watch([piece(*each) for each in pieces]))) == len(pieces)
    assert (rows.holes, rows.records) == (holes, sum(map(len, pieces)))
