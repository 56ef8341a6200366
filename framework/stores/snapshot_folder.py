"""Snapshots of tasks as files, in a shared folder or an object store: FOLDER/JOB/TASK, by fsspec (0090).

The files of a RocksDB are below ``files``, each named by a digest of its bytes, so that those that are there are not
written again. A manifest names the files of one snapshot, with the commit that they are the state of. It is written
last, and its own name has its digest: a killed upload leaves no snapshot.
"""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from grete.errors import ConfigError, FrameworkError, StoreCorrupted, TransientError
from grete.protocol.changelog_position import ChangelogPosition
from grete.settings import without_password

FORMAT = 1  # of manifests
UPLOAD_S_MAX = 86_400.0  # a file that no manifest names may be of an upload that still runs, for this long
_MANIFEST_BYTES_MAX = 16 << 20  # 100 bytes a file of 64 MiB: a state of 10 TiB
_CHUNK = 4 << 20  # bytes in memory at once
_MANIFEST = re.compile(r"\d{20}-[0-9a-f]{32}\.json")
_ROCKSDB_FILE = re.compile(r"CURRENT|MANIFEST-\d+|\d+\.(sst|log)")


class SnapshotFile(msgspec.Struct, frozen=True):
    """One file of a RocksDB: its name there, and what it holds."""

    name: str
    size_bytes: int
    digest: str


class SnapshotManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of one snapshot.

    ``offset`` to ``nonce``: the changelog position; ``nonce`` in hexadecimal digits.
    """

    format: int = FORMAT
    job: str
    task: str
    fingerprint: int
    offset: int
    generation: int
    checkpoint_id: int
    nonce: str
    stores: dict[int, str]
    files: list[SnapshotFile]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def changelog_position(self) -> ChangelogPosition:
        """The commit that the files are the state of. Raises StoreCorrupted."""
        try:
            nonce = bytes.fromhex(self.nonce)
        except ValueError as error:
            raise StoreCorrupted(f"the manifest of checkpoint {self.checkpoint_id} has a wrong nonce") from error
        return ChangelogPosition(self.offset, self.generation, self.checkpoint_id, nonce)


class UploadResult(NamedTuple):
    """The result of an upload: files of the snapshot, and those that were new."""

    files: int
    size_bytes: int
    new_files: int
    new_bytes: int


class SnapshotFolder:
    """The snapshots of one job. All errors of a back end are TransientError, with what it says."""

    def __init__(self, url: str, job: str) -> None:
        """Raise ConfigError for a url of no known kind, or one whose package is not installed."""
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        try:
            fs, root = fsspec.core.url_to_fs(url)
        except Exception as error:
            raise ConfigError(
                f"snapshots in {without_password(url)}: {without_password(str(error))}: name a folder, or a url such "
                "as s3://BUCKET/PATH"
            ) from error
        self._fs: Any = fs
        self._is_local = isinstance(fs, LocalFileSystem)
        self._url = f"{without_password(url).rstrip('/')}/{job}"
        self._root = f"{root.rstrip('/')}/{job}"

    def place(self, task: str, name: str = "") -> str:
        """Return the url of a task's snapshots, or of one of their files, as people are told it."""
        return f"{self._url}/{task}{name and '/'}{name}"

    def manifests(self, task: str) -> list[str]:
        """Return the names of all manifests of a task, the newest first. Raises TransientError."""
        return sorted((name for name in self._listed(task) if _MANIFEST.fullmatch(name)), reverse=True)

    def manifest(self, task: str, name: str) -> SnapshotManifest:
        """Return a manifest. Raises StoreCorrupted: it is damaged, or of a newer build; TransientError."""
        place = self.place(task, name)
        with self._told(f"cannot read {place}"), self._fs.open(self._path(task, name), "rb") as file:
            data = file.read(_MANIFEST_BYTES_MAX)
        if _digest(data) != name[21:-5]:
            raise StoreCorrupted(f"{place} is damaged: its digest is not that of its name")
        try:
            manifest = msgspec.json.decode(data, type=SnapshotManifest)
        except msgspec.DecodeError as error:
            raise StoreCorrupted(f"{place} is of another format: {error}") from error
        if manifest.format != FORMAT:
            raise StoreCorrupted(f"{place} has format {manifest.format}, this build knows {FORMAT}")
        if strange := [file.name for file in manifest.files if not _ROCKSDB_FILE.fullmatch(file.name)]:
            raise StoreCorrupted(f"{place} names files that are none of RocksDB: {strange[:3]}")
        return manifest

    def lacking(self, task: str, manifest: SnapshotManifest) -> list[str]:
        """Return the files that a manifest names and that are not there, or have another size. Raises TransientError.

        A file whose bytes were changed is noticed by who fetches it: to read all of them here costs as much.
        """
        there = self._listed(task, "files")
        return [file.digest for file in manifest.files if there.get(file.digest) != file.size_bytes]

    def fetch(self, task: str, manifest: SnapshotManifest, to: Path, progress: Callable[[int], None]) -> None:
        """Bring all files into the directory ``to``, checked and durable; what is there and right is not read again.

        ``progress`` is called with the bytes that are there. Raises StoreCorrupted: a file is damaged or missing;
        TransientError: the folder does not answer, or the disk is full.
        """
        names, done = {file.name for file in manifest.files}, 0
        with self._told(f"cannot fetch a snapshot into {to}"):
            for path in to.iterdir():
                if path.name not in names:
                    path.unlink()
            for file in manifest.files:
                own = to / file.name
                if not (own.exists() and _found(own) == (file.size_bytes, file.digest)):
                    self._fetch(task, file, own, done, progress)
                done += file.size_bytes
                progress(done)
            _sync(to)

    def _fetch(self, task: str, file: SnapshotFile, own: Path, done: int, progress: Callable[[int], None]) -> None:
        place = self.place(task, f"files/{file.digest}")
        size, digest = 0, _hash()
        try:
            with (
                self._told(f"cannot fetch {place}", missing_is_damage=True),
                self._fs.open(self._path(task, f"files/{file.digest}"), "rb") as source,
                own.open("wb") as out,
            ):
                while size <= file.size_bytes and (chunk := source.read(_CHUNK)):
                    out.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    progress(done + size)
                out.flush()
                os.fsync(out.fileno())
            if (size, digest.hexdigest()) != (file.size_bytes, file.digest):
                raise StoreCorrupted(
                    f"{place} is damaged: it has {size} bytes with digest {digest.hexdigest()}, its manifest says "
                    f"{file.size_bytes}: delete it, and the next grete snapshot writes it again"
                )
        except BaseException:
            own.unlink(missing_ok=True)
            raise

    def put(self, task: str, directory: Path, manifest: SnapshotManifest) -> UploadResult:
        """Write the files of a closed RocksDB and then the manifest, which is given without them.

        Raises TransientError.
        """
        files = [
            SnapshotFile(path.name, *_found(path))
            for path in sorted(directory.iterdir())
            if _ROCKSDB_FILE.fullmatch(path.name)
        ]
        new = self._put_missing(task, directory, files)
        data = msgspec.json.encode(msgspec.structs.replace(manifest, files=files))
        name = f"{manifest.checkpoint_id:020d}-{_digest(data)}.json"
        draft = directory / "manifest"
        draft.write_bytes(data)
        self._put(task, draft, name)
        self._put_missing(task, directory, files)  # another machine may have deleted what was there and in no manifest
        sizes = [file.size_bytes for file in files]
        return UploadResult(len(files), sum(sizes), len(new), sum(file.size_bytes for file in new))

    def _put_missing(self, task: str, directory: Path, files: list[SnapshotFile]) -> list[SnapshotFile]:
        there = self._listed(task, "files")
        missing = [file for file in files if there.get(file.digest) != file.size_bytes]
        for file in missing:
            self._put(task, directory / file.name, f"files/{file.digest}")
        return missing

    def _put(self, task: str, source: Path, name: str) -> None:
        """Write a file of which no reader sees a part, as object stores do by themselves."""
        path = self._path(task, name)
        with self._told(f"cannot write {self.place(task, name)}"):
            if not self._is_local:
                self._fs.put_file(str(source), path)
                return
            own, part = Path(path), Path(f"{path}.{os.getpid()}.part")
            _make_shared(own.parent)
            with _for_the_group(part) as to, source.open("rb") as data:
                shutil.copyfileobj(data, to, _CHUNK)
            _sync(part)
            part.replace(own)
            _sync(own.parent)

    def prune(self, task: str, keep: int, upload_s_max: float = UPLOAD_S_MAX) -> int:
        """Delete all but the newest ``keep`` snapshots, then files that none of these needs; return how many files.

        A file in no manifest stays for ``upload_s_max``. A manifest that cannot be read counts for nothing, and is
        deleted when a newer one can. Raises TransientError.
        """
        there = self._listed(task, "files")
        kept: list[SnapshotManifest] = []
        for name in self.manifests(task):
            with suppress(StoreCorrupted):
                if len(kept) < keep:
                    kept.append(self.manifest(task, name))
                    continue
            if kept:
                self._delete(task, name)
        named = {file.digest for manifest in kept for file in manifest.files}
        unnamed = [name for name in there if name not in named and self._age_s(task, name) >= upload_s_max]
        for name in unnamed if kept else ():
            self._delete(task, f"files/{name}")
        return len(unnamed) if kept else 0

    def _age_s(self, task: str, name: str) -> float:
        """Return for how long a file has been there, in seconds; none at all if the back end does not say."""
        with self._told(f"cannot read {self.place(task, name)}"):
            try:
                written = self._fs.modified(self._path(task, f"files/{name}"))
            except (NotImplementedError, FileNotFoundError):
                return 0.0
        return time.time() - float(written.timestamp())

    def _delete(self, task: str, name: str) -> None:
        with self._told(f"cannot delete {self.place(task, name)}"), suppress(FileNotFoundError):
            self._fs.rm_file(self._path(task, name))

    def _listed(self, task: str, folder: str = "") -> dict[str, int]:
        """Return name → size in bytes of what is in a folder now."""
        with self._told(f"cannot list {self.place(task, folder)}"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._path(task, folder), detail=True)
            except FileNotFoundError:
                return {}
            return {entry["name"].rpartition("/")[2]: entry["size"] for entry in found if entry["type"] == "file"}

    def _path(self, task: str, name: str) -> str:
        return f"{self._root}/{task}/{name}".rstrip("/")

    @contextmanager
    def _told(self, what: str, *, missing_is_damage: bool = False) -> Iterator[None]:
        """Turn what a back end raises, each another class, into an error of ours."""
        try:
            yield
        except FrameworkError:
            raise
        except FileNotFoundError as error:
            raise (StoreCorrupted if missing_is_damage else TransientError)(f"{what}: it is not there") from error
        except Exception as error:
            raise TransientError(f"{what}: {str(error) or type(error).__name__}") from error


def _make_shared(folder: Path) -> None:
    """Make a folder and its missing parents, as the umask says without rights for others: it holds state."""
    for path in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        path.mkdir(mode=0o770, exist_ok=True)


def _for_the_group(path: Path) -> BinaryIO:
    """Open a file to be written, likewise."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o660), "wb")


def _hash() -> Any:
    return hashlib.blake2b(digest_size=16)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _found(path: Path) -> tuple[int, str]:
    """Return size and digest of a file."""
    size, digest = 0, _hash()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size += len(chunk)
            digest.update(chunk)
    return size, digest.hexdigest()


def _sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power loss."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
