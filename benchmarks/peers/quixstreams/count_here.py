"""The counting job of the cluster benchmark on quixstreams: each record comes out with the machine that counted it.

It runs in an environment of its own and imports nothing of this repository. Arguments: bootstrap, input, output,
consumer group, state directory, machine, commit interval in ms. At SIGTERM it leaves the group.
"""

import sys
from functools import partial

from quixstreams import Application, State


def count(machine: str, value: str, counts: State) -> str:
    """Count one more, and tell: MACHINE VALUE COUNT."""
    number = int(counts.get("count", "0")) + 1
    counts.set("count", f"{number:070}")
    return f"{machine} {value} {number}"


def main(bootstrap: str, events: str, counted: str, name: str, directory: str, machine: str, ms: str) -> None:
    """Run until it is asked to stop."""
    application = Application(
        broker_address=bootstrap,
        consumer_group=name,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=int(ms) / 1000,
        state_dir=directory,
        loglevel="WARNING",
    )
    read = application.topic(events, key_deserializer="str", value_deserializer="str")
    told = application.topic(counted, key_serializer="str", value_serializer="str")
    application.dataframe(read).apply(partial(count, machine), stateful=True).to_topic(told)
    application.run()


if __name__ == "__main__":
    main(*sys.argv[1:8])
