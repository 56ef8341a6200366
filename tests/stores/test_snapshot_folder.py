"""A folder of snapshots, in memory and on disk: what is written, fetched, deleted and refused."""

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grete.errors import ConfigError, StoreCorrupted, TransientError
from grete.stores.snapshot_folder import SnapshotFolder, SnapshotManifest, _digest

TASK = "count-words-0"
BASE = SnapshotManifest(
    job="word-count",
    task=TASK,
    fingerprint=7,
    offset=12,
    generation=3,
    checkpoint_id=1_000,
    nonce="00" * 16,
    stores={10: "counts"},
    files=[],
)


@pytest.fixture(params=["memory", "file", "plain path"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the url of a folder that nothing else has."""
    where = {"memory": f"memory://{uuid.uuid4()}", "file": f"file://{tmp_path}/folder"}
    return where.get(request.param, str(tmp_path / "folder"))


@pytest.fixture
def folder(url: str) -> SnapshotFolder:
    """Return the folder of a job."""
    return SnapshotFolder(url, "word-count")


def database(directory: Path, **files: bytes) -> Path:
    """Write what looks like a RocksDB: ``a_sst=…`` is the file 00000a.sst."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "CURRENT").write_bytes(b"MANIFEST-000005\n")
    (directory / "LOCK").touch()
    for name, data in files.items():
        (directory / f"{name.removesuffix('_sst').removeprefix('n').zfill(6)}.sst").write_bytes(data)
    return directory


def numbered(checkpoint_id: int) -> SnapshotManifest:
    """Return the manifest of another checkpoint."""
    return msgspec.structs.replace(BASE, checkpoint_id=checkpoint_id)


def fetched(folder: SnapshotFolder, name: str, to: Path) -> dict[str, bytes]:
    """Return the files that a snapshot brings to an empty directory."""
    to.mkdir()
    folder.fetch(TASK, folder.manifest(TASK, name), to, lambda _done: None)
    return {path.name: path.read_bytes() for path in to.iterdir()}


def test_a_snapshot_comes_back_as_it_was(folder: SnapshotFolder, tmp_path: Path) -> None:
    """Every byte of RocksDB's files, none of its lock; the manifest says which commit it is."""
    own = database(tmp_path / "db", n1_sst=b"one" * 1_000, n2_sst=b"")
    assert folder.put(TASK, own, BASE) == (3, 3_016, 3, 3_016)
    (name,) = folder.manifests(TASK)
    assert folder.manifest(TASK, name).changelog_position == (12, 3, 1_000, bytes(16))
    found = fetched(folder, name, tmp_path / "to")
    assert found == {"CURRENT": b"MANIFEST-000005\n", "000001.sst": b"one" * 1_000, "000002.sst": b""}
    assert folder.manifests("another-0") == []


def test_files_that_are_there_are_not_written_again(folder: SnapshotFolder, tmp_path: Path) -> None:
    """The next snapshot adds its new file; the same one again adds nothing, not even a manifest."""
    folder.put(TASK, database(tmp_path / "db", n1_sst=b"one"), BASE)
    assert folder.put(TASK, database(tmp_path / "db", n1_sst=b"one"), BASE).new_files == 0
    assert len(folder.manifests(TASK)) == 1
    more = folder.put(TASK, database(tmp_path / "db", n1_sst=b"one", n9_sst=b"nine"), numbered(2_000))
    assert (more.new_files, more.new_bytes, more.files) == (1, 4, 3)


def test_a_download_goes_on_where_a_kill_has_ended_it(folder: SnapshotFolder, tmp_path: Path) -> None:
    """Whole files stay, half of one and strangers go; progress counts all bytes, and never goes back."""
    folder.put(TASK, database(tmp_path / "db", n1_sst=b"one" * 10, n2_sst=b"two" * 10), BASE)
    (name,) = folder.manifests(TASK)
    manifest, to, told = folder.manifest(TASK, name), tmp_path / "to", list[int]()
    to.mkdir()
    (to / "000001.sst").write_bytes(b"one" * 10)
    (to / "000002.sst").write_bytes(b"tw")
    (to / "000007.sst").write_bytes(b"of another snapshot")
    before = (to / "000001.sst").stat().st_mtime_ns
    folder.fetch(TASK, manifest, to, told.append)
    assert (to / "000001.sst").stat().st_mtime_ns == before
    assert (to / "000002.sst").read_bytes() == b"two" * 10
    assert not (to / "000007.sst").exists()
    assert told == sorted(told)
    assert told[-1] == manifest.size_bytes == 76


def test_the_newest_stay_with_their_files(folder: SnapshotFolder, tmp_path: Path) -> None:
    """Of four snapshots two are kept; a file that they share with a deleted one stays, the others' files go."""
    for number in range(1, 5):
        own = database(tmp_path / "db", n1_sst=b"shared", n2_sst=b"only of %d" % number)
        folder.put(TASK, own, numbered(number))
    assert folder.prune(TASK, keep=2, upload_s_max=0) == 2
    kept = folder.manifests(TASK)
    assert [folder.manifest(TASK, name).checkpoint_id for name in kept] == [4, 3]
    assert fetched(folder, kept[1], tmp_path / "to")["000002.sst"] == b"only of 3"
    assert folder.prune(TASK, keep=2, upload_s_max=0) == 0


def test_a_file_that_may_be_of_a_running_upload_stays(folder: SnapshotFolder, tmp_path: Path) -> None:
    """It is in no manifest yet: it goes when no upload can be that slow."""
    folder.put(TASK, database(tmp_path / "db", n1_sst=b"one"), BASE)
    own = database(tmp_path / "db", n2_sst=b"two")
    folder._put_missing(TASK, own, files_of(own))
    assert folder.prune(TASK, keep=1) == 0
    assert folder.prune(TASK, keep=1, upload_s_max=0) == 1


def files_of(own: Path) -> list[Any]:
    """Return the files of a database as a manifest has them."""
    other = SnapshotFolder(f"memory://{uuid.uuid4()}", "word-count")
    other.put(TASK, own, BASE)
    return other.manifest(TASK, other.manifests(TASK)[0]).files


def test_a_file_that_another_machine_deletes_meanwhile_is_written_again(
    folder: SnapshotFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there, so it was not written; then the other one deleted it, because no manifest named it yet."""
    own = database(tmp_path / "db", n1_sst=b"one")
    folder.put(TASK, own, BASE)
    put = SnapshotFolder._put

    def deleting(self: SnapshotFolder, task: str, source: Path, name: str) -> None:
        """Put a manifest just behind a deletion."""
        if name.endswith(".json"):
            self.prune(task, keep=1, upload_s_max=0)
            for digest in self._listed(task, "files"):
                self._delete(task, f"files/{digest}")
        put(self, task, source, name)

    monkeypatch.setattr(SnapshotFolder, "_put", deleting)
    folder.put(TASK, own, numbered(2_000))
    assert fetched(folder, folder.manifests(TASK)[0], tmp_path / "to")["000001.sst"] == b"one"


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "cut": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "changed": lambda data: b"x" + data[1:],
    "gone": lambda _data: None,
}


def damage(folder: SnapshotFolder, path: str, how: str) -> None:
    """Damage a file of a folder."""
    data = DAMAGES[how](folder._fs.cat_file(path))
    folder._fs.rm_file(path)
    if data is not None:
        folder._fs.pipe_file(path, data)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_is_refused(folder: SnapshotFolder, tmp_path: Path, how: str) -> None:
    """Nothing of it stays, and what is told names the file; the next snapshot of these bytes repairs a short one."""
    own = database(tmp_path / "db", n1_sst=b"one" * 100)
    folder.put(TASK, own, BASE)
    (name,) = folder.manifests(TASK)
    manifest = folder.manifest(TASK, name)
    (file,) = [file for file in manifest.files if file.name == "000001.sst"]
    damage(folder, folder._path(TASK, f"files/{file.digest}"), how)
    (to := tmp_path / "to").mkdir()
    with pytest.raises(StoreCorrupted, match=file.digest):
        folder.fetch(TASK, manifest, to, lambda _done: None)
    assert not (to / "000001.sst").exists()
    if how != "changed":
        assert folder.put(TASK, own, BASE).new_files == 1
        assert fetched(folder, name, tmp_path / "again")["000001.sst"] == b"one" * 100


@pytest.mark.parametrize("how", ["cut", "longer", "changed"])
def test_a_damaged_manifest_is_refused_and_pushes_out_no_good_one(
    folder: SnapshotFolder, tmp_path: Path, how: str
) -> None:
    """It counts for nothing; it goes when there is a newer one."""
    folder.put(TASK, database(tmp_path / "db", n1_sst=b"old"), numbered(1))
    folder.put(TASK, database(tmp_path / "db", n1_sst=b"new"), numbered(2))
    newest, oldest = folder.manifests(TASK)
    damage(folder, folder._path(TASK, newest), how)
    with pytest.raises(StoreCorrupted, match="is damaged"):
        folder.manifest(TASK, newest)
    folder.prune(TASK, keep=1, upload_s_max=0)
    assert folder.manifests(TASK) == [newest, oldest]
    assert fetched(folder, oldest, tmp_path / "to")["000001.sst"] == b"old"
    folder.put(TASK, database(tmp_path / "db", n1_sst=b"newer"), numbered(3))
    folder.prune(TASK, keep=1, upload_s_max=0)
    assert [folder.manifest(TASK, name).checkpoint_id for name in folder.manifests(TASK)] == [3]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"format": 2}, "has format 2, this build knows 1"),
        ({"files": [{"name": "../000001.sst", "size_bytes": 1, "digest": "0"}]}, "none of RocksDB"),
        ({"files": "many"}, "of another format"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(folder: SnapshotFolder, changes: dict[str, Any], error: str) -> None:
    """A newer build has written it, or it names files elsewhere."""
    data = msgspec.json.encode(msgspec.to_builtins(BASE) | changes)
    name = f"{BASE.checkpoint_id:020d}-{_digest(data)}.json"
    folder._fs.makedirs(folder._path(TASK, ""), exist_ok=True)
    folder._fs.pipe_file(folder._path(TASK, name), data)
    with pytest.raises(StoreCorrupted, match=error):
        folder.manifest(TASK, name)


def test_a_place_that_is_none_is_told(tmp_path: Path) -> None:
    """A url of no known kind, and a folder below a file."""
    with pytest.raises(ConfigError, match=r"snapshots in nowhere://there: .*name a folder"):
        SnapshotFolder("nowhere://there", "word-count")
    (tmp_path / "file").touch()
    folder = SnapshotFolder(str(tmp_path / "file"), "word-count")
    with pytest.raises(TransientError, match=f"cannot list {tmp_path}/file/word-count/{TASK}/files: .*Not a directory"):
        folder.put(TASK, database(tmp_path / "db", n1_sst=b"one"), BASE)


def test_a_snapshot_is_for_its_group_alone(tmp_path: Path) -> None:
    """It is the state of a job: whatever the umask leaves to others is taken from files and folders."""
    folder, before = SnapshotFolder(str(tmp_path / "folder"), "word-count"), os.umask(0)
    try:
        folder.put(TASK, database(tmp_path / "db", n1_sst=b"one"), BASE)
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o777 for path in [tmp_path / "folder", *(tmp_path / "folder").rglob("*")]
    }
    assert {name: mode for name, mode in modes.items() if mode & 0o007} == {}
    assert set(modes.values()) == {0o770, 0o660}


def test_a_password_in_the_url_is_in_no_place() -> None:
    """People are told where a snapshot is; a log has it, too."""
    folder = SnapshotFolder("memory://user:" + "s3cret@host/state", "word-count")
    assert "s3cret" not in folder.place(TASK)
