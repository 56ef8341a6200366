"""Records counted by key and window on quixstreams, final results only, in RocksDB with a changelog.

It runs in an environment of its own and imports nothing of this repository. Arguments: see ../tools.py.
"""

import os
import sys
import threading
from typing import Any

from quixstreams import Application

SIZE_MS, ADVANCE_MS, DIFFERENCE_MS = 60_000, 20_000, 20_000  # as in ../../windowing.py


def main(bootstrap: str, events: str, counted: str, name: str, directory: str, guarantee: Any, ms: str) -> None:
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
    read = application.topic(events, key_deserializer="str", value_deserializer="bytes")
    told = application.topic(counted, key_serializer="str", value_serializer="str")
    records = application.dataframe(read)
    windows = {
        "tumbling": lambda: records.tumbling_window(SIZE_MS),
        "hopping": lambda: records.hopping_window(SIZE_MS, ADVANCE_MS),
        "sliding": lambda: records.sliding_window(DIFFERENCE_MS),
    }
    closing: Any = "key" if sys.argv[9] == "sliding" else "partition"
    counts = windows[sys.argv[9]]().count().final(closing_strategy=closing)
    counts.apply(lambda window: str(window["value"])).to_topic(told)
    application.run()


def end_with_input() -> None:
    """End when who started us has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    main(*sys.argv[1:8])
