"""The files below a folder and what is in them: no link is followed, no device is opened."""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from grete.errors import ConfigError

EXCLUDED = ("__pycache__", ".git", ".grete", "site-packages")  # copies, caches, jobs, other people's files
UNREADABLE = "unreadable"  # what was fed of it before stays as it is: nothing is known of it now
VANISHED = "vanished while it was read"
LINK = "symbolic link, not followed"
SPECIAL = "not a regular file, not opened"


class NotRegular(Exception):
    """A path that was a regular file when it was listed, and was not when it was opened."""


class Listing:
    """The files below a folder, without following links, so that there are no loops and nothing from outside."""

    def __init__(self, root: Path, exclude: bytes, skipped: Counter[str]) -> None:
        self._root = os.fsencode(root)
        self._exclude = exclude
        self._skipped = skipped
        self._hidden: list[str] = []  # directories that could not be listed: what is in them is not known to be gone
        self.names: set[str] = set()

    def files(self) -> Iterator[tuple[str, bytes, os.stat_result]]:
        """Yield (name, path, status) of each regular file. Raises ConfigError if the root is gone."""
        pending = [self._root]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(folder) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                self._cannot_list(folder, error)
                continue
            for entry in entries:
                if entry.is_symlink():
                    self._skipped[LINK] += 1
                elif entry.is_dir(follow_symlinks=False):
                    if os.fsdecode(entry.name) not in EXCLUDED and entry.path != self._exclude:
                        pending.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    self._skipped[SPECIAL] += 1
                elif (status := _status(entry)) is None:
                    self._skipped[VANISHED] += 1
                else:
                    name = self._name(entry.path)
                    self.names.add(name)
                    yield name, entry.path, status

    def _cannot_list(self, folder: bytes, error: OSError) -> None:
        if folder == self._root:
            raise ConfigError(
                f"cannot list {os.fsdecode(folder)}: {error.strerror}: nothing was fed or deleted; check the folder"
            ) from error
        if not isinstance(error, FileNotFoundError):  # else it is gone with all that was in it
            self._skipped[UNREADABLE] += 1
            self._hidden.append(self._name(folder) + "/")

    def _name(self, path: bytes) -> str:
        return name_of(path[len(self._root) :].lstrip(b"/"))

    def hides(self, name: str) -> bool:
        """Whether the name is below a directory that could not be listed."""
        return any(name.startswith(folder) for folder in self._hidden)


def _status(entry: "os.DirEntry[bytes]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def contents(path: bytes, bytes_max: int) -> tuple[bytes | None, os.stat_result, bool]:
    """Return (bytes, status, whether it did not change meanwhile); no bytes if there are more than ``bytes_max``.

    Raises OSError; NotRegular without having waited for a fifo's other end or woken a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegular from error
        raise
    try:
        before = os.fstat(handle)
        if not stat.S_ISREG(before.st_mode):
            raise NotRegular
        if before.st_size > bytes_max:
            return None, before, True
        pieces: list[bytes] = []
        left = bytes_max + 1  # it may grow meanwhile
        while left > 0 and (piece := os.read(handle, left)):
            pieces.append(piece)
            left -= len(piece)
        after = os.fstat(handle)
    finally:
        os.close(handle)
    data = b"".join(pieces)
    stable = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and len(data) == after.st_size
    return (None if len(data) > bytes_max else data), after, stable


def name_of(path: bytes) -> str:
    """Return the document name of a relative path."""
    text = path.replace(b"\\", b"\\\\").decode("utf-8", "surrogateescape")
    return "".join(f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in text)
