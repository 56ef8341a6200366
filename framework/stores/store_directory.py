"""The directory of one store: private, owned by one process at a time, emptied by a rename."""

import os
import shutil
from pathlib import Path

from grete.errors import ConfigError, TransientError
from grete.file_lock import open_lock, try_lock
from grete.trusted import require_own

HOME = ".grete"  # the folder that holds the directories of jobs, in the current one


def make_private(directory: Path) -> None:
    """Make the directory and its missing parents, readable by this user only.

    Raises ConfigError if that cannot be, or if the directory is another user's, who could replace what is in it.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the directory {directory}: {error}: choose another state directory") from error
    if not directory.is_dir() or not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"{directory} is not a directory that this process may write: choose another state directory")
    for path in (directory, directory.parent) if directory.parent.name == HOME else (directory,):
        require_own(path, "run it as that user, or choose another directory")


class StoreDirectory:
    """A locked directory. The lock is a file beside it, so that it is held across a wipe.

    RocksDB's own LOCK goes away with the directory: the next owner could open what is half deleted (KAFKA-9618).
    """

    def __init__(self, path: Path) -> None:
        """Lock and make the directory.

        Raises TransientError if another process has it, ConfigError if it cannot be made.
        """
        self.path = path
        make_private(path.parent)
        lock = path.with_name(path.name + ".lock")
        try:
            self._lock = open_lock(lock)
        except OSError as error:
            raise ConfigError(f"cannot open the lock file {lock}: {error}") from error
        try:
            try_lock(self._lock)
        except OSError as error:
            os.close(self._lock)
            raise TransientError(
                f"{path} is in use by another process, such as a worker of this partition: stop that one (its lock "
                f"is {lock})"
            ) from error
        try:
            for leftover in self._wiped():
                shutil.rmtree(leftover, ignore_errors=True)
            make_private(path)
        except BaseException:
            self.close()
            raise

    def wipe(self) -> None:
        """Rename the directory, make a new one, delete the old one. Raises TransientError if it cannot be renamed."""
        aside = self._set_aside()
        make_private(self.path)
        shutil.rmtree(aside, ignore_errors=True)  # what is left is deleted at the next start

    def replace(self, by: Path) -> None:
        """Put another directory, of the same disk, in the place of this one. Raises TransientError if it cannot be.

        A kill in between leaves no directory: the next start makes an empty one.
        """
        aside = self._set_aside()
        try:
            by.rename(self.path)
        except OSError as error:
            raise TransientError(f"cannot rename {by} to {self.path}: {error}") from error
        shutil.rmtree(aside, ignore_errors=True)

    def _set_aside(self) -> Path:
        number = max((int(path.name.rpartition("-")[2]) for path in self._wiped()), default=0) + 1
        aside = self.path.with_name(f"{self.path.name}.wiped-{number}")
        try:
            self.path.rename(aside)
        except OSError as error:
            raise TransientError(f"cannot rename {self.path} to {aside}: {error}") from error
        return aside

    def close(self) -> None:
        """Give up the lock. A second close does nothing."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _wiped(self) -> list[Path]:
        prefix = f"{self.path.name}.wiped-"
        return [
            path
            for path in self.path.parent.iterdir()
            if path.name.startswith(prefix) and path.name[len(prefix) :].isdigit()
        ]


def wipe_directory(path: Path) -> None:
    """Empty the directory of a store that cannot even be opened. Raises TransientError if a process has it open."""
    directory = StoreDirectory(path)
    try:
        directory.wipe()
    finally:
        directory.close()
