"""Refusal of files that another user of this machine could change: a job's folder, settings, options that load code."""

import os
import stat
from pathlib import Path

from grete.errors import ConfigError

_ROOT = 0  # the user id of root, on every system


def require_own(path: Path, instead: str) -> None:
    """Raise ConfigError if somebody else owns a file or a folder, or if everybody may write there.

    ``instead``: what to do. A folder of root's may be open to everybody, as one that a container is given.
    """
    found, me = path.stat(), os.geteuid()
    if found.st_uid not in (me, _ROOT):
        raise ConfigError(
            f"{path} belongs to user {found.st_uid}, and this process is user {me}: its owner could change what "
            f"the job does: {instead}"
        )
    everybody = found.st_mode & stat.S_IWOTH and not (stat.S_ISDIR(found.st_mode) and found.st_uid == _ROOT != me)
    if everybody and not found.st_mode & stat.S_ISVTX:
        raise ConfigError(f"{path} can be changed by every user of this machine: chmod o-w {path}, or {instead}")
