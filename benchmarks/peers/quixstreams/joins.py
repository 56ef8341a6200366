"""Two topics joined by key on quixstreams, in RocksDB with a changelog.

It runs in an environment of its own and imports nothing of this repository. Arguments: see ../tools.py.
"""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from quixstreams import Application

BEFORE_MS, AFTER_MS, RETENTION_MS, DIGITS = 10_000, 10_000, 600_000, 8  # as in ../../joining.py
GRACE_MS = 60_000  # what it keeps: not less than either bound
begun: list[int] = []


def told(left: str | None, right: str | None) -> str:
    """Return the text of a pair; note the time of the first one."""
    if not begun:
        begun.append(time.time_ns() // 1_000_000)
        Path(os.environ["BENCH_STARTED"]).write_text(f"{begun[0]}\n", "ascii")
    return f"{'-' if left is None else left[:DIGITS]}:{'-' if right is None else right[:DIGITS]}"


def main(bootstrap: str, topics: str, joined: str, name: str, directory: str, guarantee: Any, ms: str) -> None:
    """Run until it is ended. ``ms``: between two commits."""
    application = Application(
        broker_address=bootstrap,
        consumer_group=name,
        auto_offset_reset="earliest",
        processing_guarantee=guarantee,
        commit_interval=int(ms) / 1000,
        state_dir=directory,
        loglevel="WARNING",
    )
    left, right = (
        application.dataframe(application.topic(topic, key_deserializer="str", value_deserializer="str"))
        for topic in topics.split(",")
    )
    kind: Any = sys.argv[9]
    if kind == "as of":
        pairs = left.join_asof(right, how="inner", on_merge=told, grace_ms=RETENTION_MS)
    else:
        bounds = {"backward_ms": BEFORE_MS, "forward_ms": AFTER_MS, "grace_ms": GRACE_MS}
        pairs = left.join_interval(right, how=kind, on_merge=told, **bounds)
    pairs.to_topic(application.topic(joined, key_serializer="str", value_serializer="str"))
    application.run()


def end_with_input() -> None:
    """End when who started us has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    main(*sys.argv[1:8])
