"""Which frames of a stream a reader outside counts, as the tasks behind it do."""

import pytest

from grete import utf8
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import encode_columns
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.spark.format.columns import column
from grete.spark.format.reader import FrameReader, Producer, StreamPlan

pytestmark = pytest.mark.spark  # the module needs what comes with it

WORDS = TopicPartition("words", 0)


def frame(generation: int, checkpoint_id: int, seq: int, word: bytes) -> bytes:
    """Return a frame of producer 1 with one record."""
    header = encode_header(Header(MessageType.FRAME, 1, generation, checkpoint_id, seq))
    return header + encode_columns([word], [word], [1_000], None)


def test_what_a_producer_has_taken_back_is_not_read() -> None:
    """Generation 2 went back to checkpoint 1 and made checkpoint 2 again: of 1 it is committed, of the dead one not."""
    producers = {1: Producer("split-0", 2, (RollbackEntry(2, 1),))}
    reader = FrameReader(StreamPlan(column("key", utf8), column("value", utf8), producers, aligned=True), WORDS)
    frames = [
        frame(1, 1, 0, b"committed"),
        frame(1, 2, 1, b"taken back"),
        frame(2, 2, 1, b"made again"),
        frame(2, 3, 2, b"not committed"),
    ]
    batches = [reader.batch(offset, each) for offset, each in enumerate(frames)]
    assert [None if each is None else each.column("value").to_pylist() for each in batches] == [
        ["committed"],
        None,
        ["made again"],
        None,
    ]
