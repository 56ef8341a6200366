"""Files as a sink: the outputs of one version of one task become one file, however often they are applied (S2)."""

import os
from collections.abc import Iterable
from pathlib import Path

from framework.errors import TransientError


def apply_outbox(directory: str, stage: str, partition: int, version: int, entries: Iterable[bytes]) -> Path:
    """Write the entries, one a line, as ``part-{stage}-{partition}-{version}.jsonl``, and return its path.

    A file of this name that is there already was made from the same committed entries: it is left alone. Durable on
    return. Raises TransientError if the directory cannot be written; nothing is visible then.
    """
    target = Path(directory) / f"part-{stage}-{partition}-{version}.jsonl"
    # Hidden, and without the suffix: whoever lists the files sees whole ones only. A crash's leftover is overwritten.
    draft = target.with_name(f".{target.stem}.draft")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            with draft.open("wb") as file:
                file.writelines(entry + b"\n" for entry in entries)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(target)
        _sync_directory(target.parent)  # also when the file was there: a crash may have come before the sync
    except OSError as error:
        raise TransientError(
            f"cannot write {target}: {error}: free the disk or fix the directory's permissions"
        ) from error
    return target


def _sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a power loss."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
