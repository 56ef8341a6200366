"""Pauses and rates of members: ``make bench EXPERIMENT=cluster [KEYS=100000] [SYSTEMS=Grete] [WRITE=1]``.

Machines are network namespaces with a real broker at their switch, as root. Two members share six partitions; a third
joins, one leaves, one dies with its machine. A reader of committed records sees how long records of each partition
waited at most, those that moved and those that did not. Then one, two and four members count records that wait for
them. Each record must be counted once and in order.
"""

import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.cluster.scene import Pause, Scene, scene
from benchmarks.cluster.systems import RATED, SYSTEMS
from benchmarks.results import Cell, Kept, Run, Table, read, write
from benchmarks.running import console, measure_any, taken

PARTITIONS = 6
KEYS = int(os.environ.get("KEYS") or 100_000)
MEMBERS = (1, 2, 4)
BURST, WARM_UP = 200_000, 20_000  # records
RATE_KEYS = 20_000
COLUMNS = [
    "",
    "event",
    "partitions moved",
    "longest pause of those, s",
    "median pause of those, s",
    "longest of others, s",
]
RATES = ["", "members", "messages/s"]


def events(on: Scene) -> dict[str, Pause]:
    """Return the pauses that each event cost."""
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


def rate(on: Scene, members: int) -> float:
    """Return the records a second that this number of members counts."""
    names = {f"m{number + 1}" for number in range(members)}
    for name in sorted(names):
        on.start(name)
    on.fill()
    on.until("the members share the partitions", lambda: on.spread(names))
    on.rate(WARM_UP)
    return on.rate(BURST)


def tried(*arguments: str) -> dict[str, Any] | None:
    """Return the results of a measurement; None if it failed, which is told: the others are measured all the same."""
    try:
        return measure_any("benchmarks.cluster", *arguments)
    except SystemExit as error:
        if not isinstance(error.code, str):  # a signal: we are to end
            raise
        console.print(f"{arguments}: {error}", markup=False)
        return None


def measured() -> Iterator[list[Table]]:
    """Measure all that is asked for; yield what is known so far, each time that there is more."""
    asked = os.environ.get("SYSTEMS") or ""
    pauses = Table(f"Pauses of partitions: {KEYS:,} keys, {PARTITIONS} partitions", COLUMNS, [])
    rates = Table(f"Messages a second: {RATE_KEYS:,} keys, {PARTITIONS} partitions, two cores for all", RATES, [])
    for system in [*SYSTEMS.values(), *RATED.values()]:
        if system.name.startswith(asked):
            system.prepare()
    for name in (name for name in SYSTEMS if name.startswith(asked)):
        figures = tried("one", name)
        failed: list[list[Cell]] = [[name, "(did not come to its end)", *[None] * (len(COLUMNS) - 2)]]
        pauses.rows += failed if figures is None else figures["rows"]
        yield [pauses]
    for name in (name for name in RATED if name.startswith(asked)):
        for members in MEMBERS:
            figures = tried("rate", name, str(members))
            rates.rows.append([name, members, None if figures is None else round(figures["rate"])])
            yield [pauses, rates]


def beside(kept: Kept, run: Run) -> Kept:
    """Return a run behind the earlier ones, and those without the systems that it has measured again."""
    again = {(table.title, row[0]) for table in run.tables for row in table.rows}
    for old in kept.runs:
        for table in old.tables:
            table.rows = [row for row in table.rows if (table.title, row[0]) not in again]
        old.tables = [table for table in old.tables if table.rows]
    return Kept([*(old for old in kept.runs if old.tables), run])


def main() -> None:
    """Measure one system, as a process of its own; or all, print the table, and with WRITE=1 put it into the docs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the namespaces are to be removed
    if sys.argv[1:2] == ["one"]:
        with scene(SYSTEMS[sys.argv[2]], 3, PARTITIONS, KEYS) as on:
            print(json.dumps({"rows": rows(sys.argv[2], events(on))}))
        return
    if sys.argv[1:2] == ["rate"]:
        with scene(RATED[sys.argv[2]], int(sys.argv[3]), PARTITIONS, RATE_KEYS) as on:
            print(json.dumps({"rate": rate(on, int(sys.argv[3]))}))
        return
    run = taken("confluent-kafka", "rocksdict")
    kept = read("cluster")
    for run.tables in measured():
        console.print(*run.tables[-1].rows[-4:], sep="\n", soft_wrap=True)
        if os.environ.get("WRITE"):
            write("cluster", beside(kept, run))


if __name__ == "__main__":
    main()
