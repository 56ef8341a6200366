"""A backfill as its keys grow, on one core and on two: its pace, and the memory of the processes that do it.

The memory must be bounded, whatever the number of keys: a run that takes more fails.
"""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table

from benchmarks import results as kept
from benchmarks.restoring import Silent
from benchmarks.running import Results, median, show, tree, tree_cpu_s
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings

JOB = "benchmarks.counting"
RECORDS = 10_000_000
KEYS = (100_000, 1_000_000, 10_000_000)
FILE_ROWS = 500_000
STRIDE = 7_368_787  # a prime: each key comes as often as the others, and neighbours are far apart
SAMPLE_S = 0.2
JAVA_MIB_MAX = 1_024 + 256  # its heap, and what is outside of it
PYTHON_MIB_MAX = 700  # of a task at work: state up to uncommitted_state_bytes_max (256 MiB), RocksDB, code, batches


class Memory(threading.Thread):
    """Looks again and again what the processes below this one take. ``peak_mib``: by the name of the program."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_mib: dict[str, float] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until ``end``. A page that processes share counts in parts (PSS)."""
        while not self._ended.wait(SAMPLE_S):
            found: dict[str, float] = {}
            for number in tree(os.getpid()) - {os.getpid()}:
                place = Path("/proc") / str(number)
                with contextlib.suppress(OSError, StopIteration):  # it has ended
                    name = "java" if (place / "comm").read_text().strip() == "java" else "python"
                    rollup = (place / "smaps_rollup").read_text().splitlines()
                    kib = int(next(line for line in rollup if line.startswith("Pss:")).split()[1])
                    found[name] = found.get(name, 0) + kib / 1024
            for name, mib in found.items():
                self.peak_mib[name] = max(mib, self.peak_mib.get(name, 0))

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def history(directory: Path, keys: int) -> None:
    """Write RECORDS messages as Parquet files."""
    directory.mkdir()
    for begin in range(0, RECORDS, FILE_ROWS):
        ids = pa.array(range(begin, begin + FILE_ROWS), pa.int64())
        numbers = pa.array([number * STRIDE % keys for number in range(begin, begin + FILE_ROWS)], pa.int64())
        names = _joined("key-", pc.utf8_lpad(numbers.cast(pa.string()), 8, "0"))
        amounts = pa.array([number % 97 for number in range(begin, begin + FILE_ROWS)], pa.int64())
        texts = _joined('{"id":', ids, ',"key":"', names, '","amount":', amounts, f',"note":"{"n" * 30}"}}')
        pq.write_table(pa.table({"key": names, "value": texts, "timestamp": ids}), directory / f"{begin:012d}.parquet")


def _joined(*parts: Any) -> Any:
    """Return texts, each of its parts one after another."""
    texts = [part if isinstance(part, str) else part.cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def growing(directory: Path, keys: int, cores: int) -> dict[str, float]:
    """Backfill the counting job from RECORDS messages of ``keys`` keys, in a new session; check the number of keys."""
    from grete.spark.backfill.backfill import BackfillSpec, backfill
    from grete.spark.backfill.ranges import parse_until
    from grete.spark.backfill.sources import sources_of
    from grete.spark.format.options import LogSpec
    from grete.spark.session import local_session

    os.environ["BENCH_JOB"] = "process"
    from benchmarks.counting import job

    history(directory / "history", keys)
    job_directory = JobDirectory(directory / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    spark = local_session(f"local[{cores}]")
    where = LogSpec("embedded", "", str(job_directory.directory / "log.db"))
    sources = sources_of(job, [str(directory / "history")])
    wanted = BackfillSpec(job, JOB, where, Settings(), sources, str(directory / "work"))
    memory, begun, cpu = Memory(), time.perf_counter(), tree_cpu_s()
    memory.start()
    done = backfill(spark, wanted, parse_until(None, job), log, Silent())
    seconds = time.perf_counter() - begun
    memory.end()
    found = {
        "seconds": seconds,
        "cpu_us": (tree_cpu_s() - cpu) / RECORDS * 1e6,
        "java_mib": memory.peak_mib["java"],
        "python_mib": memory.peak_mib["python"],
    }
    spark.stop()
    log.close()
    stored = sum(report.keys for report in done.reports)
    if found["java_mib"] > JAVA_MIB_MAX or found["python_mib"] > PYTHON_MIB_MAX * cores:
        raise SystemExit(f"memory is not bounded as it must be: {found}")
    if sum(report.records for report in done.reports) != RECORDS or not keys <= stored < keys + 100:
        raise SystemExit(f"{stored} keys of {keys}: the measurement does not count")
    return found


def plan() -> dict[str, tuple[str, ...]]:
    """Return the runs by name, each with the arguments of its command."""
    return {f"{keys} {cores}": ("growing", str(keys), str(cores)) for cores in (1, 2) for keys in KEYS}


def show_growth(results: Results) -> kept.Table:
    """Print the figures."""
    bounds = f"at most {JAVA_MIB_MAX:,} MiB of Java, and {PYTHON_MIB_MAX} MiB of Python a core"
    table = Table(title=f"Growth: {RECORDS:,} messages into 4 tasks, by keys and cores; {bounds}")
    for column in ("keys", "cores", "seconds", "records/s", "CPU µs a record", "MiB of Java", "MiB of Python workers"):
        table.add_column(column, justify="right")
    for label in results:
        keys, cores = map(int, label.split())
        seconds, cpu, java, python = (
            median(results, label, figure) for figure in ("seconds", "cpu_us", "java_mib", "python_mib")
        )
        row = f"{keys:,}", str(cores), f"{seconds:.1f}", f"{RECORDS / seconds:,.0f}", f"{cpu:.2f}"
        table.add_row(*row, f"{java:,.0f}", f"{python:,.0f}")
    return show(table)
