"""A task's state as sorted SST files, made where the state was computed, for a store to take as they are (0017).

``SstBuilder`` writes the files, ``publish`` puts them where the task's worker looks, with a manifest that says of which
commit they are the state. They are worth time, never truth: each file is checked, and the log has the last word.
"""

import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from rocksdict import SstFileWriter

from grete.errors import StoreCorrupted, TransientError
from grete.protocol.changelog_position import ChangelogPosition, decode_changelog_position, encode_changelog_position
from grete.protocol.errors import DecodeError
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.store_directory import make_private

_FILE_BYTES = 64 << 20  # of keys and values in a file, about: RocksDB makes its own as large
_MANIFEST = "manifest.json"
_CHUNK = 1 << 20  # bytes read at once for a checksum
_MEMORY_BYTES = 8 << 20  # a writer has no use for more


class SstFile(msgspec.Struct, frozen=True):
    """One file: keys of one store, between those of the files before and after it."""

    store: int
    name: str
    size_bytes: int
    crc32: int


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    changelog_position: bytes = msgspec.field(name="pointer")  # as manifests that exist call it
    stores: dict[int, str]  # as they were called when the state was made
    files: list[SstFile]


class SstBuilder:
    """Writes a state that comes in order of store and key. ``close``, also after an error, ends the open file."""

    def __init__(self, directory: Path, file_bytes: int = _FILE_BYTES) -> None:
        """Make the directory. Raises ConfigError if that cannot be."""
        make_private(directory)
        self.files: list[SstFile] = []
        self._directory, self._file_bytes = directory, file_bytes
        self._options = RocksMemory(_MEMORY_BYTES).options()
        self._writer: SstFileWriter | None = None
        self._store = -1
        self._size = 0

    def add(self, stores: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Write entries. Raises TransientError if the disk is full."""
        try:
            for store, key, value in zip(stores, keys, values, strict=True):
                if self._writer is None or store != self._store or self._size >= self._file_bytes:
                    self._next(store)
                assert self._writer is not None
                self._writer[key] = value
                self._size += len(key) + len(value)
        except Exception as error:
            raise TransientError(f"cannot write {self._path}: {error}: free the disk, and run it again") from error

    def close(self) -> list[SstFile]:
        """Return all files, durable. Raises TransientError if the disk is full."""
        if self._writer is not None:
            try:
                self._writer.finish()
                size, crc32 = _checksum(self._path)
            except Exception as error:
                raise TransientError(f"cannot write {self._path}: {error}: free the disk, and run it again") from error
            self.files.append(SstFile(self._store, self._path.name, size, crc32))
            self._writer = None
        return self.files

    @property
    def _path(self) -> Path:
        return self._directory / f"{len(self.files):06d}.sst"

    def _next(self, store: int) -> None:
        self.close()
        self._writer, self._store, self._size = SstFileWriter(self._options), store, 0
        self._writer.open(str(self._path))


class Prebuilt:
    """The output of ``publish`` in a directory; ``changelog_position`` names the commit of the state."""

    def __init__(self, directory: Path, stores: Mapping[int, str]) -> None:
        """Read the manifest; ``stores`` as the task declares them. Raises StoreCorrupted if it cannot be used."""
        self._directory = directory
        try:
            manifest = msgspec.json.decode((directory / _MANIFEST).read_bytes(), type=_Manifest)
            self.changelog_position: ChangelogPosition = decode_changelog_position(manifest.changelog_position)
        except (OSError, msgspec.DecodeError, DecodeError) as error:
            raise StoreCorrupted(f"{directory}: no manifest that can be read: {error}") from error
        self._files = manifest.files
        for store, name in manifest.stores.items():
            if stores.get(store) != name:
                raise StoreCorrupted(f"{directory} has store {store} as {name!r}, the job has {stores.get(store)!r}")
        if strange := {file.store for file in manifest.files} - manifest.stores.keys():
            raise StoreCorrupted(f"{directory} has files of stores that it does not name: {sorted(strange)}")

    def files(self) -> Iterator[tuple[int, Path]]:
        """Yield (store id, path) of each file that is whole. Raises StoreCorrupted for one that is not."""
        for file in self._files:
            path = self._directory / Path(file.name).name
            try:
                found = _checksum(path)
            except OSError as error:
                raise StoreCorrupted(f"{path}: {error}") from error
            if found != (file.size_bytes, file.crc32):
                raise StoreCorrupted(
                    f"{path} has {found[0]} bytes with CRC {found[1]:#x}, its manifest says {file.size_bytes} and "
                    f"{file.crc32:#x}"
                )
            yield file.store, path


def publish(
    built: Path,
    directory: Path,
    changelog_position: ChangelogPosition,
    stores: Mapping[int, str],
    files: Sequence[SstFile],
) -> None:
    """Move an SstBuilder's files to ``directory``, in place of what is there, the manifest last. Raises OSError."""
    remove(directory)
    make_private(directory)
    for file in files:
        shutil.move(built / file.name, directory / file.name)
    draft = directory / f"{_MANIFEST}.part"
    draft.write_bytes(
        msgspec.json.encode(_Manifest(encode_changelog_position(changelog_position), dict(stores), list(files)))
    )
    draft.replace(directory / _MANIFEST)


def remove(directory: Path) -> None:
    """Delete what ``publish`` has left: first what makes it count."""
    with suppress(OSError):
        (directory / _MANIFEST).unlink()
    shutil.rmtree(directory, ignore_errors=True)


def _checksum(path: Path) -> tuple[int, int]:
    size = crc32 = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size, crc32 = size + len(chunk), zlib.crc32(chunk, crc32)
    return size, crc32
