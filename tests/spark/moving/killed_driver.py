"""Rescales a job on a Spark of its own until it is killed, by itself.

killed_driver.py DIRECTORY NAME MOMENT: "writing", once an executor has written a part; "outcome", before it decides.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings
from grete.spark.moving.spark_mover import SparkMover
from grete.spark.moving.write import WritePlan
from grete.state.write.rescale import rescale
from tests.spark.backfill.scene import Silent
from tests.spark.moving.scene import Moving
from tests.state.killed_bulk_writes import Deadly

LIMIT_S = 120
CLAIMS = COMMITS = 6  # of two stages with 3 partitions


class Halfway(SparkMover):
    """The attempt that comes first stands in the middle of its rows until the driver is gone."""

    def writer(self, plan: WritePlan) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """Return the writer, with that."""
        write, file = super().writer(plan), self._into.directory / "halfway"

        def standing(batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                yield batch
                file.touch()
                time.sleep(LIMIT_S)

        return lambda batches: write(standing(batches))


def kill_when(there: Path) -> None:
    """Kill this process once there is such a file."""
    while not there.exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def main(directory: Path, name: str, moment: str) -> None:
    """Rescale the job from two partitions to three."""
    job = Moving(directory, name, 2)
    log: EmbeddedLog = Deadly(job.job_directory.directory / "log.db")
    kind = SparkMover
    if moment == "writing":
        kind = Halfway
        threading.Thread(target=kill_when, args=[job.job_directory.directory / "halfway"], daemon=True).start()
    else:
        assert isinstance(log, Deadly)
        log.left = CLAIMS + COMMITS + 1
    with kind("local[1]", job.where, job.where, None, Silent()) as mover:
        rescale(log, job.job, 3, Settings(), own_topics=True, mover=mover)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
