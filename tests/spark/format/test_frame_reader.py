"""The frames of a stream that count for an outside reader: the same as for the stream's tasks."""

from pathlib import Path

import pytest

from grete import utf8
from grete.errors import Halted
from grete.halts import HaltCode
from grete.logs.address import EMBEDDED
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import encode_columns
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.spark.format.columns import column
from grete.spark.format.options import LogSpec
from grete.spark.format.reader import FrameReader, Producer, StreamPlan, stream

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


def test_what_was_trimmed_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    """H022: a reader that is overtaken by the job's trims halts; the next one reads what is there, whole."""
    file = tmp_path / "log.db"
    large = b"x" * (1 << 20)  # a frame fills a read
    log = EmbeddedLog(file)
    log.create_topic(WORDS.topic, 1)
    log.produce_with_meta(
        [ExternalRecord(WORDS, None, frame(1, 1, seq, b"%d" % seq + large), 1) for seq in range(3)], {}
    )
    plan = StreamPlan(column("key", utf8), column("value", utf8), {1: Producer("split-0", 1, ())}, aligned=True)
    where = LogSpec(EMBEDDED, "", str(file))
    reading = stream(where, plan, WORDS)
    assert next(reading).column("value").to_pylist()[0].startswith("0")
    log.trim(WORDS, 2)
    while log.bounds(WORDS)[0] < 2:  # a slice with each poll
        log.poll()
    with pytest.raises(Halted, match=r"GRETE-H022.*read it again"):
        list(reading)
    assert [batch.column("value").to_pylist()[0][0] for batch in stream(where, plan, WORDS)] == ["2"]
    log.close()


def test_a_gap_in_a_stream_is_an_error() -> None:
    """Records 1 and 2 are lost: a query that went on would have a table without them."""
    producers = {1: Producer("split-0", 1, ())}
    reader = FrameReader(StreamPlan(column("key", utf8), column("value", utf8), producers, aligned=True), WORDS)
    assert reader.batch(0, frame(1, 1, 0, b"a")) is not None
    with pytest.raises(Halted, match=r"offset 1: seq 3 after 0 of split-0: records are lost") as halted:
        reader.batch(1, frame(1, 1, 3, b"d"))
    assert halted.value.code is HaltCode.STREAM_DAMAGED
