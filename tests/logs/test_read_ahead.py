"""Rows of a partition that were fetched for one task are kept for the process's other tasks."""

from itertools import accumulate

from grete.logs.kafka.read.read_ahead import KEPT_BYTES_MAX, ReadAhead
from grete.ports import LogRow


def ahead_of(*offsets: int, row_bytes: int = 100) -> ReadAhead:
    """Return a partition of which these rows were fetched."""
    ahead = ReadAhead(offsets[0], offsets[-1] + 1, keeps=True)
    ahead.rows = [LogRow(offset, 0, 0, None, b"%d" % offset, None) for offset in offsets]
    ahead.totals = list(accumulate(row_bytes for _ in offsets))
    return ahead


def offsets_of(rows: list[LogRow] | None) -> list[int] | None:
    """Return the offsets of rows."""
    return None if rows is None else [row.offset for row in rows]


def again(ahead: ReadAhead, offset: int) -> list[LogRow] | None:
    """Return the rows of a kept read."""
    assert ahead.kept is not None
    return ahead.kept.again(offset)


def test_a_task_that_comes_later_gets_what_it_asks_for() -> None:
    """From its offset on, also if that is the mark of a transaction; what was not read yet, or is no more, is not."""
    ahead = ahead_of(3, 4, 6, 7, 9)
    assert offsets_of(ahead.take(200)) == [3, 4]
    assert offsets_of(ahead.take(200)) == [6, 7]
    assert [offsets_of(again(ahead, offset)) for offset in (2, 3, 4, 5, 6, 7)] == [
        None,
        [3, 4],
        [4],
        [6, 7],
        [6, 7],
        [7],
    ]
    assert again(ahead, 8) is None
    assert offsets_of(ahead.take(1)) == [9]


def test_what_is_kept_is_bounded() -> None:
    """The oldest reads go: a task that is that far behind fetches for itself."""
    ahead = ahead_of(0, 1, 2, row_bytes=KEPT_BYTES_MAX // 2 + 1)
    for offset in range(3):
        assert offsets_of(ahead.take(1)) == [offset]
    assert [offsets_of(again(ahead, offset)) for offset in range(3)] == [None, None, [2]]
