"""The jobs whose windows are measured on Kafka: records counted by key and window, final results only.

The environment says which kind of window a run has, and names its topics.
"""

import os
from typing import Any

from benchmarks.counting import PARTITIONS
from grete import (
    HoppingWindow,
    Input,
    Job,
    Output,
    Record,
    SessionWindow,
    SlidingWindow,
    Task,
    Topic,
    TumblingWindow,
    Window,
    bytes_serde,
    int64,
    utf8,
)

RUN = os.environ.get("BENCH_RUN", "0")
SIZE_MS, ADVANCE_MS = 60_000, 20_000
GAP_MS = 8_000
DIFFERENCE_MS = 20_000
COUNTS: Any = {"name": "counts", "key": utf8, "value": int64}
WINDOWS: dict[str, Any] = {
    "tumbling": TumblingWindow(size_ms=SIZE_MS, **COUNTS),
    "hopping": HoppingWindow(size_ms=SIZE_MS, advance_ms=ADVANCE_MS, **COUNTS),
    "session": SessionWindow(gap_ms=GAP_MS, merge=int.__add__, **COUNTS),
    "sliding": SlidingWindow(difference_ms=DIFFERENCE_MS, **COUNTS),
}


def events_topic(messages: int) -> str:
    """Return the name of the topic with that many events, which all runs share."""
    return f"bench-timed-{messages}"


class Count(Task):
    """Counts the records of each key and window, and tells each count once, when the window is over."""

    events = Input(Topic(events_topic(int(os.environ.get("BENCH_MESSAGES", "0"))), key=utf8, value=bytes_serde))
    counts = WINDOWS[os.environ.get("BENCH_WINDOW", "tumbling")]
    counted = Output(Topic(f"bench-windows-{RUN}", key=utf8, value=utf8))

    def process(self, record: Record[str, bytes]) -> None:
        """Count one more."""
        self.counts.update(record.key, record.timestamp, lambda count: (count or 0) + 1)

    def on_window(self, window: Window[str, int]) -> None:
        """Tell."""
        self.counted.send(window.key, str(window.value))


job = Job(f"bench-windows-{RUN}", stages=[Count], partitions=PARTITIONS)
