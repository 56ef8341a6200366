"""What moves cost: ``make bench EXPERIMENT=cluster [KEYS=100000] [SYSTEMS=Grete] [WRITE=1]``.

Machines are network namespaces with a real broker at their switch, as root. Two members share six partitions; a third
joins, one leaves, one dies with its machine. A reader of committed records sees how long records of each partition
waited at most, those that moved and those that did not. Each record must be counted once and in order.
"""

import json
import os
import signal
import statistics
import sys

from benchmarks.cluster.scene import Pause, Scene, scene
from benchmarks.cluster.systems import SYSTEMS
from benchmarks.results import Cell, Kept, Table, write
from benchmarks.running import console, measure_any, taken

PARTITIONS = 6
KEYS = int(os.environ.get("KEYS") or 100_000)
COLUMNS = [
    "",
    "event",
    "partitions moved",
    "longest pause of those, s",
    "median pause of those, s",
    "longest of others, s",
]


def events(on: Scene) -> dict[str, Pause]:
    """Return what each event cost."""
    found = {}
    for name in ("m1", "m2"):
        on.start(name)
    on.fill()
    on.until("two members share the partitions", lambda: on.spread({"m1", "m2"}))
    found["nothing"] = on.pause(lambda: None, {"m1", "m2"})
    found["a third member joins"] = on.pause(lambda: on.start("m3"), {"m1", "m2", "m3"})
    found["a member leaves"] = on.pause(lambda: on.leave("m2"), {"m1", "m3"}, evenly=False)
    on.until("the last two share", lambda: on.spread({"m1", "m3"}))
    on.pause(lambda: on.start("m2"), {"m1", "m2", "m3"})
    found["a member dies"] = on.pause(lambda: on.die("m1"), {"m2", "m3"}, evenly=False)
    return found


def rows(name: str, found: dict[str, Pause]) -> list[list[Cell]]:
    """Return the rows of a system."""
    made: list[list[Cell]] = []
    for event, pause in found.items():
        moved = [pause.longest_s[n] for n in pause.moved]
        others = [wait for n, wait in enumerate(pause.longest_s) if n not in pause.moved]
        made.append(
            [
                name, event, len(moved), round(max(moved), 2) if moved else None,
                round(statistics.median(moved), 2) if moved else None, round(max(others), 2) if others else None,
            ]
        )  # fmt: skip
    return made


def main() -> None:
    """Measure one system, as a process of its own; or all, print the table, and with WRITE=1 put it into the docs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespaces are to be removed
    if sys.argv[1:2] == ["one"]:
        with scene(SYSTEMS[sys.argv[2]], 3, PARTITIONS, KEYS) as on:
            print(json.dumps({"rows": rows(sys.argv[2], events(on))}))
        return
    asked = [name for name in SYSTEMS if name.startswith(os.environ.get("SYSTEMS") or "")]
    for name in asked:
        SYSTEMS[name].prepare()
    run = taken("confluent-kafka", "rocksdict")
    found: list[list[Cell]] = []
    for name in asked:
        measured: list[list[Cell]] = measure_any("benchmarks.cluster", "one", name)["rows"]
        for row in measured:
            console.print(*row, sep=", ", soft_wrap=True)
        found += measured
    run.tables = [Table(f"Pauses of partitions: {KEYS:,} keys, {PARTITIONS} partitions", COLUMNS, found)]
    if os.environ.get("WRITE"):
        write("cluster", Kept([run]))


if __name__ == "__main__":
    main()
