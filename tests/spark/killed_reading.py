"""A driver that is killed while it reads, before it has claimed any task: a script.

killed_reading.py rescale DIRECTORY NAME: as soon as Spark reads the state of a job of ``tests.spark.moving.scene``.
killed_reading.py COMMAND…: ``grete COMMAND…``, in place of its first claim.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark import StatusTracker

from grete.cli import command_line
from grete.logs import address
from grete.spark.moving.spark_mover import SparkMover
from grete.spark.session import local_session
from grete.state.write.moving.routes import Route
from tests.spark.backfill.scene import Silent
from tests.spark.moving.scene import Moving
from tests.state.killed_bulk_writes import Deadly


class Watched(SparkMover):
    """Dies while executors read."""

    def check(self, routes: Sequence[Route], *, assume_keyed: bool) -> None:
        """Read, until there is a task of Spark at work."""
        tracker = local_session("local[1]").sparkContext.statusTracker()
        threading.Thread(target=_kill_at_work, args=[tracker], daemon=True).start()
        super().check(routes, assume_keyed=assume_keyed)


def _kill_at_work(tracker: StatusTracker) -> None:
    while True:
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        if any(stage is not None and stage.numActiveTasks for stage in stages):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.005)


def main() -> None:
    """Do as the arguments say."""
    if sys.argv[1] == "rescale":
        job = Moving(Path(sys.argv[2]), sys.argv[3], 2)
        with Watched("local[1]", job.where, job.where, None, Silent()) as mover:
            job.rescale(3, mover)
        return
    Deadly.left = 1
    address.EmbeddedLog = Deadly  # type: ignore[attr-defined]  # what the command opens
    command_line()


if __name__ == "__main__":
    main()
