"""The cost of partitions: ``python -m benchmarks.wide [partitions=8,32,128] [rate=4000] [warm=60] [seconds=40] …``.

Two stages (route by value, count by key), exactly once, a commit a second, two processes or threads, each cell on a
broker of its own. ``records=400000`` measures a backlog instead of a steady load, ``count=1`` counts messages,
``early=1`` takes the time from input to a reader of committed outputs.
``PEERS=1`` has Kafka Streams beside it; ``tasks=4`` gives each of Grete's stages four tasks for all partitions.
``mode=deterministic`` is of Grete's job; ``settings=name=value;name=value`` are Grete's, ``client=…`` those of its
Kafka clients. Linux only.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, say_where, taken
from benchmarks.wide.cell import GRETE, STREAMS, Asked, backlog, steady
from benchmarks.wide.counted import counted
from benchmarks.wide.early import early

WHO = ["partitions", "tasks a stage", "program", "records/s"]
STEADY = [*WHO, "cores of the job", "of the broker", "MiB", "s behind at the end"]
BACKLOG = [*WHO, "s to the first", "µs of the job a record", "of the broker"]
EARLY = [*WHO, "outputs", "ms p50", "p99", "most"]
COUNTED = [
    *WHO,
    "markers/s",
    "progress/s",
    "frames/s",
    "records a frame",
    "messages of changelogs/s",
    "threads of a process",
]


def main(given: Mapping[str, str]) -> None:
    """Measure each cell and print its row at once; WRITE=1 puts the table into the docs."""
    say_where("confluent-kafka", "rocksdict")
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    records = int(given.get("records", 0))
    kind = next((each for each in ("records", "count", "early") if each in given), "")
    programs = [STREAMS, GRETE] if os.environ.get("PEERS") and kind in {"", "records"} else [GRETE]
    settings, client = (tuple(filter(None, given.get(name, "").split(";"))) for name in ("settings", "client"))
    rate, interval_ms, processes = (
        int(given.get(*each)) for each in (("rate", 4_000), ("interval", 1_000), ("processes", 2))
    )
    mode = given.get("mode", "aligned")
    warm_s, seconds = float(given.get("warm", 60)), float(given.get("seconds", 40))
    for partitions in map(int, given.get("partitions", "8,32,128").split(",")):
        for program in programs:
            tasks = int(given.get("tasks", 0)) if program == GRETE else 0
            asked = Asked(program, partitions, interval_ms, processes, settings, client, tasks, mode)
            with tempfile.TemporaryDirectory(prefix="grete-wide-") as name:
                row = _row(asked, Path(name), rate, records, warm_s, seconds, kind)
            rows.append([partitions, tasks or partitions, program, *row])
            console.print(*rows[-1])
    title = f"Two stages, exactly once, a commit each {interval_ms:,} ms, {processes} processes or threads"
    name, columns = {
        "records": ("wide_backlog", BACKLOG),
        "count": ("wide_counts", COUNTED),
        "early": ("wide_early", EARLY),
    }.get(kind, ("wide", STEADY))
    keep(name, run, [Table(title, columns, rows)])


def _row(asked: Asked, folder: Path, rate: int, records: int, warm_s: float, seconds: float, kind: str) -> list[Cell]:
    if kind == "early":
        came = early(asked, folder, rate, warm_s, seconds)
        return [rate, came.outputs, round(came.p50), round(came.p99), round(came.most)]
    if kind == "records":
        worked = backlog(asked, folder, records)
        return [round(worked.per_s), round(worked.first_s, 1), round(worked.job_us, 1), round(worked.broker_us, 1)]
    if kind == "count":
        found = counted(asked, folder, rate, warm_s, seconds)
        sent = *map(round, (found.markers, found.progress, found.frames)), round(found.records_a_frame, 1)
        return [rate, *sent, round(found.changelogs), found.threads]
    took = steady(asked, folder, rate, warm_s, seconds)
    return [rate, round(took.job_cores, 2), round(took.broker_cores, 2), round(took.mib), round(took.behind_s, 1)]


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
