"""A program's Writer: the log may be away, the program may die, and each record counts once."""

import contextlib
import logging
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from grete import Once, Topic, bytes_serde, int64, utf8
from grete.clients import Writer, drain, pipe
from grete.clients.pipe import spool_lines
from grete.clients.writer import RECORD_BYTES_MAX
from grete.errors import ConfigError, FrameworkError, LogAway, SerdeError
from grete.feeds.line_forms import LineForm
from grete.feeds.spool import Spooled
from grete.job.directory import JobDirectory
from grete.logs.embedded import EmbeddedLog
from grete.logs.patience import Patience
from grete.ports import JobLog, LogRow
from grete.protocol.frames import decode_headers
from grete.protocol.ids import TopicPartition
from tests.client.spooling import NUMBERS, counted, job

LIMIT_S = 180.0


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list of one: whether the log is away. It is looked at often."""
    now, opened = [True], JobDirectory.open_log

    def open_log(self: JobDirectory, *, patience: Patience | None = None) -> JobLog:
        if now[0]:
            raise LogAway("it is away")
        return opened(self, patience=patience)

    monkeypatch.setattr(JobDirectory, "open_log", open_log)
    monkeypatch.setattr(drain, "AGAIN_S", 0.05)
    return now


def rows_of(folder: Path) -> dict[int, list[LogRow]]:
    """Return the rows of the topic, by partition."""
    with contextlib.closing(EmbeddedLog(folder / "job" / "log.db")) as log:
        return {p: log.read(TopicPartition("numbers", p), 0, 1 << 30) for p in range(2)}


def numbers_in(rows: dict[int, list[LogRow]]) -> list[int]:
    """Return the values that a reader takes for new, in the order of their partitions; it finds no gap."""
    once = Once()
    return [
        int.from_bytes(row.value or b"")
        for partition, each in rows.items()
        for row in each
        if once.is_new("numbers", partition, decode_headers(row.headers or b""))
    ]


def test_what_is_written_arrives_in_its_order(tmp_path: Path) -> None:
    """With its key, value and time, in the partition where any producer would put it, and once."""
    with Writer(job, NUMBERS, directory=tmp_path / "job") as writer:
        for number in range(1_000):
            assert writer.send(f"k{number % 7}", number, timestamp=number)
        assert writer.flush(LIMIT_S)
        assert writer.waiting == 0
    rows = rows_of(tmp_path)
    assert sorted(row.timestamp_ms for each in rows.values() for row in each) == list(range(1_000))
    for each in rows.values():
        values = [int.from_bytes(row.value or b"") for row in each]
        assert values == sorted(values)
        assert all(row.key == b"k%d" % (value % 7) for row, value in zip(each, values, strict=True))


def test_an_outage_costs_only_disk(tmp_path: Path, away: list[bool]) -> None:
    """While the log is away ``send`` goes on; a Writer that ends leaves the rest to the next one."""
    for first in (0, 100):
        writer = Writer(job, NUMBERS, directory=tmp_path / "job")
        for number in range(first, first + 100):
            writer.send("k", number)
        assert writer.waiting == first + 100
        assert not writer.flush(0.01)
        writer.close(0)
    away[0] = False
    with Writer(job, NUMBERS, directory=tmp_path / "job") as writer:
        assert writer.flush(LIMIT_S)
    assert numbers_in(rows_of(tmp_path)) == list(range(200))


def test_a_full_spool_drops_and_counts(tmp_path: Path, away: list[bool], caplog: pytest.LogCaptureFixture) -> None:
    """The newest records go, none of those that were kept; a line in the log says how many, and no second one soon."""
    writer = Writer(job, NUMBERS, directory=tmp_path / "job", spool_bytes_max=100_000, when_full="drop")
    kept = [number for number in range(5_000) if writer.send("k", number)]
    assert 0 < len(kept) < 5_000
    assert writer.dropped == 5_000 - len(kept)
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING].count(
        "spool full"
    ) == 1
    away[0] = False
    assert writer.flush(LIMIT_S)
    assert writer.send("k", 5_000)
    writer.close()
    assert numbers_in(rows_of(tmp_path)) == [*kept, 5_000]


def test_a_full_spool_holds_up_the_program(tmp_path: Path, away: list[bool]) -> None:
    """By default ``send`` waits until the log is back: nothing is lost."""
    writer = Writer(job, NUMBERS, directory=tmp_path / "job", spool_bytes_max=100_000)
    sent = 0
    while writer.offer([Spooled(b"k", sent.to_bytes(8), 0)]):
        sent += 1
    away[0] = False
    for number in range(sent, sent + 1_000):
        assert writer.send("k", number)
    writer.close(LIMIT_S)
    assert numbers_in(rows_of(tmp_path)) == list(range(sent + 1_000))


def test_headers_come_before_the_number(tmp_path: Path) -> None:
    """A task sees those that the program gave, in their order, and then the ones by which a repeat is known."""
    with Writer(job, NUMBERS, directory=tmp_path / "job") as writer:
        writer.send("k", 1, headers=[("trace", b"x"), ("trace", None)])
        writer.flush()
    (row,) = [row for each in rows_of(tmp_path).values() for row in each]
    *given, producer, seq = decode_headers(row.headers or b"")
    assert given == [("trace", b"x"), ("trace", None)]
    assert (producer[0], seq) == ("grete.producer", ("grete.seq", b"1"))


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda w: w.send("k", "text"), SerdeError, "int64"),
        (lambda w: w.send("k", 1, timestamp=time.time()), ConfigError, "need ms since 1970 as an INT64"),
        (lambda w: w.send("k", 1, timestamp=1 << 63), ConfigError, "timestamp = 9223372036854775808: need ms"),
        (lambda w: w.offer([Spooled(b"", bytes(RECORD_BYTES_MAX + 1), 0)]), ConfigError, "at most 1000000: split it"),
    ],
)
def test_what_is_no_record_is_refused(
    tmp_path: Path, use: Callable[[Writer[str, int]], object], error: type[FrameworkError], text: str
) -> None:
    """Before anything of it is kept."""
    with Writer(job, NUMBERS, directory=tmp_path / "job") as writer:
        with pytest.raises(error, match=text):
            use(writer)
        assert writer.waiting == 0


def test_a_topic_that_is_there_keeps_its_partitions(tmp_path: Path) -> None:
    """A job's broadcast input may have more of them than the job."""
    with contextlib.closing(JobDirectory(tmp_path / "job").open_log()) as log:
        log.create_topic("numbers", 3, plain=True)
    with Writer(job, NUMBERS, directory=tmp_path / "job") as writer:
        for number in range(100):
            writer.send(f"k{number}", number)
        assert writer.flush(LIMIT_S)
    with contextlib.closing(JobDirectory(tmp_path / "job").open_log()) as log:
        assert all(log.bounds(TopicPartition("numbers", number))[1] > 0 for number in range(3))


def test_another_topic_is_refused(tmp_path: Path) -> None:
    """One that the job does not read."""
    with pytest.raises(ConfigError, match="does not read topic 'other' from outside"):
        Writer(job, Topic("other", key=utf8, value=int64), directory=tmp_path / "job")


def test_an_error_that_stays_is_told_to_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is missing, or a defect in the thread: the next call raises it, and the records are kept."""
    monkeypatch.setattr(drain, "MISSING_S", 0.1)
    monkeypatch.setattr(EmbeddedLog, "partitions", lambda *_: None)
    monkeypatch.setattr(EmbeddedLog, "create_topic", lambda *_, **__: None)
    writer = Writer(job, NUMBERS, directory=tmp_path / "job")
    writer.send("k", 1)
    with pytest.raises(ConfigError, match="topic 'numbers' is not there") as told:
        writer.flush(LIMIT_S)
    assert told.value.topic == "numbers"
    with pytest.raises(ConfigError, match="topic 'numbers' is not there"):
        writer.send("k", 2)
    with pytest.raises(ConfigError, match="topic 'numbers' is not there"):
        writer.close(0)
    monkeypatch.undo()
    with Writer(job, NUMBERS, directory=tmp_path / "job") as again:
        assert again.flush(LIMIT_S)
    assert numbers_in(rows_of(tmp_path)) == [1]


def test_other_serdes_may_write_bytes(tmp_path: Path) -> None:
    """A null key goes to the partitions in turn, a null value is a tombstone."""
    with Writer(job, Topic("numbers", key=bytes_serde, value=bytes_serde), directory=tmp_path / "job") as writer:
        for _ in range(4):
            writer.send(None, None)
        assert writer.flush(LIMIT_S)
    assert {p: [(r.key, r.value) for r in rows] for p, rows in rows_of(tmp_path).items()} == {
        0: [(None, None)] * 2,
        1: [(None, None)] * 2,
    }


def test_a_pipe_is_read_while_the_log_is_away(tmp_path: Path, away: list[bool]) -> None:
    """Lines from the pipe are in the spool; the feed ends when the log has them."""
    lines = Topic("numbers", key=utf8, value=utf8)
    reader, end = os.pipe()
    with Writer(job, lines, directory=tmp_path / "job") as writer:
        feed = spool_lines(writer, lines, reader, LineForm.KEYS)
        assert next(feed) == 0
        os.write(end, b"a\t1\na\t2\na\t")
        assert next(feed) == 2
        assert writer.waiting == 2
        os.write(end, b"3\n")
        os.close(end)
        assert [next(feed) for _ in range(3)] == [3, 3, 3]
        away[0] = False
        assert set(feed) <= {3}
        assert writer.waiting == 0
    os.close(reader)
    assert [row.value for each in rows_of(tmp_path).values() for row in each] == [b"1", b"2", b"3"]


def test_a_pipe_is_not_read_while_the_spool_is_full(
    tmp_path: Path, away: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its writer waits, and nothing is dropped. The loop of a run waits for the log, and burns no core."""
    lines, waits_s = Topic("numbers", key=utf8, value=utf8), list[float | None]()
    reader, end = os.pipe()
    with Writer(job, lines, directory=tmp_path / "job", spool_bytes_max=100_000) as writer:
        flush = writer.flush

        def flush_and_tell(timeout_s: float | None = None) -> bool:
            waits_s.append(timeout_s)
            return flush(timeout_s)

        monkeypatch.setattr(writer, "flush", flush_and_tell)
        while writer.offer([Spooled(b"k", bytes(500), 0)]):
            pass
        kept = writer.waiting
        feed = spool_lines(writer, lines, reader, LineForm.KEYS)
        os.write(end, b"k\t" + b"x" * 2_000 + b"\n")
        assert [next(feed) for _ in range(3)] == [0, 0, 0]
        assert waits_s == [pipe.WAIT_S] * 3
        assert (writer.waiting, writer.dropped) == (kept, 0)
        away[0] = False
        os.close(end)
        assert list(feed)[-1] == 1
        assert {*waits_s} == {pipe.WAIT_S}
    os.close(reader)
    rows = [row for each in rows_of(tmp_path).values() for row in each]
    assert len(rows) == kept + 1
    assert b"x" * 2_000 in {row.value for row in rows}


@pytest.mark.chaos
def test_a_program_that_is_killed_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """By SIGKILL, while it spools with the log away, and while it drains: what was kept counts once."""
    draw, kept, killed = random.Random(3), 0, 0
    for away in (True, True, False, True, False, False, False):
        (tmp_path / "away").touch() if away else (tmp_path / "away").unlink(missing_ok=True)
        last = kept + 10_000
        command = [sys.executable, "-m", "tests.client.spooling", str(tmp_path), str(kept), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            until, deadline = kept + draw.randrange(200, 3_000), time.monotonic() + LIMIT_S
            for line in program.stdout:
                assert time.monotonic() < deadline
                kept = int(line) + 1
                if kept >= until:
                    program.kill()
                    killed += 1
                    break
            more = [int(line) for line in program.stdout.read().split("\n") if line.isdigit()]
            kept = max([kept, *(number + 1 for number in more)])
    (tmp_path / "away").unlink(missing_ok=True)
    last = kept + 100
    subprocess.run(
        [sys.executable, "-m", "tests.client.spooling", str(tmp_path), str(kept), str(last)],
        check=True, capture_output=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert killed == 7
    found = Counter(counted(rows_of(tmp_path)))
    assert {number for number in range(last) if str(number) not in found} == set()
    # one that was in the spool when the program died before it said so was written by the next one, too
    assert sum(found.values()) - last <= killed
    assert set(found.values()) <= {1, 2}
