"""Records in columns: where each was read, and what is left behind those that are known."""

import pytest

from grete.protocol.record_batch import RecordBatch

BATCH = RecordBatch([b"a", b"b", b"c"], [b"1", None, b"3"], [10, 20, 30], offset=7)


def test_each_record_has_the_offset_of_its_message() -> None:
    """The records of one frame share its offset; rows of a topic have one each."""
    assert [BATCH.offset_at(index) for index in range(3)] == [7, 7, 7]
    assert [BATCH._replace(offset=[4, 5, 9]).offset_at(index) for index in range(3)] == [4, 5, 9]


@pytest.mark.parametrize("headers", [None, [b"x", None, b"z"]])
def test_known_records_are_left_out_at_the_head(headers: list[bytes | None] | None) -> None:
    """Each column loses as many, and the batch says which record of its message is its first."""
    rest = BATCH._replace(headers=headers).after(2)
    cells = None if headers is None else [b"z"]
    assert rest == RecordBatch([b"c"], [b"3"], [30], cells, offset=7, first=2)
    assert BATCH.after(3).keys == []
