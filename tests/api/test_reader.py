"""The reader for consumers outside: repeats are dropped, gaps are said."""

import pytest

from grete import Once
from grete.api.topics.reader import Origin, origin_of


def headers(producer: int, seq: int) -> list[tuple[str, bytes]]:
    """Return the headers of a record as a deterministic job writes them: of odd seq as release 0.1 did."""
    if seq % 2 == 0:
        return [("theirs", b"x"), ("grete", b"%d 5 job/stage-%d" % (seq, producer))]
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
    """A reader continues from the state that was kept with the consumer's results."""
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


def test_the_last_headers_tell_where_a_record_comes_from() -> None:
    """A job that hands on the headers of another one puts its own behind them, in whichever format either writes."""
    for seq in (1, 2):
        assert origin_of(headers(3, seq + 1) + headers(4, seq)) == Origin("job/stage-4", seq, 5)
    spaced = [("grete", b"7 5 a job/stage 0-1")]
    assert origin_of(spaced) == Origin("a job/stage 0-1", 7, 5)
    assert origin_of([("grete.producer", b"s-0"), ("grete.seq", b"2")]) == Origin("s-0", 2, -1)
    for foreign in (b"", b"1 2", b"x 2 y", b"1 x y"):
        assert origin_of([("grete", foreign)]) is None
    strange = [("grete.producer", b"\xff"), ("grete.seq", b"x"), ("grete.t", b"")]
    assert origin_of(strange) is None
    assert origin_of([*strange, ("grete.producer", b"s-0"), ("grete.seq", b"2")]) == Origin("s-0", 2, -1)
