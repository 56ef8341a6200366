"""The folder feed: each change once, whatever the folder holds and whatever crashes."""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.errors import ConfigError, TransientError
from grete.feeds.folder import BINARY, DAMAGED, HUGE, FolderFeed, ScanReport
from grete.feeds.listing import LINK, SPECIAL, UNREADABLE, VANISHED, name_of
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of

PARTITIONS = 3
LATER_NS = 10**10  # far enough from a file's time stamp for it to be trusted
OTHER_USER = 65534


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """Yield a log with the topic."""
    opened = EmbeddedLog(tmp_path / "log" / "log.db")
    opened.create_topic("documents", PARTITIONS)
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with two documents."""
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("alpha")
    (folder / "sub" / "b.txt").write_text("beta")
    return folder


def feed_of(log: EmbeddedLog, root: Path, *, after_ns: int = LATER_NS, **options: Any) -> FolderFeed:
    """Return a feed whose clock is stopped, so late that no file counts as just changed."""
    now_ns = max(p.lstat().st_mtime_ns for p in [root, *root.rglob("*")]) + after_ns
    return FolderFeed(log, "documents", root, clock_ns=lambda: now_ns, **options)


def scanned(feed: FolderFeed) -> ScanReport:
    """Scan to the end."""
    for _ in feed.scan():
        pass
    return feed.report


def fed(log: EmbeddedLog) -> list[tuple[str, bytes | None]]:
    """Return (name, text) of all records, partition by partition."""
    partitions = (TopicPartition("documents", number) for number in range(PARTITIONS))
    return [((row.key or b"").decode(), row.value) for p in partitions for row in log.read(p, 0, 1 << 30)]


def counts(report: ScanReport) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in report.counts.items() if count}


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Give up the superuser's right to read everything."""
    superuser = os.geteuid() == 0
    if superuser:
        os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        if superuser:
            os.seteuid(0)


def test_documents_are_fed_by_relative_name_into_the_partition_of_the_name(log: EmbeddedLog, root: Path) -> None:
    """Key, value and partition are those that any Kafka producer would give them."""
    assert counts(scanned(feed_of(log, root))) == {"new": 2}
    assert sorted(fed(log)) == [("a.txt", b"alpha"), ("sub/b.txt", b"beta")]
    for name in ("a.txt", "sub/b.txt"):
        partition = TopicPartition("documents", partition_of(name.encode(), PARTITIONS))
        assert name.encode() in [row.key for row in log.read(partition, 0, 1 << 20)]


def test_a_byte_order_mark_is_no_part_of_a_document(log: EmbeddedLog, root: Path) -> None:
    """A program on Windows writes one before the text."""
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfalpha")
    scanned(feed_of(log, root))
    assert ("a.txt", b"alpha") in fed(log)


def test_an_unchanged_folder_feeds_nothing_again(log: EmbeddedLog, root: Path) -> None:
    """A second run, in another process, appends no record."""
    scanned(feed_of(log, root))
    before = fed(log)
    report = scanned(feed_of(log, root))
    assert (counts(report), report.fed, report.planned) == ({"unchanged": 2}, 0, 0)
    assert fed(log) == before


def test_only_what_differs_is_fed(log: EmbeddedLog, root: Path) -> None:
    """A changed file gives its new text, a deleted one a tombstone, a touched one nothing; the rest is not read."""
    (root / "c.txt").write_text("gamma")
    scanned(feed_of(log, root))
    (root / "a.txt").write_text("alpha, changed")
    (root / "sub" / "b.txt").unlink()
    os.utime(root / "c.txt", ns=(1, 1))
    report = scanned(feed_of(log, root))
    assert counts(report) == {"changed": 1, "deleted": 1, "touched": 1}
    assert Counter(fed(log)) == Counter(
        [
            ("a.txt", b"alpha"),
            ("c.txt", b"gamma"),
            ("sub/b.txt", b"beta"),
            ("a.txt", b"alpha, changed"),
            ("sub/b.txt", None),
        ]
    )
    assert counts(scanned(feed_of(log, root))) == {"unchanged": 2}


def test_a_crash_between_batches_loses_and_repeats_nothing(log: EmbeddedLog, root: Path) -> None:
    """Documents and manifest are one transaction: the next process goes on after the last batch (A2)."""
    for number in range(50):
        (root / f"{number}.txt").write_text(f"text {number}")
    feed = feed_of(log, root)
    feed.batch_files_max = 7
    scan = feed.scan()
    for _ in range(4):
        next(scan)
    assert len(fed(log)) == 21
    scanned(feed_of(log, root))
    assert Counter(name for name, _ in fed(log)).most_common(1)[0][1] == 1
    assert len(fed(log)) == 52


def test_what_could_not_be_written_is_fed_by_the_next_scan(log: EmbeddedLog, root: Path) -> None:
    """A full disk leaves the manifest as it was, here and in the log."""

    class FullOnce(EmbeddedLog):
        full = True

        def produce_with_meta(
            self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
        ) -> int:
            if records and self.full:
                self.full = False
                raise TransientError("disk full")
            return super().produce_with_meta(records, meta, sync=sync)

    other = FullOnce(log.path)
    feed = feed_of(other, root)
    with pytest.raises(TransientError):
        scanned(feed)
    assert fed(log) == []
    assert counts(scanned(feed)) == {"new": 2}
    assert len(fed(log)) == 2
    other.close()


def test_a_change_that_keeps_size_and_time_stamp_is_noticed(log: EmbeddedLog, root: Path) -> None:
    """A file that was read within the time stamp's grain is read again, like an index entry of git."""
    scanned(feed_of(log, root, after_ns=1000))
    status = (root / "a.txt").stat()
    (root / "a.txt").write_text("ALPHA")
    os.utime(root / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert counts(scanned(feed_of(log, root))) == {"changed": 1, "touched": 1}
    assert ("a.txt", b"ALPHA") in fed(log)


def test_what_is_no_text_is_skipped_and_counted(log: EmbeddedLog, root: Path) -> None:
    """Binary and huge files are not fed; bytes that are not UTF-8 are replaced; all are shown, at each scan."""
    (root / "binary").write_bytes(b"\x7fELF\0\0")
    (root / "huge").write_bytes(b"x" * 2000)
    (root / "latin-1").write_bytes(b"caf\xe9")
    for expected in ({"new": 3}, {"unchanged": 5}):
        report = scanned(feed_of(log, root, file_bytes_max=1000))
        assert counts(report) == expected
        assert report.skipped == {BINARY: 1, HUGE: 1, DAMAGED: 1}
    assert ("latin-1", "caf\ufffd".encode()) in fed(log)


def test_a_document_that_becomes_binary_is_taken_out(log: EmbeddedLog, root: Path) -> None:
    """Its old text must not be found any more."""
    scanned(feed_of(log, root))
    (root / "a.txt").write_bytes(b"\0" * 9)
    assert counts(scanned(feed_of(log, root))) == {"deleted": 1, "unchanged": 1}
    assert fed(log).count(("a.txt", None)) == 1
    assert counts(scanned(feed_of(log, root))) == {"unchanged": 2}


def test_links_and_special_files_are_never_opened(log: EmbeddedLog, root: Path) -> None:
    """A fifo without a writer does not hang the feed, and a link leads neither out nor in circles."""
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to(root)
    (root / "outside").symlink_to("/etc/passwd")
    (root / "sub" / "nowhere").symlink_to("gone")
    report = scanned(feed_of(log, root))
    assert (counts(report), report.skipped) == ({"new": 2}, {LINK: 3, SPECIAL: 1})


def test_caches_jobs_and_foreign_packages_are_left_out(log: EmbeddedLog, root: Path) -> None:
    """The job's own directory is no document, or the job would feed on its logs forever."""
    for name in ("__pycache__", ".git", ".grete", "site-packages", "of-the-job"):
        (root / "sub" / name).mkdir()
        (root / "sub" / name / "x.txt").write_text("x")
    assert counts(scanned(feed_of(log, root, exclude=root / "sub" / "of-the-job"))) == {"new": 2}


def test_a_file_that_vanishes_while_it_is_read_is_counted(log: EmbeddedLog, root: Path) -> None:
    """Between listing and reading, files go away, and become something else."""
    scanned(feed_of(log, root))
    (root / "a.txt").write_text("changed")
    (root / "new.txt").write_text("changed")
    (root / "sub" / "b.txt").write_text("changed")
    feed = feed_of(log, root)
    scan = feed.scan()
    next(scan)
    (root / "a.txt").unlink()
    (root / "new.txt").unlink()
    (root / "sub" / "b.txt").unlink()
    os.mkfifo(root / "sub" / "b.txt")
    for _ in scan:
        pass
    assert feed.report.skipped == {VANISHED: 2, SPECIAL: 1}
    assert sorted(name for name, text in fed(log) if text is None) == ["a.txt", "sub/b.txt"]


def test_what_cannot_be_read_stays_as_it_was() -> None:
    """Unreadable files and folders are counted; documents that were fed from there are not deleted."""
    scratch = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    try:
        scratch.chmod(0o755)
        folder = scratch / "folder"
        (folder / "sub").mkdir(parents=True)
        (folder / "a.txt").write_text("alpha")
        (folder / "sub" / "b.txt").write_text("beta")
        log = EmbeddedLog(scratch / "log" / "log.db")
        log.create_topic("documents", PARTITIONS)
        scanned(feed_of(log, folder))
        feed = feed_of(log, folder)
        (folder / "a.txt").write_text("changed")
        (folder / "a.txt").chmod(0)
        (folder / "sub").chmod(0)
        with ordinary_user():
            report = scanned(feed)
        (folder / "sub").chmod(0o755)
        assert (counts(report), report.skipped) == ({}, {UNREADABLE: 2})
        assert sorted(fed(log)) == [("a.txt", b"alpha"), ("sub/b.txt", b"beta")]
        log.close()
    finally:
        shutil.rmtree(scratch)


def test_a_folder_that_is_gone_deletes_nothing(log: EmbeddedLog, root: Path) -> None:
    """An unmounted disk is not an empty folder."""
    feed = feed_of(log, root)
    scanned(feed)
    root.rename(root.with_name("elsewhere"))
    with pytest.raises(ConfigError, match="nothing was fed or deleted"):
        scanned(feed)
    assert len(fed(log)) == 2


def test_bad_folders_are_refused(log: EmbeddedLog, root: Path, tmp_path: Path) -> None:
    """No folder, a file, an unknown topic, or another folder than last time: one clear error each."""
    with pytest.raises(ConfigError, match="no folder"):
        FolderFeed(log, "documents", tmp_path / "missing")
    with pytest.raises(ConfigError, match="is a file"):
        FolderFeed(log, "documents", root / "a.txt")
    with pytest.raises(ConfigError, match="no topic"):
        FolderFeed(log, "letters", root)
    FolderFeed(log, "documents", root)
    with pytest.raises(ConfigError, match="choose another --directory"):
        FolderFeed(log, "documents", root / "sub")


def test_big_folders_are_fed_in_small_transactions(log: EmbeddedLog, root: Path) -> None:
    """A batch ends at a MiB of text, so that memory does not grow with the folder."""
    for number in range(8):
        (root / f"{number}.txt").write_text("x" * 400_000)
    feed = feed_of(log, root)
    sizes = [sum(len(text or b"") for _, text in fed(log)) for _ in feed.scan()]
    steps = [after - before for before, after in pairwise(sizes)]
    assert max(steps) <= 1 << 21
    assert sum(steps) > 3_000_000


def test_names_with_odd_bytes_are_fed(log: EmbeddedLog, root: Path) -> None:
    """A name that is no text is escaped, and its file is found again."""
    raw = b"caf\xe9\\\n.txt"
    (Path(os.fsdecode(os.fsencode(root) + b"/" + raw))).write_text("odd")
    scanned(feed_of(log, root))
    assert ("caf\\xe9\\\\\n.txt", b"odd") in fed(log)
    assert path_of(name_of(raw)) == raw


def path_of(name: str) -> bytes:
    """Return the relative path of a document name: the inverse of ``name_of``."""
    parts: list[bytes] = []
    for piece in name.split("\\\\"):
        head, *rest = piece.split("\\x")
        parts.append(head.encode() + b"".join(bytes([int(r[:2], 16)]) + r[2:].encode() for r in rest))
    return b"\\".join(parts)


@given(
    st.lists(st.sampled_from([b"\\", b"x", b"4", b"1", b"\xff", b"\xc3\xa9", b"/", b"a"]), max_size=12).map(b"".join)
)
def test_every_name_leads_back_to_its_path(path: bytes) -> None:
    """Names are reversible, so two files never share one."""
    assert path_of(name_of(path)) == path
    name_of(path).encode()
