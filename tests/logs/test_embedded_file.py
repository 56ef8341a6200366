"""The file of an embedded log: what is not ours, a full disk, damage."""

import contextlib
import itertools
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grete.errors import ConfigError, Halted, TransientError
from grete.logs.embedded import EmbeddedLog
from tests.logs.embedded_log import A0, OUT, SHARED, KiB, MiB, append, values


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
    with pytest.raises(ConfigError, match="not a log of Grete yet"):
        EmbeddedLog(path, create=False)
    with contextlib.closing(EmbeddedLog(path)) as log:
        assert log.topics() == []


def test_a_log_that_several_make_at_once(tmp_path: Path) -> None:
    """Each opens it: none looks at a file that is half made. A hundred files: few openings hit that moment."""
    with ThreadPoolExecutor(4) as makers:
        for number in range(100):
            path = tmp_path / f"{number}.db"
            list(makers.map(lambda path: EmbeddedLog(path).close(), [path] * 4))


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
            log.file.sql.execute("PRAGMA max_page_count=200")
        with pytest.raises(TransientError, match=r"log\.db: .*disk.*restart"):
            append_for_ever(log)
        stored = log.bounds(A0)[1]
        assert stored > 0
        assert values(log) == [bytes([each]) * 100 * KiB for each in range(stored)]
        filler.unlink(missing_ok=True)
        log.file.sql.execute("PRAGMA max_page_count=100000")
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


def test_a_flipped_bit_in_a_value_halts(path: Path, written: bytes) -> None:
    """One bit of one value, where no structure of SQLite's is hurt, is noticed by the read that meets it."""
    at = written.index(b"002345")
    path.write_bytes(written[:at] + b"1" + written[at + 1 :])
    with pytest.raises(Halted, match="has crc"):
        contents(path)


@pytest.mark.parametrize("length", [8 * KiB, 60 * KiB, 100 * KiB])
def test_a_shortened_file_halts(path: Path, written: bytes, length: int) -> None:
    """A file that lost its end is found out before anything of it is believed."""
    path.write_bytes(written[:length])
    with pytest.raises(Halted, match="corrupt"):
        contents(path)


def test_a_damaged_header_halts(path: Path, written: bytes) -> None:
    """A file whose header is not SQLite's is Halted, not made again."""
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


def test_a_lost_table_halts(path: Path, written: bytes) -> None:
    """A log without one of its tables is damage, not an error of the caller."""
    assert written
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("DROP TABLE message")
    with pytest.raises(Halted, match="no such table: message: corrupt"):
        contents(path)


def test_a_lost_partition_halts(path: Path, written: bytes) -> None:
    """A partition that is known and whose row is gone is damage, for readers and for writers."""
    assert written
    with contextlib.closing(EmbeddedLog(path)) as log:
        log.bounds(A0)
        log.file.sql.execute("DELETE FROM partition WHERE topic = 'a'")
        log.send(0, 0, A0, b"x")
        uses: list[Callable[[], object]] = [lambda: log.bounds(A0), log.poll]
        for use in uses:
            with pytest.raises(Halted, match="partition number 1 is missing"):
                use()


@pytest.mark.parametrize("left", [0, 4, 5, 6, 7])  # at 5 and 6 SQLite meets it, as a path that it cannot open
def test_without_file_handles_that_is_the_cause_that_is_told(tmp_path: Path, left: int) -> None:
    """SQLite says "unable to open database file" of that, too, as of a right that is missing."""
    code = f"""
import os, resource, sys
from pathlib import Path
from grete.errors import FrameworkError
from grete.logs.embedded import EmbeddedLog
EmbeddedLog(Path(sys.argv[1])).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    for handle in taken[:{left}]:
        os.close(handle)
try:
    EmbeddedLog(Path(sys.argv[1]))
except FrameworkError as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "log.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("TransientError ")
    assert "handles" in done.stdout
