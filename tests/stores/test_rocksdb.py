"""RocksDB only: locks, kills, full disks, options and the memory budget. Corruption: test_rocksdb_damage.py."""

import contextlib
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grete.errors import ConfigError, FrameworkError, TransientError
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.stores.store_directory import wipe_directory
from tests.stores.conftest import NAMES
from tests.support import forking

ROOT = Path(__file__).parents[2]


# --- Ownership ---


def test_a_second_open_is_refused_naming_the_directory(tmp_path: Path, memory: RocksMemory) -> None:
    """Two owners of one store are impossible, in one process too; closing gives it free."""
    store = RocksStore(tmp_path / "task", NAMES, memory)
    with pytest.raises(TransientError, match=f"{tmp_path}/task is in use"):
        RocksStore(tmp_path / "task", NAMES, memory)
    store.wipe()
    with pytest.raises(TransientError, match="is in use"):
        RocksStore(tmp_path / "task", NAMES, memory)
    with pytest.raises(TransientError, match="is in use"):
        wipe_directory(tmp_path / "task")
    store.close()
    store.close()
    RocksStore(tmp_path / "task", NAMES, memory).close()


def test_a_suspended_scan_neither_keeps_the_lock_nor_ends_as_if_complete(filled: Path, memory: RocksMemory) -> None:
    """After close a scan raises: an early end would look like the end of the data."""
    store = RocksStore(filled, NAMES, memory)
    scan = store.scan(0, b"", None)
    next(scan)
    store.close()
    RocksStore(filled, NAMES, memory).close()
    with pytest.raises(FrameworkError, match="outlived"):
        next(scan)


def test_use_after_close_is_an_error_of_its_own(filled: Path, memory: RocksMemory) -> None:
    """It must not be taken for a corrupt store, which would be wiped."""
    store = RocksStore(filled, NAMES, memory)
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.get(0, b"k"),
        lambda: store.scan(0, b"", None),
        lambda: store.write([(0, b"k", b"1")]),
        lambda: store.load(0, [b"k"], [b"1"]),
        store.changelog_position,
    ]
    for call in calls:
        with pytest.raises(FrameworkError, match="closed") as caught:
            call()
        assert caught.type is FrameworkError


def test_directories_are_private(tmp_path: Path, memory: RocksMemory) -> None:
    """State may be personal data: others on the machine cannot read it, also after a wipe."""
    store = RocksStore(tmp_path / "state" / "task", NAMES, memory)
    store.wipe()
    store.close()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state", tmp_path / "state" / "task")]
    assert modes == [0o700, 0o700]


def test_what_a_crash_left_of_a_wipe_is_deleted_at_the_next_start(filled: Path, memory: RocksMemory) -> None:
    """A renamed directory is never opened again; a new wipe does not stumble over it."""
    shutil.copytree(filled, filled.with_name("task.wiped-4"))
    store = RocksStore(filled, NAMES, memory)
    assert store.changelog_position() == b"position"
    store.wipe()
    store.close()
    assert sorted(path.name for path in filled.parent.iterdir()) == ["task", "task.lock"]


def test_a_place_that_is_no_directory_is_refused(tmp_path: Path, memory: RocksMemory) -> None:
    """A file in the way, or another program's RocksDB, is a matter of settings, not of corruption."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "task"):
        with pytest.raises(ConfigError, match="file"):
            RocksStore(path, NAMES, memory)


# --- Kills ---

CHILD = """
import sys
from pathlib import Path
from grete.stores.overlay.overlay import Overlay
from grete.stores.rocksdb.store import RocksStore
from grete.stores.rocksdb.memory_use import RocksMemory

store = RocksStore(Path(sys.argv[1]), {0: "counts", 1: "words"}, RocksMemory(16 << 20))
def step():
    print(flush=True)
    sys.stdin.readline()
if sys.argv[2] == "load":
    for _ in range(3):
        store.load(0, [b"%05d" % i for i in range(2000)], [b"2"] * 2000)
        step()
    store.write([(1, b"end", b"2")], b"2")
    step()
overlay = Overlay(store, [0, 1], uncommitted_state_bytes_max=1 << 24, read_cache_bytes_max=1 << 20)
for checkpoint in range(1, 100):
    for number in (0, 1):
        for i in range(25):
            overlay.store(number).put(b"%05d" % i, b"%d" % checkpoint)
    overlay.freeze()
    done = False
    while not done:
        done = overlay.apply_chunk(b"%d" % checkpoint, keys_max=10)
        step()
"""


def killed_after(path: Path, mode: str, steps: int) -> None:
    """Run the child, let it take that many steps, kill it with SIGKILL while it waits for leave to take the next."""
    arguments = [*forking.TEXT, CHILD, str(path), mode]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for step in range(steps):
            assert child.stdout.readline() == b"\n"
            if step < steps - 1:
                child.stdin.write(b"\n")
                child.stdin.flush()
        child.send_signal(signal.SIGKILL)
        child.wait()


@pytest.mark.parametrize("steps", [1, 4, 5, 8, 10])
def test_after_a_kill_between_chunks_the_changelog_position_is_never_ahead_of_the_data(
    tmp_path: Path, memory: RocksMemory, steps: int
) -> None:
    """A checkpoint takes five chunks, of each store from the key that was written last.

    All of them are there, in order, and the changelog position names a complete checkpoint (A7).
    """
    killed_after(tmp_path / "task", "apply", steps)
    store = RocksStore(tmp_path / "task", NAMES, memory)
    complete, chunks = divmod(steps, 5)
    assert store.changelog_position() == (b"%d" % complete if complete else None)
    values = [store.get(number, b"%05d" % i) for number in (0, 1) for i in reversed(range(25))]
    old = b"%d" % complete if complete else None
    assert values == [b"%d" % (complete + 1)] * (10 * chunks) + [old] * (50 - 10 * chunks)
    store.close()


@pytest.mark.parametrize(("steps", "changelog_position"), [(3, None), (4, b"2")])
def test_after_a_kill_a_changelog_position_covers_all_that_was_loaded(
    tmp_path: Path, memory: RocksMemory, steps: int, changelog_position: bytes | None
) -> None:
    """Loading is not logged.

    Without a changelog position the restore starts over; with one, everything is there (R1).
    """
    killed_after(tmp_path / "task", "load", steps)
    store = RocksStore(tmp_path / "task", NAMES, memory)
    assert store.changelog_position() == changelog_position
    if changelog_position is not None:
        assert len(list(store.scan(0, b"", None))) == 2000
        assert store.get(1, b"end") == b"2"
    store.close()


@contextlib.contextmanager
def small_files() -> Iterator[None]:
    """Let no file of this process grow beyond 64 KiB."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_takes_no_more_is_transient(tmp_path: Path, memory: RocksMemory) -> None:
    """A full disk must not look like a corrupt store: its data is fine and would be wiped."""
    store = RocksStore(tmp_path / "task", NAMES, memory)
    store.write([(0, b"k", b"1")], b"before")
    with small_files():
        with pytest.raises(TransientError, match="cannot write"):
            store.write([(0, b"big", bytes(1 << 20))], b"after")
        store.load(0, [b"%d" % i for i in range(4000)], [random.Random(i).randbytes(100) for i in range(4000)])
        with pytest.raises(TransientError, match="cannot load"):
            store.flush()
        assert store.changelog_position() == b"before"
        store.close()
    store = RocksStore(tmp_path / "task", NAMES, memory)
    assert (store.changelog_position(), list(store.scan(0, b"", None))) == (b"before", [(b"k", b"1")])
    store.close()


# --- Options and memory ---


def test_all_column_families_have_the_same_options_at_every_start(tmp_path: Path, memory: RocksMemory) -> None:
    """A family that is opened without options gets RocksDB's defaults: no bloom filter, a cache of its own."""
    for names in (NAMES, NAMES | {5: "new"}, {0: "counts"}):
        RocksStore(tmp_path / "task", names, memory).close()
    file = max((tmp_path / "task").glob("OPTIONS-*"), key=lambda options: options.name)
    sections = file.read_text().split("\n[")
    for kind in ("CFOptions", "TableOptions/BlockBasedTable"):
        bodies = [section.split("]", 1)[1].strip() for section in sections if section.startswith(f'{kind} "')]
        assert (len(bodies), len(set(bodies))) == (4, 1)
    assert "filter_policy=nullptr" not in file.read_text()


def test_memtables_and_blocks_of_all_stores_are_charged_to_one_cache(tmp_path: Path) -> None:
    """Stores' writes and reads are both charged to the one budget of the process."""
    memory = RocksMemory(64 << 20)
    stores = [RocksStore(tmp_path / f"task-{i}", NAMES, memory) for i in range(4)]
    used = memory.used()
    for store in stores:
        store.write([(0, b"%d" % i, os.urandom(1000)) for i in range(1000)])
    assert memory.used() - used > 3 << 20  # memtables: 4 MB were written and nothing read
    for store in stores:
        store.close()
    stores = [RocksStore(tmp_path / f"task-{i}", NAMES, memory) for i in range(4)]
    used = memory.used()
    assert [sum(1 for _ in store.scan(0, b"", None)) for store in stores] == [1000] * 4
    assert memory.used() - used > 3 << 20  # blocks: 4 MB were read
    for store in stores:
        store.close()


def test_several_stores_stay_within_one_budget(tmp_path: Path) -> None:
    """Four stores that write and read more than the budget stay near it; a flush in the background may be late."""
    memory = RocksMemory(8 << 20)
    stores = [RocksStore(tmp_path / f"task-{i}", NAMES, memory) for i in range(4)]
    most = 0
    for chunk in range(20):
        for store in stores:
            store.write([(chunk % 2, b"%d-%d" % (chunk, i), os.urandom(200)) for i in range(1000)])
            most = max(most, memory.used())
    for store in stores:
        assert sum(1 for number in NAMES for _ in store.scan(number, b"", None)) == 20_000
        most = max(most, memory.used())
    for store in stores:
        store.close()
    assert most < 12 << 20  # 17 MB were written


def test_a_budget_too_small_is_refused() -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match="rocksdb_bytes = 1000"):
        RocksMemory(1000)
