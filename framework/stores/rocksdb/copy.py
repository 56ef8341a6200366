"""A copy of a RocksDB that another process has open: its SST files by hard links, the rest by bytes.

RocksDB never changes an SST file, and appends to its MANIFEST whenever a flush, a compaction or an ingestion makes the
set of files another. So if the MANIFEST and the names of the write-ahead logs are the same before and after, the copy
has all files that the MANIFEST names, each older log whole, and the newest log up to some record: it is the database
as a kill of its owner at that moment would have left it.
"""

import os
import shutil
import time
from contextlib import closing, suppress
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from grete.errors import StoreCorrupted, TransientError
from grete.stores.rocksdb.manifest import check_manifest
from grete.stores.store_directory import make_private

TRIES_MAX = 50  # a busy store flushes once in some 100 ms, and a copy takes a few
_PAUSE_S = 0.02  # between two of them
_CHUNK = 1 << 20  # bytes in memory at once, where a link cannot be made


def copy_open_store(directory: Path, to: Path) -> bool:
    """Make ``to`` a database of its own with what ``directory`` holds now; False: there is no store.

    What is in ``to`` is replaced. Raises TransientError if the store changes too fast, or the disk is full;
    StoreCorrupted if it cannot be read.
    """
    for _ in range(TRIES_MAX):
        shutil.rmtree(to, ignore_errors=True)
        make_private(to)
        try:
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        try:
            names = _names(opened)
            if "CURRENT" not in names:
                return False
            if _copied(opened, names, to) and _is_still(directory, opened):
                _drop_what_is_not_live(to)
                return True
        except FileNotFoundError:
            pass  # its owner has deleted a file, or has wiped the store: look again
        except OSError as error:
            raise TransientError(f"cannot copy {directory} to {to}: {error}: free the disk, and try again") from error
        finally:
            os.close(opened)
        time.sleep(_PAUSE_S)
    raise TransientError(f"{directory} changed during each of {TRIES_MAX} copies: its worker restores it; try again")


def _copied(directory: int, names: list[str], to: Path) -> bool:
    """Copy what was listed; return whether nothing that decides has changed meanwhile."""
    before = _manifest(directory)
    for name in names:
        if name.endswith(".sst"):
            _link(directory, name, to)
    logs = _logs(names)
    for name in logs:
        (to / name).write_bytes(_read(directory, name))
    if before != _manifest(directory) or logs != _logs(_names(directory)):
        return False
    name, content = before
    (to / name).write_bytes(content)
    (to / "CURRENT").write_text(f"{name}\n", "ascii")
    return True


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


def _logs(names: list[str]) -> list[str]:
    return sorted(name for name in names if name.endswith(".log"))


def _manifest(directory: int) -> tuple[str, bytes]:
    """Return name and content of the MANIFEST that counts."""
    name = os.path.basename(_read(directory, "CURRENT").decode("ascii", "replace").strip())  # noqa: PTH119  # no path
    return name, _read(directory, name)


def _read(directory: int, name: str) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=directory), "rb") as file:
        return file.read()


def _link(directory: int, name: str, to: Path) -> None:
    """Give a file a second name; on another disk, or file system, it gets a copy."""
    try:
        os.link(name, to / name, src_dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError:
        with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=directory), "rb") as file, (to / name).open("wb") as out:
            shutil.copyfileobj(file, out, _CHUNK)


def _is_still(directory: Path, opened: int) -> bool:
    """Whether the directory that was read is the store's still: a wipe puts another one in its place."""
    return directory.stat().st_ino == os.fstat(opened).st_ino


def _drop_what_is_not_live(copy: Path) -> None:
    """Delete the links to files that the MANIFEST does not name.

    They may still grow, and RocksDB could give a file of the copy the same name: it would cut that of the owner.
    """
    check_manifest(copy)
    try:
        options = Options(raw_mode=True)
        families = [name for name in Rdict.list_cf(str(copy), options) if name != "default"]
        opened = Rdict(
            str(copy),
            options,
            {name: Options(raw_mode=True) for name in families},
            access_type=AccessType.read_only(),
        )
        with closing(opened):
            live = {file["name"].removeprefix("/") for file in opened.live_files()}
    except Exception as error:  # rocksdict has one class for everything
        raise StoreCorrupted(f"{copy}: {error}: it is read from the changelog") from error
    for file in copy.glob("*.sst"):
        if file.name not in live:
            with suppress(FileNotFoundError):
                file.unlink()
