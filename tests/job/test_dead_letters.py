"""The fields of a dead letter, and the letters that were sent again."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from grete import DeadLetter, Input, Job, Record, Task, Topic, utf8
from grete.job.dead_letters import Offsets, Redrive, letter_of
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord, LogRow
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition

AT = TopicPartition("refused", 0)


def row(*headers: tuple[str, bytes]) -> LogRow:
    """Return a row of a dead-letter topic."""
    return LogRow(7, 0, 5, b"k", b"v", encode_headers(headers) if headers else None)


@given(st.lists(st.integers(0, 40)))
def test_offsets_are_a_set(offsets: list[int]) -> None:
    """In any order, repeated or not; as text they are the fewest ranges."""
    kept = Offsets()
    for offset in offsets:
        kept.add(offset)
    again = Offsets(kept.encode() or None)
    assert [n for n in range(42) if n in again] == sorted(set(offsets))
    runs = sum(n - 1 not in offsets for n in set(offsets))
    assert kept.encode().count(b",") == max(runs - 1, 0)


def test_the_records_own_headers_are_those_before_the_letters() -> None:
    """A record that was a letter itself keeps what it came with."""
    own = ("trace", b"1"), ("grete.error", b"ValueError: old"), ("grete.topic", b"elsewhere")
    letter = letter_of(
        AT, row(*own, ("grete.error", b"KeyError: 'x'"), ("grete.topic", b"orders"), ("grete.offset", b"3"))
    )
    assert letter is not None
    assert letter.headers == own
    assert letter.told == {"error": "KeyError: 'x'", "topic": "orders", "offset": "3"}
    assert (letter.topic, letter.offset, letter.key, letter.value) == ("orders", 7, b"k", b"v")


def test_a_record_of_another_writer_is_no_letter() -> None:
    """A record of another writer to the topic is left alone."""
    assert letter_of(AT, row()) is None
    assert letter_of(AT, row(("trace", b"1"))) is None


class Read(Task):
    """Puts orders aside that it cannot take."""

    orders = Input(Topic("orders", key=utf8, value=utf8), errors=DeadLetter(Topic("refused", key=utf8, value=utf8)))

    def process(self, record: Record[str, str]) -> None: ...


def test_a_record_goes_back_as_it_came(tmp_path: Path) -> None:
    """With its own headers, which may name a schema, and its time, which names its window; one without has none."""
    job, log = Job("shop", stages=[Read]), EmbeddedLog(tmp_path / "log.db")
    create_topics(job, log)
    told = ("grete.error", b"KeyError: 'x'"), ("grete.topic", b"orders"), ("grete.source", b"orders[0]")
    schema = ("schema", b"7")
    letters = [ExternalRecord(AT, b"k", b"v", 5, encode_headers(each)) for each in ((schema, *told), told)]
    log.open_metadata("another").produce_with_meta(letters, {})
    assert list(Redrive(job, log).run(lambda _: True)) == [2]
    back = log.read(TopicPartition("orders", 0), 0, 1 << 20)
    assert [(row.key, row.value, row.timestamp_ms, row.headers) for row in back] == [
        (b"k", b"v", 5, encode_headers([schema])),
        (b"k", b"v", 5, None),
    ]
    log.close()
