"""Samples of the keys that tasks process."""

from grete.execution.records.key_samples import LEAST, TOP, KeySamples
from grete.execution.records.reading import Reading


def test_a_batch_tells_where_it_is() -> None:
    """Before its first record, and behind its last one, no record is processed."""
    reading, keys = Reading(), [b"a", b"b", None]
    assert reading.at_work is None
    reading.begin(taken := iter(keys))
    assert reading.at_work is None
    for index in range(3):
        next(taken)
        assert reading.at_work == (keys, index)
    assert next(taken, "over") == "over"
    assert reading.at_work is None


def test_keys_are_told_apart_by_time_and_by_count() -> None:
    """Of few samples nothing is said; a key that is no text is shown by its bytes."""
    samples = KeySamples()
    for _ in range(LEAST - 1):
        samples.take("add-up-0", [b"ann"], 0)
        samples.take("few-0", [b"ann"], 0)
    assert samples.hottest() == ()
    samples = KeySamples()
    often = [b"ann", *[b"\xff"] * 10_000]
    for _ in range(LEAST):
        samples.take("add-up-0", often, 0)
    (hot,) = samples.hottest()
    assert (hot.task, hot.by_time) == ("add-up-0", (("ann", 1.0),))
    assert hot.by_count[0][0] == "0xff"
    samples = KeySamples()
    for number in range(2 * LEAST):
        samples.take("add-up-0", [None if number % 2 else b"%d" % number], 0)
    (hot,) = samples.hottest()
    assert hot.by_time[0] == ("(no key)", 0.5)
    assert len(hot.by_time) == len(hot.by_count) == TOP
