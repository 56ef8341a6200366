"""Jobs on a backlog, beside Spark: ``python -m benchmarks.backlog [--records N] [--kills N] [--jobs NAME …]``.

Each job of tasks/ that tests/spark/backlog/ has a feed for runs in real worker processes over 24 hours of event time,
in each mode; some workers die by SIGKILL. Then Spark computes the same over the whole input at once, by queries that
know nothing of the jobs. LOG=kafka: on a broker of its own for each run. WRITE=1 puts the table into
docs/results/backlog.md. Exit code 1 if a result differs.
"""

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.results import RESULTS, Kept, Run, Table, read, write
from benchmarks.running import console, taken
from grete.api.tasks.mode import MODES, Mode
from grete.logs.address import EMBEDDED, KAFKA
from grete.spark.session import local_session
from grete.testing.broker import find_broker
from tests.spark.backlog.feeds import DAY_MS, FEEDS, Fed, backlog
from tests.spark.backlog.in_batch import Rows, in_batch
from tests.spark.backlog.running import Finished, run

COLUMNS = ["job", "mode", "records", "kills", "seconds", "results", "differences"]
DAYS_AGO = 3  # where the backlog begins: a plain topic on Kafka deletes what is older than a week


def measured(name: str, mode: Mode, fed: list[Fed], log: str, kills: int) -> Finished:
    """Run one job in a directory of its own, and with LOG=kafka on a broker of its own."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grete-backlog-")))
        address = EMBEDDED
        if log != EMBEDDED:
            address = KAFKA + stack.enter_context(find_broker(directory / "kafka", loaded=True)).bootstrap
        return run(name, mode, fed, directory, log=address, kills=kills)


def differing(expected: dict[str, Rows], found: dict[str, Rows]) -> int:
    """Return the number of rows that one side has and the other lacks; print some of them."""
    count = 0
    for what, rows in expected.items():
        for said, only in (("missing", rows - found[what]), ("not in the batch", found[what] - rows)):
            count += only.total()
            for row in list(only)[:5]:
                console.print(f"  {what}: {said}: {row}", markup=False)
    return count


def with_run(run_: Run) -> Kept:
    """Return the results with this run in place of the one on the same log with the same jobs."""
    kept = read("backlog").runs if (RESULTS / "backlog.json").exists() else []
    others = [each for each in kept if each.tables[0].title != run_.tables[0].title]
    return Kept(sorted([*others, run_], key=lambda each: each.tables[0].title, reverse=True))


def main() -> int:
    """Run all, print each row as it is there, and the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.backlog", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="in the dense partition; a twentieth in the other")
    parser.add_argument("--kills", type=int, default=6, help="in each run")
    parser.add_argument("--jobs", nargs="+", choices=list(FEEDS), default=list(FEEDS))
    asked = parser.parse_args()
    log = os.environ.get("LOG") or EMBEDDED
    if log not in (EMBEDDED, "kafka"):
        raise SystemExit(f"LOG={log}: {EMBEDDED}, or kafka, with brokers of its own")
    spark = local_session("local[2]", {"spark.sql.shuffle.partitions": "2"})
    start = (time.time_ns() // 1_000_000 // DAY_MS - DAYS_AGO) * DAY_MS
    rows: list[list[int | float | str | None]] = []
    plan = [(name, mode) for name in asked.jobs for mode in MODES]
    expected: dict[str, dict[str, Rows]] = {}
    for number, (name, mode) in enumerate(plan):
        console.print(f"{number + 1} of {len(plan)}: {name}, {mode} …")
        fed = backlog(name, asked.records, start)
        if name not in expected:
            expected[name] = in_batch(spark, name, fed)
        done = measured(name, mode, fed, log, asked.kills)
        differences = differing(expected[name], done.results)
        results = sum(each.total() for each in expected[name].values())
        rows.append([name, mode, len(fed), done.killed, round(done.seconds, 1), results, differences])
        console.print(f"  {done.seconds:.1f} s, {results:,} results, {differences} differences, {done.late} late")
    spark.stop()
    where = "the embedded log" if log == EMBEDDED else "Kafka"
    if asked.jobs != list(FEEDS):
        where += ", " + ", ".join(asked.jobs)
    run_ = taken("pyspark", "rocksdict", "confluent-kafka")
    run_.tables = [Table(f"On {where}: 24 hours of event time, beside Spark", COLUMNS, rows)]
    if os.environ.get("WRITE"):
        write("backlog", with_run(run_))
    return int(any(row[-1] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
