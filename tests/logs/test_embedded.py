"""The embedded log beyond the port's contract: many processes, durability, bounded files, metadata."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from grete.errors import ConfigError, LogAway
from grete.logs.embedded import EmbeddedLog, notifier, writer_queue
from grete.logs.embedded import log as log_module
from grete.ports import ExternalRecord
from tests.logs.embedded_log import A0, OUT, SHARED, KiB, MiB, append, values
from tests.support.stopping import is_free

Appender = subprocess.Popen[str]


@pytest.fixture
def spawn(path: Path) -> Iterator[Callable[..., Appender]]:
    """Start appenders on the log; each is open and waits for a line when this returns."""
    with contextlib.ExitStack() as running:

        def start(mode: str, name: str = "x", count: int = 1, batch: int = 1) -> Appender:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.logs.appender", mode, str(path), name, str(count), str(batch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
            running.enter_context(process)
            running.callback(process.kill)
            assert listen(process) == "ready"
            return process

        yield start


def tell(process: Appender) -> None:
    """Send the appender a line."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def listen(process: Appender) -> str:
    """Return the appender's next line."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- many processes ---


def test_processes_append_without_loss_when_one_is_killed(log: EmbeddedLog, spawn: Callable[..., Appender]) -> None:
    """Four writers, one killed: offsets contiguous, each one's messages a prefix of whole polls, no survivor stuck."""
    count, batch = 1_200, 8
    writers = {name: spawn("stream", name, 10**9 if name == "a" else count, batch) for name in "abcd"}
    for writer in writers.values():
        tell(writer)
    victim = writers["a"]
    reported = [int(listen(victim)) for _ in range(20)]
    victim.kill()
    reported += [int(line) for line in (victim.stdout or []) if line.endswith("\n")]
    assert [writer.wait() for writer in writers.values()] == [-9, 0, 0, 0]

    rows = log.read(SHARED, 0, 64 * MiB)
    assert [row.offset for row in rows] == list(range(len(rows))) == list(range(log.bounds(SHARED)[1]))
    assert [row.append_time_ms for row in rows] == sorted(row.append_time_ms for row in rows)
    by_writer: dict[str, list[tuple[int, int]]] = {name: [] for name in writers}
    for row in rows:
        name, number = (row.value or b"").decode().split(":")
        by_writer[name].append((int(number), row.offset))
    for written in by_writer.values():
        assert [number for number, _ in written] == list(range(len(written)))
    assert [len(by_writer[name]) for name in "bcd"] == [count] * 3
    assert len(by_writer["a"]) % batch == 0
    assert set(reported) <= {offset for _, offset in by_writer["a"]}


def test_a_kill_inside_of_a_transaction_leaves_nothing(log: EmbeddedLog, spawn: Callable[..., Appender]) -> None:
    """An uncommitted transaction is gone with its process, and the writer lock is free again."""
    writer = spawn("hang", batch=500)
    assert listen(writer) == "inside"
    assert log.bounds(SHARED) == (0, 0)
    writer.kill()
    writer.wait()
    log.send(0, 0, SHARED, b"next")
    assert [delivery.offset for delivery in log.poll()] == [0]
    assert values(log, SHARED) == [b"next"]


def test_processes_make_one_log(path: Path, spawn: Callable[..., Appender]) -> None:
    """Processes that start together on no file make one log and one topic."""
    writers = [spawn("stream", name, 10, 10) for name in "abc"]
    for writer in writers:
        tell(writer)
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    with contextlib.closing(EmbeddedLog(path, create=False)) as log:
        assert (log.topics(), log.bounds(SHARED)) == (["shared"], (0, 30))


@pytest.mark.timeout(20)  # else it waits for the writer
def test_a_stuck_writer_is_an_error(log: EmbeddedLog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that does not go on is an error with the lock's name and its pid; the queue stays for another poll."""
    monkeypatch.setattr(writer_queue, "HOLD_S_MAX", 0.01)
    append(log, b"x")
    with contextlib.closing(EmbeddedLog(path)) as other:
        log.send(0, 0, A0, b"y")
        with (
            other._transaction(sync=False),
            pytest.raises(LogAway, match=rf"log\.db-lock: .* process {os.getpid()} \(.*\) holds it"),
        ):
            log.poll()
    assert [delivery.offset for delivery in log.poll()] == [1]


@pytest.mark.usefixtures("started_by_exec")  # its parent waits until it is stopped
def test_a_process_that_is_stopped_while_it_is_next_holds_up_none(
    log: EmbeddedLog, path: Path, spawn: Callable[..., Appender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the queue: the others get an error that names it and the way, and write when it goes on."""
    monkeypatch.setattr(writer_queue, "HOLD_S_MAX", 0.05)
    with log._transaction(sync=False):
        stopped = spawn("next")
        while is_free(path.with_name("log.db-queue")):
            pass
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
    log.send(0, 0, SHARED, b"mine")
    way = rf"log\.db-queue: held .* process {stopped.pid} \(.*\) is stopped: continue it \(kill -CONT {stopped.pid}\)"
    with pytest.raises(LogAway, match=way):
        log.poll()
    stopped.send_signal(signal.SIGCONT)
    assert int(listen(stopped)) == 0
    assert [delivery.offset for delivery in log.poll()] == [1]


@pytest.mark.parametrize("inotify", [True, False])
def test_a_wait_ends_with_another_process_commit(
    path: Path, spawn: Callable[..., Appender], monkeypatch: pytest.MonkeyPatch, *, inotify: bool
) -> None:
    """A wait wakes for each commit of another process, with the kernel's help and without; else this test hangs."""
    monkeypatch.setattr(notifier, "RECHECK_S", 600.0)
    if not inotify:
        monkeypatch.setattr(notifier, "_watch", lambda _: None)
    with contextlib.closing(EmbeddedLog(path)) as log:
        log.create_topic("shared", 1)
        other = spawn("answer")
        for number in range(30):
            tell(other)
            while not log.read(SHARED, number, 1):
                log.wait(600_000)
            assert int(listen(other)) == number


def test_a_wait_sees_what_came_before_it(log: EmbeddedLog, path: Path) -> None:
    """A commit between a read and the wait is not slept through; own commits and queued sends count too."""
    with contextlib.closing(EmbeddedLog(path)) as other:
        happenings: list[Callable[[], None]] = [
            lambda: append(other, b"x"),
            lambda: append(log, b"y"),
            lambda: log.send(0, 0, A0, b"z"),
        ]
        for happen in happenings:
            log.read(A0, log.bounds(A0)[1], 1)
            log.wait(0)
            happen()
            log.wait(600_000)


def test_a_forked_child_is_refused(log: EmbeddedLog) -> None:
    """After a fork the child may not use the parent's log: it would share the parent's locks."""
    child = os.fork()
    if child == 0:
        try:
            log.bounds(A0)
        except ConfigError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# --- durability and bounded files ---


def test_sync_is_per_transaction(log: EmbeddedLog) -> None:
    """A poll with a sync send or plain records commits with synchronous=FULL, others with NORMAL."""
    statements: list[str] = []
    log.file.sql.set_trace_callback(statements.append)

    def levels(write: Callable[[], object]) -> list[str]:
        statements.clear()
        write()
        log.poll()
        (level,) = log.file.sql.execute("PRAGMA synchronous").fetchone()
        begin = statements.index("BEGIN IMMEDIATE")
        assert not any("synchronous=" in statement for statement in statements[begin:])
        return ["OFF", "NORMAL", "FULL"][level : level + 1]

    def mixed() -> None:
        log.send(0, 0, A0, b"x", sync=True)
        log.send(0, 1, A0, b"y")

    assert levels(lambda: log.send(0, 0, A0, b"x")) == ["NORMAL"]
    assert levels(mixed) == ["FULL"]
    assert levels(lambda: log.send(0, 0, A0, b"x")) == ["NORMAL"]
    assert levels(lambda: log.produce(0, 0, [ExternalRecord(OUT, None, b"x", 0)])) == ["FULL"]
    assert levels(lambda: log.produce_with_meta([], {"k": b"v"})) == ["NORMAL"]
    assert levels(lambda: log.produce_with_meta([], {"k": b"v"}, sync=True)) == ["FULL"]


def test_the_file_does_not_grow_when_trimmed(log: EmbeddedLog) -> None:
    """Appending and trimming for ever keeps the size of the file: pages are used again."""
    pages = []
    for each in range(40):
        append(log, *[bytes(20 * KiB)] * 10, *[b"small"] * 200)
        log.trim(A0, log.bounds(A0)[1] - 210)
        if each >= 5:
            pages.append(log.file.sql.execute("PRAGMA page_count").fetchone()[0])
    assert pages[-1] <= pages[0] * 1.1


@pytest.mark.parametrize(("count", "size", "most"), [(5_000, 1, 1_000), (30, MiB, 4)])
def test_a_large_trim_goes_in_slices(log: EmbeddedLog, path: Path, count: int, size: int, most: int) -> None:
    """One slice at once and one with each poll, by rows and by bytes (A8); a close leaves the rest to the next trim."""
    for _ in range(count // 10):
        append(log, *[bytes(size)] * 10)
    before = count - 5
    log.trim(A0, before)
    starts = [0, log.bounds(A0)[0]]
    while starts[-1] < before:
        log.wait(60_000)  # there is something to do: it returns at once
        log.poll()
        starts.append(log.bounds(A0)[0])
        if len(starts) == 4:
            log.close()
            log = EmbeddedLog(path)
            assert log.bounds(A0) == (starts[-1], count)
            assert log.read(A0, starts[-1], 1)[0].offset == starts[-1]
            log.trim(A0, before)
            starts.append(log.bounds(A0)[0])
    assert {after - start for start, after in pairwise(starts[:-1])} == {most}
    assert [row.offset for row in log.read(A0, before, 64 * MiB)] == list(range(before, count))
    log.close()


def test_the_wal_is_bounded(log: EmbeddedLog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader stopped in the middle lets the WAL grow but stops no writer; when it is gone the WAL is cut down."""
    monkeypatch.setattr(log_module, "WAL_BYTES_MAX", MiB)
    monkeypatch.setattr(log_module, "CHECKPOINT_BYTES", 256 * KiB)
    wal = path.with_name("log.db-wal")
    append(log, b"x", b"y")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM message").fetchone()
    for _ in range(40):
        append(log, bytes(100 * KiB))
    assert wal.stat().st_size > 4 * MiB
    reader.close()
    for _ in range(40):
        append(log, bytes(100 * KiB))
        assert len(values(log)) > 40
    assert wal.stat().st_size < 2 * MiB


# --- metadata ---


def test_records_and_metadata_are_one_write(log: EmbeddedLog, path: Path) -> None:
    """A failing append leaves the metadata as it was; a good one changes both, and others see it."""
    record = ExternalRecord(OUT, b"k", b"v", 1)
    assert log.produce_with_meta([record, record], {"file/a": b"1", "file/b": b"2", "g": b"3"}) == 1
    with pytest.raises(ConfigError, match="timestamps integers of 64 bits"):
        log.produce_with_meta([record, record._replace(timestamp_ms=1 << 63)], {"file/a": b"9"})
    assert log.produce_with_meta([], {"file/a": None, "file/c": b""}) == -1
    with contextlib.closing(EmbeddedLog(path)) as other:
        assert (other.meta_get("file/a"), other.meta_get("file/b")) == (None, b"2")
        assert other.meta_items("file/") == [("file/b", b"2"), ("file/c", b"")]
        assert len(values(other, OUT)) == 2


def test_a_large_manifest_passes(log: EmbeddedLog) -> None:
    """50,000 entries go in one transaction and come back in key order."""
    manifest: dict[str, bytes | None] = {f"file/{number:06}": b"%d" % number for number in range(50_000)}
    log.produce_with_meta([], manifest)
    assert dict(log.meta_items("file/")) == manifest


def test_a_process_that_gave_up_holds_up_no_other(
    log: EmbeddedLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was next when it gave up: it leaves the queue, or no process could write once the stopped writer goes on."""
    monkeypatch.setattr(writer_queue, "HOLD_S_MAX", 0.05)
    append(log, b"x")
    stuck, given_up, next_one = (writer_queue.WriterLock(path) for _ in range(3))
    with stuck, pytest.raises(LogAway, match="held by another process"):
        given_up.__enter__()
    with next_one:
        pass
    for each in (stuck, given_up, next_one):
        each.close()
