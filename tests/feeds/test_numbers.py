"""Feeds number what they write: what a killed feed has written twice has the same number, and is dropped."""

import contextlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grete import BySequence, Input, Job, Once, Output, Record, Task, Topic, utf8
from grete.errors import ConfigError
from grete.execution.task_code.deduplication import with_number
from grete.feeds import numbered_file
from grete.feeds.folder import FolderFeed
from grete.feeds.line_forms import LineForm
from grete.feeds.lines import feed_lines
from grete.logs.address import open_log
from grete.logs.embedded import EmbeddedLog
from grete.ports import LogRow
from grete.protocol.frames import decode_headers
from grete.protocol.ids import TopicPartition
from grete.testing import Kit
from grete.testing.broker import Broker
from tests.feeds.split_log import Crash, SplitLog

HOUR_MS = 3_600_000
LINES = Topic("lines", key=utf8, value=utf8)
ONCE = Topic("once", key=utf8, value=utf8)

Seen = tuple[int, str, str | None]  # partition, key, value


class Pass(Task):
    """Sends on what is new."""

    lines = Input(LINES, deduplicate=BySequence.from_headers(HOUR_MS))
    once = Output(ONCE)

    def process(self, record: Record[str, str]) -> None:
        """Send it on."""
        self.once.send(record.key, record.value)


def passed(rows: Mapping[int, Sequence[LogRow]]) -> Counter[tuple[str, str | None]]:
    """Return the rows that a job lets through which drops duplicates, of rows by partition."""
    kit = Kit(Job("pass", [Pass], partitions=2))
    for partition, each in rows.items():
        for row in each:
            key, value = (None if b is None else b.decode() for b in (row.key, row.value))
            headers = decode_headers(row.headers or b"")
            kit.feed(LINES, key, value, headers=headers, partition=partition, timestamp=row.timestamp_ms)
    kit.run(crashes=2, seed=1)
    return Counter((record.key, record.value) for record in kit.outputs(ONCE))


def rows_of(log: Any, topic: str) -> dict[int, list[LogRow]]:
    """Return all rows by partition, and check that the same number is the same record."""
    rows = {}
    for number in range(2):
        partition = TopicPartition(topic, number)
        position, end = log.bounds(partition)
        rows[number] = found = list[LogRow]()
        while position < end:
            found += log.read(partition, position, 1 << 20)
            position = found[-1].offset + 1
        numbered = defaultdict[Any, set[Any]](set)
        for row in found:
            numbered[decode_headers(row.headers or b"")].add((row.key, row.value))
        assert all(len(same) == 1 for same in numbered.values())
    return rows


def make_source(kind: str, folder: Path) -> tuple[Path, set[tuple[str, str]]]:
    """Make a file of lines or a folder of files; return it and the records that are wanted of it."""
    wanted = {(f"k{number}", f"value {number}") for number in range(12)}
    source = folder / "source"
    if kind == "lines":
        source.write_text("".join(f"{key}\t{value}\n" for key, value in sorted(wanted)))
    else:
        source.mkdir()
        for key, value in wanted:
            (source / key).write_text(value)
    return source, wanted


def killed(kind: str, source: Path, url: str, path: Path, topic: str) -> int:
    """Feed in processes that are killed at each step in turn; return how many were."""
    command = [sys.executable, "-m", "tests.feeds.killed_feeds", kind, str(source), url, str(path), topic]
    return int(subprocess.run(command, check=True, capture_output=True, timeout=240, env=os.environ).stdout)


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["lines", "folder"])
def test_a_feed_that_is_killed_at_each_step_counts_once(tmp_path: Path, kind: str) -> None:
    """On the embedded log: a file's lines are written again and again, a folder's texts are not; each counts once."""
    source, wanted = make_source(kind, tmp_path)
    path = tmp_path / "log" / "log.db"
    assert killed(kind, source, "embedded", path, "lines") >= 8
    with contextlib.closing(EmbeddedLog(path)) as log:
        rows = rows_of(log, "lines")
    assert (sum(map(len, rows.values())) > len(wanted)) == (kind == "lines")
    assert passed(rows) == Counter(wanted)


@pytest.mark.kafka
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["lines", "folder"])
def test_a_feed_that_is_killed_at_each_step_counts_once_on_kafka(
    tmp_path: Path, kafka_broker: Broker, kind: str
) -> None:
    """On Kafka records and metadata go out one after the other: both feeds write twice, and each record counts once."""
    source, wanted = make_source(kind, tmp_path)
    url, topic = f"kafka://{kafka_broker.bootstrap}", f"killed-{os.urandom(4).hex()}"
    assert killed(kind, source, url, tmp_path / "unused", topic) >= 8
    with contextlib.closing(open_log(url, tmp_path / "unused")) as log:
        rows = rows_of(log, topic)
    assert sum(map(len, rows.values())) > len(wanted)
    assert passed(rows) == Counter(wanted)


# --- a file ---


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """Yield a log with the topic."""
    opened = EmbeddedLog(tmp_path / "log" / "log.db")
    opened.create_topic("lines", 2)
    yield opened
    opened.close()


def feed_file(log: EmbeddedLog, path: Path, *, keys: bool = True, between: Callable[[], object] = lambda: None) -> None:
    """Feed a file from its beginning to its end; ``between``: after the first step."""
    handle = os.open(path, os.O_RDONLY)
    try:
        for _ in feed_lines(log, LINES, handle, form=LineForm(keys), path=str(path)):
            between()
            between = bool
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("first", "then", "new"),
    [
        ("a\t1\nb\t2\n", "a\t1\nb\t2\n", []),
        ("a\t1\nb\t2", "a\t1\nb\t2\nc\t3\n", [("c", "3")]),
        ("a\t1\nb\t2\n", "a\t1\nb\t2\nc\t3", [("c", "3")]),
        ("a\t1\nb\t2\n", "a\t1\nb\tx\n", [("a", "1"), ("b", "x")]),
        ("a\t1\nb\t2\n", "a\t1\n", [("a", "1")]),
        ("a\t1\nb\t2", "a\t1\nb\t23\n", [("a", "1"), ("b", "23")]),
        ("", "a\t1\n", [("a", "1")]),
    ],
)
def test_lines_that_were_fed_before_have_their_numbers(
    log: EmbeddedLog, tmp_path: Path, first: str, then: str, new: list[tuple[str, str]]
) -> None:
    """Only the new lines of a file that has grown count; all lines count of one that was changed."""
    path = tmp_path / "lines.tsv"
    path.write_text(first)
    feed_file(log, path)
    before = passed(rows_of(log, "lines"))
    path.write_text(then)
    feed_file(log, path)
    assert passed(rows_of(log, "lines")) == before + Counter(new)


def test_a_file_that_is_read_otherwise_begins_a_session(log: EmbeddedLog, tmp_path: Path) -> None:
    """Other keys are other records; a pipe is never the same twice."""
    path = tmp_path / "lines.tsv"
    path.write_text("a\t1\n")
    feed_file(log, path)
    feed_file(log, path, keys=False)
    for _ in range(2):
        reader, writer = os.pipe()
        os.write(writer, b"a\t1\n")
        os.close(writer)
        list(feed_lines(log, LINES, reader, form=LineForm.KEYS))
        os.close(reader)
    rows = rows_of(log, "lines")
    assert len({row.headers for each in rows.values() for row in each}) == 4


def test_a_file_that_grows_while_it_is_fed_keeps_its_session(log: EmbeddedLog, tmp_path: Path) -> None:
    """Lines that arrive during a read are numbered before they are fed, also the end of an incomplete line."""
    path = tmp_path / "lines.tsv"
    path.write_text("a\t1\nb\t")

    def grow() -> None:
        with path.open("a") as file:
            file.write("2\nc\t3\n")

    feed_file(log, path, between=grow)
    feed_file(log, path)
    rows = rows_of(log, "lines")
    assert sum(map(len, rows.values())) == 6
    assert passed(rows) == Counter([("a", "1"), ("b", "2"), ("c", "3")])


def test_a_file_that_is_changed_while_it_is_fed_is_refused(log: EmbeddedLog, tmp_path: Path) -> None:
    """Its lines are not those that were numbered; the next feed takes all of them for new."""
    path = tmp_path / "lines.tsv"
    path.write_text("a\t1\n" * 100)
    with pytest.raises(ConfigError, match="was changed while it was fed"):
        feed_file(log, path, between=lambda: path.write_text("a\t2\n" * 100))
    assert log.meta_items("feed-lines/") == []
    path.write_text("a\t1\n" * 100)
    feed_file(log, path)
    once = passed(rows_of(log, "lines"))
    assert once[("a", "1")] == 100


def test_a_reader_outside_knows_the_numbers(log: EmbeddedLog, tmp_path: Path) -> None:
    """``Once`` takes what a feed has written twice for one, and finds no gap."""
    path = tmp_path / "lines.tsv"
    path.write_text("".join(f"k{number % 7}\t{number}\n" for number in range(100)))
    feed_file(log, path)
    feed_file(log, path)
    once = Once()
    new = [
        row.value
        for partition, rows in rows_of(log, "lines").items()
        for row in rows
        if once.is_new("lines", partition, decode_headers(row.headers or b""))
    ]
    assert Counter(new) == Counter(b"%d" % number for number in range(100))


# --- a folder ---


Edit = tuple[int, int]  # file, its text; 0: no such file


@settings(max_examples=300)
@given(
    rounds=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=4), st.integers(0, 20)), max_size=8
    ),
    again=st.booleans(),
)
def test_a_folder_feed_that_ends_anywhere_leaves_the_topic_right(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[list[Edit], int]], again: bool
) -> None:
    """Files change, and the feed ends between any two writes: each file's last record that is new is its text."""
    root, log = tmp_path_factory.mktemp("folder"), SplitLog()
    feed = FolderFeed(log, "lines", root)
    for edits, crash_in in [*rounds, ([], -1)]:
        for file, text in edits:
            (root / f"{file}").unlink(missing_ok=True)
            if text:
                (root / f"{file}").write_text(f"text {text}")
        if not again:  # else the same process goes on after an error
            feed = FolderFeed(log, "lines", root)
        feed.batch_files_max = 3
        log.crash_in = crash_in
        with contextlib.suppress(Crash):
            for _ in feed.scan():
                pass
    seen, last = dict[Any, Any](), dict[bytes | None, bytes | None]()
    ranges = defaultdict[str, tuple[tuple[int, int], ...]](tuple)
    for record in log.records:
        producer, seq = (value or b"" for _, value in decode_headers(record.headers or b""))
        wider = with_number(ranges[producer.decode()], int(seq))
        assert seen.setdefault((producer, seq), record[:3]) == record[:3]
        if wider is not None:
            ranges[producer.decode()] = wider
            last[record.key] = record.value
    there = {path.name.encode(): path.read_bytes() for path in root.iterdir()}
    assert {key: value for key, value in last.items() if value is not None} == there
    assert all(len(each) <= 3 for each in ranges.values())  # gaps in the last batch of a session only


def test_a_folder_feed_repeats_one_batch_with_its_numbers() -> None:
    """Each document of an unchanged folder is new once, wherever and however often a feed ends."""
    for crash_in in range(60):
        with TemporaryDirectory() as folder:
            root, log = Path(folder), SplitLog()
            for number in range(9):
                (root / f"{number}").write_text(f"text {number}")
            for crash in (crash_in, crash_in // 2, crash_in // 3, -1):
                feed = FolderFeed(log, "lines", root)
                feed.batch_files_max, log.crash_in = 4, crash
                with contextlib.suppress(Crash):
                    for _ in feed.scan():
                        pass
            once = Once()
            new = [
                r.key for r in log.records if once.is_new("", r.partition.partition, decode_headers(r.headers or b""))
            ]
            assert Counter(new) == Counter(b"%d" % number for number in range(9))


def test_an_endless_line_is_refused_without_being_kept(log: EmbeddedLog, tmp_path: Path) -> None:
    """A file without line ends is refused by its length, and not numbered as a whole in memory."""
    path = tmp_path / "endless"
    path.write_bytes(b"x" * (3 * numbered_file.LINE_BYTES_MAX))
    with pytest.raises(ConfigError, match="line 1 is longer"):
        feed_file(log, path)
