"""A worker that is killed while its store takes the files of a backfill: a script.

killed_ingests.py STEP ARGUMENTS…: ``grete ARGUMENTS…``, killed before the STEP-th file (0 is the first), or before the
changelog position, or before the files are deleted, if there are fewer.
"""

import os
import signal
import sys
from typing import Any

from grete.cli import command_line
from grete.execution.prebuilt import sst_install
from grete.stores.rocksdb import store as rocksdb
from grete.stores.rocksdb.sst_ingest import hand_over
from grete.stores.rocksdb.sst_snapshot import remove


def deadly(function: Any, left: list[int]) -> Any:
    """Return a function that counts down, and kills this process instead of its last call."""

    def call(*arguments: Any) -> Any:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return function(*arguments)

    return call


if __name__ == "__main__":
    steps = [int(sys.argv[1])]
    vars(rocksdb)["hand_over"] = deadly(hand_over, steps)
    write = rocksdb.RocksStore.write

    def write_position(self: rocksdb.RocksStore, writes: Any, changelog_position: bytes | None = None) -> None:
        """Count it as a step."""
        deadly(write, steps)(self, writes, changelog_position)

    rocksdb.RocksStore.write = write_position
    vars(sst_install)["remove"] = deadly(remove, steps)
    sys.argv = ["grete", *sys.argv[2:]]
    command_line()
