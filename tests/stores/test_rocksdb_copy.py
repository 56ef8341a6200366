"""A store is copied while its owner writes, flushes, loads and wipes: each copy is one that a kill could have left."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from grete.errors import StoreCorrupted, TransientError
from grete.stores.rocksdb import copy as rocksdb_copy
from grete.stores.rocksdb.copy import copy_open_store
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from tests.stores.changing_store import LOAD_EVERY, NAMES, WIPE_EVERY, keys_of

COPIES = 12
LIMIT_S = 60.0


@contextmanager
def changing(directory: Path, *options: str) -> Iterator[None]:
    """Run a process that writes to a store there."""
    command = [sys.executable, "-m", "tests.stores.changing_store", str(directory), *options]
    process = subprocess.Popen(command)
    try:
        yield
        assert process.poll() is None, "the writer has ended by itself"
    finally:
        process.kill()
        process.wait()


def copied(directory: Path, to: Path, memory: RocksMemory, at_least: int) -> Iterator[RocksStore]:
    """Copy again and again; yield each copy, open, whose position is high enough."""
    deadline, seen = time.monotonic() + LIMIT_S, 0
    while seen < COPIES:
        assert time.monotonic() < deadline, f"{seen} copies in {LIMIT_S} s"
        if not copy_open_store(directory, to):
            continue
        with closing(RocksStore(to, NAMES, memory)) as store:
            if int(store.changelog_position() or 0) >= at_least:
                seen += 1
                yield store


class Written:
    """The expected content of the first store at a position, if it was not wiped; positions only grow."""

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        self._number = 0

    def at(self, number: int) -> dict[bytes, bytes]:
        """Return all entries."""
        for each in range(self._number + 1, number + 1):
            self.entries |= dict.fromkeys(keys_of(each), b"%08d" % each * 20)
        self._number = number
        return self.entries


def test_a_copy_is_the_state_of_one_write_and_all_before_it(tmp_path: Path, memory: RocksMemory) -> None:
    """No write is missing, none is there in part, and none of the owner's files changes by a use of the copy."""
    positions, expected = list[int](), Written()
    with changing(tmp_path / "task"):
        for store in copied(tmp_path / "task", tmp_path / "copy", memory, 2 * LOAD_EVERY):
            number = int(store.changelog_position() or b"")
            positions.append(number)
            assert dict(store.scan(0, b"", None)) == expected.at(number)
            loaded = int(store.get(1, b"loaded") or b"")
            assert number // LOAD_EVERY * LOAD_EVERY <= loaded <= number + LOAD_EVERY
            store.write([(0, key, b"of the copy") for key in keys_of(number)])
    assert positions == sorted(set(positions))
    with closing(RocksStore(tmp_path / "task", NAMES, memory)) as store:
        assert dict(store.scan(0, b"", None)) == expected.at(int(store.changelog_position() or b""))


def test_a_wipe_meanwhile_gives_no_mixture(tmp_path: Path, memory: RocksMemory) -> None:
    """A copy is of the store before the wipe or after it."""
    with changing(tmp_path / "task", "wipes"):
        for store in copied(tmp_path / "task", tmp_path / "copy", memory, 1):
            number = int(store.changelog_position() or b"")
            since = max(number // WIPE_EVERY * WIPE_EVERY, 1)
            found = {int(value[:8]) for _, value in store.scan(0, b"", None)}
            assert found <= set(range(since, number + 1))
            assert all(store.get(0, key) == b"%08d" % number * 20 for key in keys_of(number))


def test_a_store_that_is_half_wiped_is_no_copy(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory was renamed and its log is gone already: the copy would lack what only the log has."""
    listed = rocksdb_copy._names

    def wiped_before(directory: int) -> list[str]:
        monkeypatch.setattr(rocksdb_copy, "_names", listed)
        aside = filled.rename(filled.with_name("aside"))
        filled.mkdir()
        for log in aside.glob("*.log"):
            log.unlink()
        return listed(directory)

    monkeypatch.setattr(rocksdb_copy, "_names", wiped_before)
    assert not copy_open_store(filled, tmp_path / "copy")


def test_a_position_is_copied_with_what_it_covers(
    filled: Path, tmp_path: Path, memory: RocksMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the MANIFEST and the copy of the log the owner loads a file, and notes that it has."""
    read = rocksdb_copy._manifest
    with closing(RocksStore(filled, NAMES, memory)) as store:

        def loaded_behind(directory: int) -> tuple[str, bytes]:
            monkeypatch.setattr(rocksdb_copy, "_manifest", read)
            found = read(directory)
            store.load(0, [b"loaded"], [b"1"])
            store.write([(1, b"w", b"2")], b"behind it")
            return found

        monkeypatch.setattr(rocksdb_copy, "_manifest", loaded_behind)
        assert copy_open_store(filled, tmp_path / "copy")
    with closing(RocksStore(tmp_path / "copy", NAMES, memory)) as copy:
        assert (copy.changelog_position(), copy.get(0, b"loaded")) == (b"behind it", b"1")


def test_no_store_is_no_copy(tmp_path: Path) -> None:
    """There is no directory, or nothing in it yet."""
    assert not copy_open_store(tmp_path / "none", tmp_path / "copy")
    (tmp_path / "empty").mkdir()
    assert not copy_open_store(tmp_path / "empty", tmp_path / "copy")


def test_a_file_that_the_manifest_does_not_name_is_left_out(filled: Path, tmp_path: Path, memory: RocksMemory) -> None:
    """A compaction may still write it: the copy could get a file of the same name, and would cut that of the owner."""
    with closing(RocksStore(filled, NAMES, memory)):
        growing = filled / "000099.sst"
        growing.write_bytes(b"half a file")
        assert copy_open_store(filled, tmp_path / "copy")
        assert not (tmp_path / "copy" / growing.name).exists()
        assert growing.read_bytes() == b"half a file"


def test_a_store_that_never_holds_still_is_told(filled: Path, tmp_path: Path) -> None:
    """A MANIFEST names a file that is not there, at each look: an error, not an endless loop."""
    (filled / "CURRENT").write_text("MANIFEST-999999\n")
    with pytest.raises(TransientError, match=r"changed during each of 50 copies"):
        copy_open_store(filled, tmp_path / "copy")


def test_a_damaged_manifest_is_told(filled: Path, tmp_path: Path) -> None:
    """It is not taken for a shorter one."""
    file = next(filled.glob("MANIFEST-*"))
    os.truncate(file, file.stat().st_size - 3)
    with pytest.raises(StoreCorrupted, match=r"damaged or torn"):
        copy_open_store(filled, tmp_path / "copy")
