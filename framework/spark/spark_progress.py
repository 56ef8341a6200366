"""Progress of Spark's work: the receiver of messages, and the watcher of a running block."""

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.2  # between two looks at Spark's progress: a bar that moves


class ProgressSink(Protocol):
    """The receiver of progress messages."""

    def say(self, text: str) -> None:
        """Say something."""

    def bar(self, name: str, done: int, total: int) -> None:
        """Say how far something is."""


class SparkProgress:
    """Shows how many of Spark's tasks are done, as long as the block lasts."""

    def __init__(self, spark: "SparkSession", telling: ProgressSink) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._telling = telling
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        done = total = 0
        seen: dict[int, tuple[int, int]] = {}
        while not self._over.wait(POLL_S):
            for number in self._tracker.getActiveStageIds():
                info = self._tracker.getStageInfo(number)
                if info is not None:
                    seen[number] = info.numCompletedTasks, info.numTasks
            done, total = (sum(column) for column in zip(*seen.values(), strict=True)) if seen else (0, 0)
            if total:
                self._telling.bar("Spark tasks", done, total)
        if total:
            self._telling.bar("Spark tasks", total, total)
