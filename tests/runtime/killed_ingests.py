"""A worker that is killed while its store takes the files of a backfill: a script.

killed_ingests.py STEP ARGUMENTS…: ``grete ARGUMENTS…``, killed before the STEP-th file (0 is the first), or before the
pointer, or before the files are deleted, if there are fewer.
"""

import os
import signal
import sys
from typing import Any

from framework.cli import main
from framework.runtime import prebuilt
from framework.stores import rocks
from framework.stores.bulk import hand_over
from framework.stores.prebuilt import remove


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
    vars(rocks)["hand_over"] = deadly(hand_over, steps)
    write = rocks.RocksStore.write

    def write_pointer(self: rocks.RocksStore, writes: Any, pointer: bytes | None = None) -> None:
        """Count it as a step."""
        deadly(write, steps)(self, writes, pointer)

    rocks.RocksStore.write = write_pointer  # type: ignore[method-assign]
    vars(prebuilt)["remove"] = deadly(remove, steps)
    sys.argv = ["grete", *sys.argv[2:]]
    main()
