"""The cost of partitions: ``python -m benchmarks.wide [partitions=8,32,128] [rate=4000] [warm=60] [seconds=40] …``.

Two stages (route by value, count by key), exactly once, a commit a second, two processes or threads, each cell on a
broker of its own. ``records=400000`` measures a backlog instead of a steady load; ``PEERS=1`` has Kafka Streams beside
it; ``tasks=4`` gives each of Grete's stages four tasks for all partitions. ``settings=name=value;name=value`` are
Grete's, ``client=…`` those of its Kafka clients. Linux only.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, say_where, taken
from benchmarks.wide.cell import GRETE, STREAMS, Asked, backlog, steady

STEADY = ["partitions", "records/s", "program", "cores of the job", "of the broker", "MiB", "s behind at the end"]
BACKLOG = ["partitions", "records", "program", "records/s", "s to the first", "µs of the job a record", "of the broker"]


def main(given: Mapping[str, str]) -> None:
    """Measure each cell and print its row at once; WRITE=1 puts the table into the docs."""
    say_where("confluent-kafka", "rocksdict")
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    programs = [STREAMS, GRETE] if os.environ.get("PEERS") else [GRETE]
    settings, client = (tuple(filter(None, given.get(name, "").split(";"))) for name in ("settings", "client"))
    columns, rate, records = STEADY, int(given.get("rate", 4_000)), int(given.get("records", 0))
    interval_ms, processes = int(given.get("interval", 1_000)), int(given.get("processes", 2))
    warm_s, seconds = float(given.get("warm", 60)), float(given.get("seconds", 40))
    for partitions in map(int, given.get("partitions", "8,32,128").split(",")):
        for program in programs:
            asked = Asked(program, partitions, interval_ms, processes, settings, client, int(given.get("tasks", 0)))
            with tempfile.TemporaryDirectory(prefix="grete-wide-") as name:
                if records:
                    columns, worked = BACKLOG, backlog(asked, Path(name), records)
                    rows.append([partitions, records, program, round(worked.per_s), round(worked.first_s, 1)])
                    rows[-1] += [round(worked.job_us, 1), round(worked.broker_us, 1)]
                else:
                    took = steady(asked, Path(name), rate, warm_s, seconds)
                    rows.append([partitions, rate, program, round(took.job_cores, 2), round(took.broker_cores, 2)])
                    rows[-1] += [round(took.mib), round(took.behind_s, 1)]
            console.print(*rows[-1])
    title = f"Two stages, exactly once, a commit each {interval_ms:,} ms, {processes} processes or threads"
    keep("wide_backlog" if records else "wide", run, [Table(title, columns, rows)])


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
