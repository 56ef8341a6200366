"""The line feed: each line a record, also from a pipe whose writer takes its time."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grete import Key, Serde, Topic, int64, json, utf8
from grete.errors import ConfigError
from grete.feeds.line_forms import LineForm
from grete.feeds.lines import feed_lines
from grete.feeds.numbered_file import LINE_BYTES_MAX
from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of

LINES = Topic("lines", key=utf8, value=utf8)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """Yield a log with the topic."""
    opened = EmbeddedLog(tmp_path / "log" / "log.db")
    opened.create_topic("lines", 2)
    yield opened
    opened.close()


def fed(log: EmbeddedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return (partition, key, value) of all records."""
    return [(p, row.key, row.value) for p in (0, 1) for row in log.read(TopicPartition("lines", p), 0, 1 << 30)]


def feed(log: EmbeddedLog, data: bytes, topic: Topic[Any, Any] = LINES, *, form: LineForm = LineForm.VALUES) -> int:
    """Feed bytes through a pipe that is closed; return the number of lines."""
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    try:
        return list(feed_lines(log, topic, reader, form=form))[-1]
    finally:
        os.close(reader)


def test_lines_become_records_in_turn(log: EmbeddedLog) -> None:
    """Line ends are not part of a value, the last line needs none, an empty line is a record."""
    assert feed(log, "grün\n\r\nlast".encode()) == 3
    assert fed(log) == [(0, None, b""), (1, None, "grün".encode()), (1, None, b"last")]


def test_no_lines_are_no_records(log: EmbeddedLog) -> None:
    """An empty file is fed."""
    assert feed(log, b"") == 0
    assert fed(log) == []


@pytest.mark.parametrize("form", [LineForm.KEYS, LineForm.JSON])
def test_a_key_of_several_parts_goes_where_its_first_part_belongs(log: EmbeddedLog, form: LineForm) -> None:
    """The other parts do not count, as where a task sends it."""
    serde: Serde[tuple[str, int]] = Key(utf8, int64)
    topic = Topic("lines", key=serde, value=utf8)
    keys = [(f"shop{n % 7}", n) for n in range(40)]
    texts = (f'["{shop}", {n}]' for shop, n in keys)
    lines = (f"{text}\tv" if form is LineForm.KEYS else f'{{"key": {text}, "value": "v"}}' for text in texts)
    feed(log, "\n".join(lines).encode(), topic, form=form)
    found = {serde.decode(key or b""): partition for partition, key, _ in fed(log)}
    assert found == {key: partition_of(key[0].encode(), 2) for key in keys}
    assert {*found.values()} == {0, 1}


def test_keys_stand_before_the_first_tab(log: EmbeddedLog) -> None:
    """With keys, a record goes where its key belongs; a line without a tab is refused by number."""
    feed(log, b"k\tv\tw\n", form=LineForm.KEYS)
    assert [(key, value) for _, key, value in fed(log)] == [(b"k", b"v\tw")]
    with pytest.raises(ConfigError, match="line 2 is not a record of topic 'lines': it has no tab"):
        feed(log, b"k\tv\nnone\n", form=LineForm.KEYS)


@pytest.mark.parametrize("keys", [False, True])
def test_a_byte_order_mark_is_no_part_of_the_first_line(log: EmbeddedLog, *, keys: bool) -> None:
    """Windows writes one before a text. One in the middle is of the text."""
    feed(log, b"\xef\xbb\xbfk\tv\r\n\xef\xbb\xbfk\tv", form=LineForm(keys))
    lines = [b"\t".join(filter(None, row[1:])) for row in sorted(fed(log), key=lambda row: row[2] or b"")]
    assert sorted(lines) == [b"k\tv", b"\xef\xbb\xbfk\tv"]


def test_a_slow_pipe_never_blocks(log: EmbeddedLog) -> None:
    """While a writer thinks, what is complete is fed, and the caller goes on."""
    reader, writer = os.pipe()
    lines = feed_lines(log, LINES, reader)
    assert next(lines) == 0
    os.write(writer, b"one\ntw")
    assert next(lines) == 1
    assert next(lines) == 1
    os.write(writer, b"o\n")
    os.close(writer)
    assert list(lines)[-1] == 2
    assert sorted(value or b"" for _, _, value in fed(log)) == [b"one", b"two"]
    os.close(reader)


@pytest.mark.parametrize(
    ("topic", "data", "message"),
    [
        (LINES, b"good\n\xff\n", "line 2 is not a record of topic 'lines'"),
        (Topic("lines", key=utf8, value=int64), b"12\n", "line 1 is not a record"),
        (Topic("lines", key=utf8, value=json(int)), b"1\nx\n", "line 2 is not a record"),
        (Topic("other", key=utf8, value=utf8), b"x\n", "no topic 'other'"),
    ],
)
def test_lines_that_are_no_records_are_refused(
    log: EmbeddedLog, topic: Topic[object, object], data: bytes, message: str
) -> None:
    """The error names the line and the serde."""
    with pytest.raises(ConfigError, match=message):
        feed(log, data, topic)


def test_endless_lines_are_refused(log: EmbeddedLog, tmp_path: Path) -> None:
    """A file without line ends does not fill the memory."""
    path = tmp_path / "endless"
    path.write_bytes(b"x" * (2 * LINE_BYTES_MAX))
    handle = os.open(path, os.O_RDONLY)
    with pytest.raises(ConfigError, match="line 1 is longer"):
        list(feed_lines(log, LINES, handle))
    os.close(handle)
