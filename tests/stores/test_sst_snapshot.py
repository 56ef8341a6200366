"""State as files: a store that takes them holds exactly it, and files that are not whole are refused (0017)."""

import json
import random
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from grete.errors import StoreCorrupted, TransientError
from grete.protocol.changelog_position import ChangelogPosition, encode_changelog_position
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.sst_snapshot import Prebuilt, SstBuilder, SstFile, publish, remove
from grete.stores.rocksdb.store import RocksStore

NAMES = {3: "_meta", 10: "counts"}
CHANGELOG_POSITION = ChangelogPosition(7, 2, 900, bytes(16))
ROWS = [(3, b"m", b"1"), *((10, b"%06d" % number, random.Random(number).randbytes(40)) for number in range(3_000))]


def built(directory: Path, file_bytes: int = 20_000) -> Path:
    """Publish ROWS; return where."""
    builder = SstBuilder(directory / "work", file_bytes)
    for begin in range(0, len(ROWS), 700):
        builder.add(*zip(*ROWS[begin : begin + 700], strict=True))
    publish(directory / "work", directory / "there", CHANGELOG_POSITION, NAMES, builder.close())
    return directory / "there"


def test_a_store_that_takes_the_files_holds_their_state_and_nothing_else(tmp_path: Path) -> None:
    """The former content is gone; the files stay, so that they can be taken again."""
    directory = built(tmp_path)
    memory = RocksMemory(16 << 20)
    store = RocksStore(tmp_path / "task", NAMES, memory)
    store.write([(10, b"old", b"1"), (3, b"m", b"0")], b"older position")
    found = Prebuilt(directory, NAMES)
    assert found.changelog_position == CHANGELOG_POSITION
    for _ in range(2):
        files = list(found.files())
        assert len(files) > 5
        store.ingest(files, encode_changelog_position(found.changelog_position))
        assert [(10, *row) for row in store.scan(10, b"", None)] == ROWS[1:]
        assert list(store.scan(3, b"", None)) == [(b"m", b"1")]
    store.close()
    store = RocksStore(tmp_path / "task", NAMES, memory)
    assert store.changelog_position() == encode_changelog_position(CHANGELOG_POSITION)
    assert store.get(10, b"002999") == ROWS[-1][2]
    store.close()


def test_files_take_the_place_of_older_ones(tmp_path: Path) -> None:
    """A second backfill leaves nothing of the first."""
    directory = built(tmp_path)
    before = {path.name for path in directory.iterdir()}
    built(tmp_path, 1 << 20)
    after = {path.name for path in directory.iterdir()}
    assert after < before
    assert sum(1 for _ in Prebuilt(directory, NAMES).files()) == len(after) - 1 == 2
    remove(directory)
    assert not directory.exists()
    remove(directory)


def _no_file(directory: Path) -> None:
    max(directory.glob("*.sst")).unlink()


def _short(directory: Path) -> None:
    file = max(directory.glob("*.sst"))
    file.write_bytes(file.read_bytes()[:-1])


def _flipped(directory: Path) -> None:
    file = max(directory.glob("*.sst"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _no_manifest(directory: Path) -> None:
    (directory / "manifest.json").unlink()


def _torn_manifest(directory: Path) -> None:
    file = directory / "manifest.json"
    file.write_bytes(file.read_bytes()[:-9])


def _edited(directory: Path, **fields: object) -> None:
    file = directory / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_no_file, "No such file"),
        (_short, "its manifest says"),
        (_flipped, "its manifest says"),
        (_no_manifest, "no manifest"),
        (_torn_manifest, "no manifest"),
        (lambda directory: _edited(directory, changelog_position="YQ=="), "no manifest"),
        (lambda directory: _edited(directory, stores={"10": "sums"}), "'sums', the job has 'counts'"),
        (lambda directory: _edited(directory, stores={"3": "_meta"}), "does not name"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    """Missing, cut, changed by one bit, or of other stores: each is named."""
    directory = built(tmp_path)
    damage(directory)
    with pytest.raises(StoreCorrupted, match=message):
        list(Prebuilt(directory, NAMES).files())


def test_a_file_that_rocksdb_refuses_leaves_no_changelog_position(tmp_path: Path) -> None:
    """Its checksum may be right and its content no SST file: the store can begin from the changelog then."""
    directory = built(tmp_path)
    wrong = directory / "wrong.sst"
    wrong.write_bytes(b"no table at all" * 100)
    store = RocksStore(tmp_path / "task", NAMES, RocksMemory(16 << 20))
    store.write([(10, b"old", b"1")], b"position")
    with pytest.raises(StoreCorrupted):
        store.ingest([*Prebuilt(directory, NAMES).files(), (10, wrong)], encode_changelog_position(CHANGELOG_POSITION))
    assert store.changelog_position() is None
    store.close()


def test_a_full_disk_ends_a_builder(tmp_path: Path) -> None:
    """The error says where, and what to do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    builder = SstBuilder(tmp_path / "work")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        with pytest.raises(TransientError, match=r"000000\.sst.*free the disk"):
            _filled(builder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert builder.files == []


def _filled(builder: SstBuilder) -> list[SstFile]:
    builder.add(*zip(*ROWS[1:], strict=True))
    return builder.close()


def test_no_state_is_no_file(tmp_path: Path) -> None:
    """RocksDB refuses an empty file; a task without state has none."""
    publish(tmp_path / "work", tmp_path / "there", CHANGELOG_POSITION, NAMES, SstBuilder(tmp_path / "work").close())
    assert list(Prebuilt(tmp_path / "there", NAMES).files()) == []
