"""From an empty disk to live: a job whose state a backfill has made starts from its files, then from its changelogs."""

import random
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks import results as kept
from benchmarks.reading import INPUT, Keep, job
from benchmarks.running import Results, console, median, show, tree_cpu_s
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob

REFERENCE = "benchmarks.reading"
FILE_ROWS = 1_000_000
LOOKED_AT = 1_000  # keys that are compared afterwards
LIMIT_S = 1_800.0  # of a start


class Silent:
    """Takes what a backfill tells."""

    def say(self, text: str) -> None:
        """Forget it."""

    def bar(self, name: str, done: int, total: int) -> None:
        """Forget it."""


def value_of(number: int) -> bytes:
    """Return the 70 bytes that belong to a key; they compress, but are not all the same."""
    return b"%010d" % number * 7


def history(directory: Path, keys: int) -> None:
    """Write every key once, in no order."""
    directory.mkdir()
    numbers = np.random.default_rng(1).permutation(keys)
    for begin in range(0, keys, FILE_ROWS):
        part = numbers[begin : begin + FILE_ROWS].tolist()
        columns = {
            "key": pa.array([b"key-%012d" % number for number in part], pa.binary()),
            "value": pa.array(map(value_of, part), pa.binary()),
            "timestamp": pa.array(range(begin, begin + len(part)), pa.int64()),
        }
        pq.write_table(pa.table(columns), directory / f"{begin:012d}.parquet")


def restoring(directory: Path, keys: int, cores: int, log: str = "embedded") -> dict[str, float]:
    """Backfill a state of that many keys of 86 bytes, then start workers without any of it on their disks: twice."""
    from grete.spark.backfill.backfill import BackfillSpec, backfill
    from grete.spark.backfill.ranges import parse_until
    from grete.spark.format.options import LogSpec
    from grete.spark.session import local_session

    history(directory / "history", keys)
    job_directory, settings = JobDirectory(directory / "job", address=LogAddress(log)), Settings()
    opened = job_directory.open_log()
    prepare(job, opened, job_directory, settings, [INPUT.name])
    spark = local_session(f"local[{cores}]")
    where = LogSpec(log, "", str(job_directory.directory / "log.db"))
    sources = {INPUT.name: str(directory / "history")}
    wanted = BackfillSpec(job, REFERENCE, where, settings, sources, str(directory / "work"))
    begun = time.perf_counter()
    backfill(spark, wanted, parse_until(None, job), opened, Silent())
    result = {"backfill_s": time.perf_counter() - begun}
    opened.close()
    spark.stop()
    shutil.rmtree(directory / "history")
    result["files_mib"] = _mib(job_directory.directory / "prebuilt")
    if log == "embedded":
        result["log_mib"] = _mib(job_directory.directory, "log.db*")
    for label in ("files", "changelog"):
        result |= _to_live(job_directory, settings, label)
        result["state_mib"] = _mib(job_directory.state_directory)
        _check(job_directory, keys)
        shutil.rmtree(job_directory.state_directory)
    return result


def _to_live(job_directory: JobDirectory, settings: Settings, label: str) -> dict[str, float]:
    """Start the job, until every task takes input; then stop it."""
    begun, used = time.perf_counter(), tree_cpu_s()
    with LocalJob(job, REFERENCE, job_directory, settings) as local:
        while not _all_running(local):
            local.poll(10)
            if time.perf_counter() - begun > LIMIT_S:
                raise SystemExit(
                    f"not all tasks take input {LIMIT_S:.0f} s after the start: the measurement does not count"
                )
        seconds, cpu = time.perf_counter() - begun, tree_cpu_s() - used
        tasks = [task for worker in local.supervisor.workers.values() for task in worker.reports.tasks.values()]
        local.stop()
    restores = sum(task.counters.get("restores", 0) for task in tasks)
    if restores != (job.partitions if label == "changelog" else 0):
        raise SystemExit(f"{restores} tasks have read their changelogs from the start: the measurement does not count")
    return {f"{label}_s": seconds, f"{label}_cpu_s": cpu}


def _all_running(local: LocalJob) -> bool:
    hosted = [worker.reports.tasks for worker in local.supervisor.workers.values()]
    return all(tasks and all(task.status is TaskState.RUNNING for task in tasks.values()) for tasks in hosted)


def _check(job_directory: JobDirectory, keys: int) -> None:
    """Look at some of the keys."""
    with LocalReader(job_directory.state_directory, job) as reader:
        for number in random.Random(2).sample(range(keys), LOOKED_AT):
            if reader.get(Keep.kept, f"key-{number:012d}") != value_of(number):
                raise SystemExit(f"key {number} has a wrong value: the measurement does not count")


def _mib(directory: Path, pattern: str = "**/*") -> float:
    return sum(file.stat().st_size for file in directory.glob(pattern) if file.is_file()) / (1 << 20)


def show_restoring(results: Results, keys: int) -> kept.Table:
    """Print how long a start takes without local state; Kafka Streams', too, if it was measured."""
    known = results["restore"][0].keys()
    sizes = [
        f"{what} {median(results, 'restore', figure):,.0f} MiB"
        for what, figure in (
            ("log", "log_mib"),
            ("files", "files_mib"),
            ("stores", "state_mib"),
            ("Kafka Streams' stores", "streams_mib"),
        )
        if figure in known
    ]
    console.print(f"{keys:,} keys: {', '.join(sizes)}; backfilled in {median(results, 'restore', 'backfill_s'):.1f} s")
    table = Table(title=f"From an empty disk to live: {keys:,} keys of 86 bytes, {job.partitions} partitions")
    for column in ("", "seconds (median)", "CPU seconds", "keys/s"):
        table.add_column(column, justify="left" if not column else "right")
    workers = f"{job.partitions} worker processes"
    rows = [(f"by the files of the backfill, {workers}", "files"), (f"from the changelogs, {workers}", "changelog")]
    for label, name in [*rows, (f"Kafka Streams, {job.partitions} threads, from start() to RUNNING", "streams")]:
        if f"{name}_s" in known:
            seconds, cpu = (median(results, "restore", f"{name}_{figure}") for figure in ("s", "cpu_s"))
            table.add_row(label, f"{seconds:.2f}", f"{cpu:.1f}", f"{keys / seconds:,.0f}")
    return show(table)
