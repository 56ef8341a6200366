"""History through a job's own tasks: ``make bench EXPERIMENT=backfill``, ``python -m benchmarks.backfill [--help]``.

Counting (W1): JSON messages of about 95 bytes in Parquet, 10,000 keys, 4 partitions, counts with a changelog.
From the call to the verdict; the session is there. Restoring: many keys of 86 bytes onto an empty disk, out of the
changelog's data as a bootstrap does it, and from SST files as Spark could have built them.
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

from benchmarks.reading import reading, show_reading
from benchmarks.running import console, median, run_all, say_where
from framework.logs.embedded import EmbeddedLog
from framework.runtime.journal import apply_segment
from framework.runtime.place import Place, create_topics
from framework.settings import Settings
from framework.stores.rocks import RocksMemory, RocksStore
from protocol.changelog import ChangelogHeader, ChangelogType, encode_data
from protocol.ids import TopicPartition

JOB = "benchmarks.counting"
KEYS = 10_000
FILE_ROWS = 250_000
BATCH_ROWS = 10_000  # Spark's own
MESSAGE_KEYS = 2_500  # of 80 bytes: 256 KiB, as a worker writes them
VALUE = b"x" * 70

Result = dict[str, float]


class Silent:
    """Takes what a backfill tells."""

    def note(self, text: str) -> None:
        """Forget it."""

    def bar(self, name: str, done: int, total: int) -> None:
        """Forget it."""


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
    from framework.spark.backfill import Wanted, backfill, sources_of
    from framework.spark.covering import parse_until
    from framework.spark.options import Where
    from framework.spark.session import local_session

    os.environ["BENCH_JOB"] = "process"
    from benchmarks.counting import job

    history(directory / "past", records)
    place, settings = Place(directory / "job"), Settings()
    log = EmbeddedLog(place.directory / "log.db")
    create_topics(job, log)
    spark = local_session(f"local[{cores}]")
    where = Where("embedded", "", str(place.directory / "log.db"))
    result: Result = {}
    for round_ in ("first", "second"):  # the first one also warms Spark up
        sources = sources_of(job, [str(directory / "past")])
        wanted = Wanted(job, JOB, where, settings, sources, str(directory / "work"))
        begun = time.perf_counter()
        done = backfill(spark, wanted, parse_until(None, job), log, Silent())
        result[f"{round_}_per_s"] = records / (time.perf_counter() - begun)
        if sum(report.records for report in done.reports) != records:
            raise SystemExit("not all records were processed: the measurement is void")
    frame = spark.read.format("changelog").options(job=JOB, store="counts", directory=str(place.directory))
    begun = time.perf_counter()
    total = frame.load().groupBy().sum("value").collect()[0][0]
    if total != records:
        raise SystemExit(f"{total} counted, {records} in the history: the measurement is void")
    spark.stop()
    log.close()
    return result


def executing(_directory: Path, records: int) -> Result:
    """Count history in one task as an executor does, without Spark around it: the CPU that a record costs."""
    from framework.spark.executing import run_stage
    from framework.spark.options import Where
    from framework.spark.plans import StagePlan

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
    nowhere = Where("embedded", "", "")
    plan = StagePlan(
        JOB,
        0,
        Settings(),
        outside,
        1,
        outputs=False,
        run=None,
        snapshots=None,
        where=nowhere,
        tails={},
        files=frozenset({job.stages[0].topics_read()[0].name}),
        from_rows=True,
    )
    begun = time.process_time()
    if sum(len(batch) for batch in run_stage(plan, 0, 1, batches)) < KEYS:
        raise SystemExit("keys are missing: the measurement is void")
    return {"cpu_us": (time.process_time() - begun) / records * 1e6}


def restoring(directory: Path, keys: int) -> Result:
    """Bring a state of so many keys onto an empty disk: out of the changelog's data, and as SST files."""
    log = EmbeddedLog(directory / "log.db")
    changelog = TopicPartition("state", 0)
    log.create_topic(*changelog[:1], 1)
    rng = random.Random(2)
    for seq, rows in enumerate(_state(rng, keys), 1):
        header = ChangelogHeader(ChangelogType.DATA, 1, seq, 0)
        log.send(0, seq, changelog, encode_data(header, [10] * len(rows), rows, [VALUE] * len(rows)))
        log.poll()
    result: Result = {}
    memory = RocksMemory(Settings().rocksdb_bytes)
    begun, cpu = time.perf_counter(), time.process_time()
    store = RocksStore(directory / "bootstrapped", {10: "state"}, memory)
    position, end = log.bounds(changelog)
    while position < end:
        for row in log.read(changelog, position, 1 << 22):
            apply_segment("state", store, row[4] or b"")
            position = row[0] + 1
    store.write((), b"pointer")
    result["changelog_s"], result["changelog_cpu_s"] = time.perf_counter() - begun, time.process_time() - cpu
    store.close()
    result |= _ingesting(directory, sorted(key for rows in _state(random.Random(2), keys) for key in rows))
    return result


def _ingesting(directory: Path, keys: list[bytes]) -> Result:
    """Build files as an executor would, copy them as a worker would fetch them, hand them to RocksDB."""
    from rocksdict import IngestExternalFileOptions, SstFileWriter

    memory = RocksMemory(Settings().rocksdb_bytes)
    built, files = time.process_time(), list[Path]()
    for begin in range(0, len(keys), 1_000_000):
        path = directory / f"built-{begin:012d}.sst"
        writer = SstFileWriter(memory.options())
        writer.open(str(path))
        for key in keys[begin : begin + 1_000_000]:
            writer[key] = VALUE
        writer.finish()
        files.append(path)
    result = {"build_cpu_s": time.process_time() - built, "sst_mib": sum(f.stat().st_size for f in files) / (1 << 20)}
    begun, cpu = time.perf_counter(), time.process_time()
    store = RocksStore(directory / "ingested", {10: "state"}, memory)
    fetched = [shutil.copy(path, directory / f"fetched-{path.name}") for path in files]
    options = IngestExternalFileOptions()
    options.set_move_files(True)
    store._stores[10].ingest_external_file([str(path) for path in fetched], options)  # noqa: SLF001  # not a feature
    store.write((), b"pointer")
    result["sst_s"], result["sst_cpu_s"] = time.perf_counter() - begun, time.process_time() - cpu
    if sum(1 for _ in store.scan(10, b"", None)) != len(keys):
        raise SystemExit("keys are missing: the measurement is void")
    store.close()
    return result


def _state(rng: random.Random, keys: int) -> Iterator[list[bytes]]:
    for begin in range(0, keys, MESSAGE_KEYS):
        yield [b"%016x" % rng.getrandbits(64) for _ in range(min(MESSAGE_KEYS, keys - begin))]


def main() -> None:
    """Run all rounds, print the tables; with a name first, one measurement."""
    measurements: dict[str, Callable[..., Result]] = {
        "backfilling": backfilling,
        "executing": executing,
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
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    plan = {
        "backfill": ("backfilling", str(options.records), str(options.cores)),
        "execute": ("executing", str(options.records)),
        "restore": ("restoring", str(options.keys)),
        "read": ("reading", str(options.records), str(options.cores)),
    }
    results = run_all("benchmarks.backfill", plan, options.rounds)
    say_where("pyspark", "pyarrow", "rocksdict")
    table = Table(title=f"History of {options.records:,} messages, counted by the job's own task")
    for column in ("", "records/s (median)"):
        table.add_column(column, justify="left" if not column else "right")
    for label, figure in (("in a new session", "first_per_s"), ("again", "second_per_s")):
        table.add_row(label, f"{median(results, 'backfill', figure):,.0f}")
    cpu_us = median(results, "execute", "cpu_us")
    table.add_row(f"an executor's CPU alone, without Spark: {cpu_us:.2f} µs", f"{1e6 / cpu_us:,.0f} a core")
    console.print(table)
    show_reading(results, options.records)
    table = Table(title=f"An empty disk gets {options.keys:,} keys of 86 bytes")
    for column in ("", "seconds (median)", "CPU seconds", "keys/s"):
        table.add_column(column, justify="left" if not column else "right")
    for label, name in (("from the changelog", "changelog"), ("SST files copied and ingested", "sst")):
        seconds = median(results, "restore", f"{name}_s")
        cpu = median(results, "restore", f"{name}_cpu_s")
        table.add_row(label, f"{seconds:.2f}", f"{cpu:.2f}", f"{options.keys / seconds:,.0f}")
    table.add_row("(building the files)", "", f"{median(results, 'restore', 'build_cpu_s'):.2f}", "")
    console.print(table)


if __name__ == "__main__":
    main()
