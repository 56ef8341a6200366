"""The embedded log beyond the port's contract: many processes, a full disk, a damaged file, bounded files."""

import contextlib
import itertools
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from framework.errors import ConfigError, Halted, TransientError
from framework.logs.embedded import EmbeddedLog, lock, wait
from framework.logs.embedded import log as log_module
from framework.ports import ExternalRecord
from protocol.ids import TopicPartition

A0, OUT, SHARED = TopicPartition("a", 0), TopicPartition("out", 0), TopicPartition("shared", 0)
APPENDER = Path(__file__).with_name("appender.py")
KiB, MiB = 1 << 10, 1 << 20

Appender = subprocess.Popen[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a log may be made."""
    return tmp_path / "job" / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[EmbeddedLog]:
    """An empty log with the topics ``a``, ``out`` and ``shared``."""
    made = EmbeddedLog(path)
    for topic in ("a", "out", "shared"):
        made.create_topic(topic, 1)
    yield made
    made.close()


@pytest.fixture
def spawn(path: Path) -> Iterator[Callable[..., Appender]]:
    """Start appenders on the log; each is open and waits for a line when this returns."""
    with contextlib.ExitStack() as running:

        def start(mode: str, name: str = "x", count: int = 1, batch: int = 1) -> Appender:
            process = subprocess.Popen(
                [sys.executable, str(APPENDER), mode, str(path), name, str(count), str(batch)],
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


def append(log: EmbeddedLog, *values: bytes, sync: bool = False) -> None:
    """Append to A0 in one transaction."""
    for token, value in enumerate(values):
        log.send(0, token, A0, value, sync=sync)
    log.poll()


def values(log: EmbeddedLog, partition: TopicPartition = A0) -> list[bytes | None]:
    """Return all values of a partition."""
    offset, end = log.bounds(partition)
    found: list[bytes | None] = []
    while offset < end:
        rows = log.read(partition, offset, 64 * KiB)
        found += [row[4] for row in rows]
        offset = rows[-1][0] + 1
    return found


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
    assert [row[0] for row in rows] == list(range(len(rows))) == list(range(log.bounds(SHARED)[1]))
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)
    by_writer: dict[str, list[tuple[int, int]]] = {name: [] for name in writers}
    for row in rows:
        name, number = (row[4] or b"").decode().split(":")
        by_writer[name].append((int(number), row[0]))
    for written in by_writer.values():
        assert [number for number, _ in written] == list(range(len(written)))
    assert [len(by_writer[name]) for name in "bcd"] == [count] * 3
    assert len(by_writer["a"]) % batch == 0
    assert set(reported) <= {offset for _, offset in by_writer["a"]}


def test_a_kill_inside_of_a_transaction_leaves_nothing(log: EmbeddedLog, spawn: Callable[..., Appender]) -> None:
    """What was not committed is gone with its process, and the writer lock is free again."""
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


def test_a_stuck_writer_is_an_error(log: EmbeddedLog, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that does not go on is a TransientError with the lock's name; the queue stays for another poll."""
    monkeypatch.setattr(lock, "HOLD_S_MAX", 0.01)
    append(log, b"x")
    with contextlib.closing(EmbeddedLog(path)) as other:
        log.send(0, 0, A0, b"y")
        with other._transaction(sync=False), pytest.raises(TransientError, match=r"log\.db-lock: held by another"):
            log.poll()
    assert [delivery.offset for delivery in log.poll()] == [1]


@pytest.mark.parametrize("inotify", [True, False])
def test_a_wait_ends_with_another_process_commit(
    path: Path, spawn: Callable[..., Appender], monkeypatch: pytest.MonkeyPatch, *, inotify: bool
) -> None:
    """A wait wakes for each commit of another process, with the kernel's help and without; else this test hangs."""
    monkeypatch.setattr(wait, "RECHECK_S", 600.0)
    if not inotify:
        monkeypatch.setattr(wait, "_watch", lambda _: None)
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
    log._sql.set_trace_callback(statements.append)

    def levels(write: Callable[[], object]) -> list[str]:
        statements.clear()
        write()
        log.poll()
        (level,) = log._sql.execute("PRAGMA synchronous").fetchone()
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
            pages.append(log._sql.execute("PRAGMA page_count").fetchone()[0])
    assert pages[-1] <= pages[0] * 1.1


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


# --- files that are not there or not ours ---


def test_the_file_is_private(log: EmbeddedLog, path: Path) -> None:
    """The directory is made 0700, every file in it 0600."""
    append(log, b"x")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {
        f"log.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm", "-lock", "-queue")
    }


@pytest.mark.parametrize("create", [True, False])
def test_a_missing_directory_is_refused(tmp_path: Path, *, create: bool) -> None:
    """A path below a directory that is not there is a ConfigError, and nothing is made."""
    with pytest.raises(ConfigError, match="none"):
        EmbeddedLog(tmp_path / "none" / "job" / "log.db", create=create)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_log_is_refused(path: Path) -> None:
    """Without ``create`` a log that is not there is a ConfigError, and no file is left."""
    path.parent.mkdir()
    with pytest.raises(ConfigError, match="there is no such log"):
        EmbeddedLog(path, create=False)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("PRAGMA user_version=2", r"schema version 2, this build reads 1"),
        ("PRAGMA application_id=17", r"not a log of Grete \(application id 0x11"),
        ("PRAGMA application_id=0", r"not a log of Grete \(application id 0x0 .*3 tables"),
    ],
)
def test_another_format_is_refused(log: EmbeddedLog, path: Path, script: str, text: str) -> None:
    """A file of another version or program is a ConfigError that names both numbers."""
    log.close()
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute(script)
    with pytest.raises(ConfigError, match=text):
        EmbeddedLog(path)


def test_an_interrupted_making_is_completed(path: Path) -> None:
    """An empty file, as a crash right at the start leaves it, becomes a log; without ``create`` it is refused."""
    path.parent.mkdir()
    path.touch()
    with pytest.raises(ConfigError, match="not a log of Grete"):
        EmbeddedLog(path, create=False)
    with contextlib.closing(EmbeddedLog(path)) as log:
        assert log.topics() == []


def test_values_that_are_not_bytes_are_refused(log: EmbeddedLog) -> None:
    """A str is refused and nothing of the poll is stored: it would come back as something else than was sent."""
    log.send(0, 0, A0, b"good")
    log.send(0, 1, A0, "text")  # type: ignore[arg-type]  # what an untyped caller may do
    with pytest.raises(ConfigError, match="must be bytes"):
        log.poll()
    assert log.bounds(A0) == (0, 0)


def test_a_closed_log_is_not_used(log: EmbeddedLog) -> None:
    """Closing twice is fine; a use after it is an error of the program."""
    log.close()
    log.close()
    with pytest.raises(ValueError, match="used after close"):
        log.bounds(A0)


# --- a full disk ---


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB if we may mount one, else a plain directory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "false", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    yield disk
    if mounted:
        subprocess.run(["umount", str(disk)], check=True)


def append_for_ever(log: EmbeddedLog) -> None:
    """Append messages of 100 KiB, each of its own bytes, until that fails."""
    for number in itertools.count():
        append(log, bytes([number]) * 100 * KiB)


def test_a_full_disk_is_an_error_that_passes(small_disk: Path) -> None:
    """A full disk is a TransientError that names the file; with space again the same poll succeeds, nothing is lost."""
    filler = small_disk / "filler"
    with contextlib.closing(EmbeddedLog(small_disk / "log.db")) as log:
        log.create_topic("a", 1)
        if small_disk.is_mount():
            filler.write_bytes(bytes(2 * MiB))
        else:
            log._sql.execute("PRAGMA max_page_count=200")
        with pytest.raises(TransientError, match=r"log\.db: .*disk.*restart"):
            append_for_ever(log)
        stored = log.bounds(A0)[1]
        assert stored > 0
        assert values(log) == [bytes([each]) * 100 * KiB for each in range(stored)]
        filler.unlink(missing_ok=True)
        log._sql.execute("PRAGMA max_page_count=100000")
        assert [delivery.offset for delivery in log.poll()] == [stored]
        assert values(log) == [bytes([each]) * 100 * KiB for each in range(stored + 1)]


# --- damage ---


@pytest.fixture
def written(log: EmbeddedLog, path: Path) -> bytes:
    """The bytes of a closed log: 3,000 small messages in each of two topics, trimmed, and some metadata."""
    for partition in (A0, OUT):
        for number in range(3_000):
            log.send(0, number, partition, b"%06d" % number)
    log.poll()
    log.trim(A0, 1_000)
    log.produce_with_meta([], {f"key{number}": b"value" for number in range(1_000)})
    log.close()
    return path.read_bytes()


def contents(path: Path) -> object:
    """Return all that can be read from the log."""
    with contextlib.closing(EmbeddedLog(path)) as log:
        bounds = [log.bounds(partition) for partition in (A0, OUT, SHARED)]
        return log.topics(), bounds, [values(log, each) for each in (A0, OUT, SHARED)], log.meta_items("")


@pytest.mark.parametrize("damage", ["random", "ones", "zeros"])
def test_a_damaged_page_is_never_a_wrong_answer(path: Path, written: bytes, damage: str) -> None:
    """With any one page overwritten, reading halts with the file's name or gives exactly what was written."""
    expected = contents(path)
    noise = random.Random(7).randbytes(8 * KiB)
    pattern = {"random": noise, "ones": b"\xff" * 8 * KiB, "zeros": bytes(8 * KiB)}[damage]
    halts: list[str] = []
    pages = len(written) // (8 * KiB)
    for page in range(pages):
        start = page * 8 * KiB + (100 if page == 0 else 0)  # behind the header of the file
        path.write_bytes(written[:start] + pattern[: (page + 1) * 8 * KiB - start] + written[(page + 1) * 8 * KiB :])
        try:
            assert contents(path) == expected
        except Halted as error:
            halts.append(str(error))
    assert len(halts) > pages / 2
    assert all(str(path) in text and "restore the file from a copy" in text for text in halts)


@pytest.mark.parametrize("length", [8 * KiB, 60 * KiB, 100 * KiB])
def test_a_shortened_file_halts(path: Path, written: bytes, length: int) -> None:
    """A file that lost its end is found out before anything of it is believed."""
    path.write_bytes(written[:length])
    with pytest.raises(Halted, match="corrupt"):
        contents(path)


def test_a_damaged_header_halts(path: Path, written: bytes) -> None:
    """A file whose header is not SQLite's is Halted, not made anew."""
    path.write_bytes(b"\xff" * 100 + written[100:])
    with pytest.raises(Halted, match=r"log\.db: file is not a database: corrupt"):
        EmbeddedLog(path)


@pytest.mark.parametrize("lost", [1_500, 1_000, 2_999])
def test_a_missing_message_halts(path: Path, written: bytes, lost: int) -> None:
    """A hole at the start, in the middle or at the end of a partition is noticed by the read that meets it."""
    assert written
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("DELETE FROM message WHERE id = (1 << 40) + ?", (lost,))
        file.commit()
    with contextlib.closing(EmbeddedLog(path)) as log:
        assert len(log.read(OUT, 0, MiB)) == 3_000
        with pytest.raises(Halted, match=r"a\[0\]: messages are missing from offset"):
            values(log)


def test_a_lost_partition_halts(path: Path, written: bytes) -> None:
    """A partition that is known and whose row is gone is damage, for readers and for writers."""
    assert written
    with contextlib.closing(EmbeddedLog(path)) as log:
        log.bounds(A0)
        log._sql.execute("DELETE FROM partition WHERE topic = 'a'")
        log.send(0, 0, A0, b"x")
        uses: list[Callable[[], object]] = [lambda: log.bounds(A0), log.poll]
        for use in uses:
            with pytest.raises(Halted, match="partition number 1 is missing"):
                use()
