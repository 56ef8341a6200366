"""The reader for consumers outside: repeats are dropped, gaps are said."""

import pytest

from grete import Once


def headers(producer: int, seq: int) -> list[tuple[str, bytes]]:
    """Return the headers of a record as a deterministic job writes them."""
    return [
        ("theirs", b"x"),
        ("grete.producer", b"job/stage-%d" % producer),
        ("grete.seq", b"%d" % seq),
        ("grete.t", b"5"),
    ]


def test_a_record_is_new_once() -> None:
    """D5: a repeat has a seq that is not above the last one of its producer in its partition."""
    once = Once()
    assert [once.is_new("out", 0, headers(1, seq)) for seq in (1, 2, 1, 2, 3)] == [True, True, False, False, True]
    assert once.is_new("out", 1, headers(1, 1))
    assert once.is_new("out", 0, headers(2, 1))


def test_the_reader_goes_on_from_what_it_had_seen() -> None:
    """What was kept with the consumer's results is enough to go on."""
    once = Once()
    once.is_new("out", 0, headers(1, 1))
    again = Once(once.seen)
    assert not again.is_new("out", 0, headers(1, 1))
    assert again.is_new("out", 0, headers(1, 2))


def test_a_gap_and_a_foreign_record_are_said() -> None:
    """A lost record is not passed over in silence."""
    once = Once()
    once.is_new("out", 0, headers(1, 4))
    with pytest.raises(ValueError, match=r"out\[0\]: seq 6 of producer job/stage-1 after 4"):
        once.is_new("out", 0, headers(1, 6))
    with pytest.raises(ValueError, match="without header"):
        once.is_new("out", 0, None)
