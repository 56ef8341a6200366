"""History through a job's own tasks: ``make bench EXPERIMENT=backfill``, ``python -m benchmarks.backfill [--help]``.

Counting (W1): JSON messages of about 95 bytes in Parquet, 10,000 keys, 4 partitions, counts with a changelog.
Timed from the call to the outcome; the session is there already. Restoring: workers start with nothing on their disks,
from the files that a backfill leaves, and from the changelogs; with LOG=kafka there, and beside Kafka Streams.
Growth: ten million messages of 10⁵ to 10⁷ keys, on one core and on two, and the memory that takes, once whatever the
rounds. It takes about ten minutes on two free cores; GROWTH=1: only this.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks.growth import growing, plan, show_growth
from benchmarks.reading import reading, show_reading
from benchmarks.restoring import Silent, restoring, show_restoring
from benchmarks.running import keep, median, run_all, say_where, show, taken, tree_cpu_s
from benchmarks.streams_restoring import on_kafka
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings

JOB = "benchmarks.counting"
KEYS = 10_000
FILE_ROWS = 250_000
BATCH_ROWS = 10_000  # Spark's own

Result = dict[str, float]


def history(directory: Path, records: int) -> None:
    """Write the messages as Parquet files."""
    directory.mkdir()
    for begin in range(0, records, FILE_ROWS):
        columns = zip(*_messages(range(begin, min(records, begin + FILE_ROWS))), strict=True)
        table = dict(zip(("key", "value", "timestamp"), map(pa.array, columns), strict=True))
        pq.write_table(pa.table(table), directory / f"{begin:012d}.parquet")


def _messages(ids: range) -> Iterator[tuple[str, str, int]]:
    """Yield key, message and timestamp."""
    rng, note = random.Random(ids.start), "n" * 30
    for number in ids:
        key = f"key-{rng.randrange(KEYS):06d}"
        yield key, f'{{"id":{number},"key":"{key}","amount":{number % 97},"note":"{note}"}}', number


def backfilling(directory: Path, records: int, cores: int) -> Result:
    """Backfill the counting job; check that the counts are right."""
    from grete.spark.backfill.backfill import BackfillSpec, backfill
    from grete.spark.backfill.ranges import parse_until
    from grete.spark.backfill.sources import sources_of
    from grete.spark.format.options import LogSpec
    from grete.spark.session import local_session

    os.environ["BENCH_JOB"] = "process"
    from benchmarks.counting import job

    history(directory / "history", records)
    job_directory, settings = JobDirectory(directory / "job"), Settings()
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    spark = local_session(f"local[{cores}]")
    where = LogSpec("embedded", "", str(job_directory.directory / "log.db"))
    result: Result = {}
    for round_ in ("first", "second"):  # the first one also warms Spark up
        sources = sources_of(job, [str(directory / "history")])
        wanted = BackfillSpec(job, JOB, where, settings, sources, str(directory / "work"))
        begun, cpu = time.perf_counter(), tree_cpu_s()
        done = backfill(spark, wanted, parse_until(None, job), log, Silent())
        result[f"{round_}_per_s"] = records / (time.perf_counter() - begun)
        result[f"{round_}_cpu_us"] = (tree_cpu_s() - cpu) / records * 1e6
        if sum(report.records for report in done.reports) != records:
            raise SystemExit("not all records were processed: the measurement does not count")
    frame = spark.read.format("changelog").options(job=JOB, store="counts", directory=str(job_directory.directory))
    begun = time.perf_counter()
    total = frame.load().groupBy().sum("value").collect()[0][0]
    if total != records:
        raise SystemExit(f"{total} counted, {records} in the history: the measurement does not count")
    spark.stop()
    log.close()
    return result


def executing(_directory: Path, records: int) -> Result:
    """Count history in one task as an executor does, without Spark around it: the CPU that a record costs."""
    from grete.spark.backfill.plans import StagePlan
    from grete.spark.backfill.run.executor import run_stage
    from grete.spark.format.options import LogSpec

    os.environ["BENCH_JOB"] = "process"
    from benchmarks.counting import job

    rows = list(_messages(range(records)))
    batches = []
    for begin in range(0, records, BATCH_ROWS):
        keys, values, times = (pa.array(column) for column in zip(*rows[begin : begin + BATCH_ROWS], strict=True))
        columns = {"key": keys.cast(pa.binary()), "value": values.cast(pa.binary()), "timestamp": times}
        batches.append(
            pa.RecordBatch.from_pydict(columns | {"offset": times, "refused": pa.nulls(len(times), "string")})
        )
    outside = dict.fromkeys(job.external_sinks(), job.partitions)
    nowhere = LogSpec("embedded", "", "")
    plan = StagePlan(
        JOB,
        0,
        Settings(),
        outside,
        1,
        outputs=False,
        bulk_write=None,
        snapshots=None,
        where=nowhere,
        tails={},
        files=frozenset({job.stages[0].topics_read()[0].name}),
        from_rows=True,
    )
    begun = time.process_time()
    if sum(len(batch) for batch in run_stage(plan, 0, 1, batches)) < KEYS:
        raise SystemExit("keys are missing: the measurement does not count")
    return {"cpu_us": (time.process_time() - begun) / records * 1e6}


def main() -> None:
    """Run all rounds, print the tables; with a name first, one measurement."""
    measurements: dict[str, Callable[..., Result]] = {
        "backfilling": backfilling,
        "executing": executing,
        "growing": growing,
        "on_kafka": on_kafka,
        "reading": reading,
        "restoring": restoring,
    }
    if len(sys.argv) > 1 and sys.argv[1] in measurements:
        directory = Path(tempfile.mkdtemp(prefix="grete-bench-"))
        try:
            print(json.dumps(measurements[sys.argv[1]](directory, *map(int, sys.argv[2:]))))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--rounds", type=int, default=3)
    log = os.environ.get("LOG") or "embedded"
    parser.add_argument("--log", default=log, help="embedded, or kafka: only the restoring, on a broker of its own")
    growth = bool(os.environ.get("GROWTH"))
    parser.add_argument("--growth", action="store_true", default=growth, help="only the growth, by keys and cores")
    options = parser.parse_args()
    if options.log not in ("embedded", "kafka"):
        raise SystemExit(f"--log {options.log}: embedded, or kafka, with a broker of its own")
    if options.growth:
        grow()
        return
    if options.log == "kafka":
        results = run_all(
            "benchmarks.backfill", {"restore": ("on_kafka", str(options.keys), str(options.cores))}, options.rounds
        )
        say_where("pyspark", "rocksdict", "confluent-kafka")
        keep("restoring", taken("pyspark", "rocksdict", "confluent-kafka"), [show_restoring(results, options.keys)])
        return
    steps = {
        "backfill": ("backfilling", str(options.records), str(options.cores)),
        "execute": ("executing", str(options.records)),
        "restore": ("restoring", str(options.keys), str(options.cores)),
        "read": ("reading", str(options.records), str(options.cores)),
    }
    results = run_all("benchmarks.backfill", steps, options.rounds)
    say_where("pyspark", "pyarrow", "rocksdict")
    table = Table(title=f"History of {options.records:,} messages, counted by the job's own task")
    for column in ("", "records/s (median)", "CPU µs a record, of all processes"):
        table.add_column(column, justify="left" if not column else "right")
    for label, round_ in (("in a new session", "first"), ("again", "second")):
        rate, cpu_us = (median(results, "backfill", f"{round_}_{figure}") for figure in ("per_s", "cpu_us"))
        table.add_row(label, f"{rate:,.0f}", f"{cpu_us:.2f}")
    cpu_us = median(results, "execute", "cpu_us")
    table.add_row("one task as an executor runs it, without Spark", f"{1e6 / cpu_us:,.0f} a core", f"{cpu_us:.2f}")
    tables = [show(table), show_reading(results, options.records), show_restoring(results, options.keys)]
    keep("backfill", taken("pyspark", "pyarrow", "rocksdict"), tables)
    grow()


def grow() -> None:
    """Measure by keys and cores, all in one run."""
    results = run_all("benchmarks.backfill", plan(), 1)
    say_where("pyspark", "pyarrow", "rocksdict")
    keep("growth", taken("pyspark", "pyarrow", "rocksdict"), [show_growth(results)])


if __name__ == "__main__":
    main()
