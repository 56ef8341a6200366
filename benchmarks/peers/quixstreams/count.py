"""The counting job on quixstreams: JSON events by key, each count written out, counts in RocksDB with a changelog.

It runs in an environment of its own and imports nothing of this repository. Arguments: see ../tools.py.
"""

import os
import sys
import threading
from typing import Any

from quixstreams import Application, State


def count(event: dict[str, Any], counts: State) -> dict[str, Any]:
    """Count one more, and tell."""
    number = counts.get("count", 0) + 1
    counts.set("count", number)
    return {"key": event["key"], "count": number}


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
    read = application.topic(events, key_deserializer="str", value_deserializer="json")
    told = application.topic(counted, key_serializer="str", value_serializer="json")
    application.dataframe(read).apply(count, stateful=True).to_topic(told)
    application.run()


def end_with_input() -> None:
    """End when who started us has ended."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    main(*sys.argv[1:8])
