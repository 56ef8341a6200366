"""A process that is killed while it takes a snapshot, or while its store becomes one: a script.

killed_snapshots.py STEP NUMBER ARGUMENTS…: ``grete ARGUMENTS…``, killed at the NUMBER-th time (0 is the first) that it
comes to STEP.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from grete.cli import command_line
from grete.execution.prebuilt import snapshot_install
from grete.state.read import snapshot_upload
from grete.stores import snapshot_folder
from grete.stores.rocksdb.store import RocksStore
from grete.stores.snapshot_folder import SnapshotFolder
from grete.stores.store_directory import StoreDirectory

TAKING = {
    "before a copy": (snapshot_upload, "copy_open_store"),
    "before a file is written": (SnapshotFolder, "_put"),
    "within a file": (snapshot_folder, "_sync"),  # its bytes are there, under another name
    "before a manifest is read or written": (snapshot_folder, "_digest"),
    "before the second look": (SnapshotFolder, "_put_missing"),
    "before a deletion": (SnapshotFolder, "_delete"),
}
FETCHING = {
    "before a file is fetched": (SnapshotFolder, "_fetch"),
    "within a fetched file": (snapshot_install._Found, "progress"),
    "before all is durable": (snapshot_folder, "_sync"),
    "before the store is replaced": (StoreDirectory, "replace"),
    "before the store is opened": (RocksStore, "_open"),  # the first time, or after it was replaced
}
STEPS = TAKING | FETCHING | {"between two renames": (StoreDirectory, "_set_aside")}


def deadly(function: Callable[..., Any], left: list[int], *, behind: bool) -> Callable[..., Any]:
    """Return a function that counts down, and kills this process instead of its last call, or ``behind`` it."""

    def call(*arguments: Any, **named: Any) -> Any:
        done = function(*arguments, **named) if behind or left[0] else None
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return done

    return call


if __name__ == "__main__":
    owner, name = STEPS[sys.argv[1]]
    behind = sys.argv[1] == "between two renames"
    setattr(owner, name, deadly(getattr(owner, name), [int(sys.argv[2])], behind=behind))
    sys.argv = ["grete", *sys.argv[3:]]
    command_line()
