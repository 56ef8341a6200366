"""A rescale from 4 to 8 partitions, by one process and by Spark: python -m benchmarks.moving KEYS.

Prints seconds, CPU, and the memory of the driver and of Spark's processes; both ways must give the same entries.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.growth import Memory
from benchmarks.restoring import Silent
from benchmarks.running import tree_cpu_s
from grete.api.jobs.job import Job
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.spark.format.options import LogSpec
from grete.spark.moving.spark_mover import SparkMover
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
from grete.state.write.rescale import rescale

BEFORE, AFTER = 4, 8
WAYS = "process", "local[1]", "local[2]"
STORE = 10
ROWS = 50_000
CODE = f"""
from grete import Input, Job, Record, Store, Task, Topic, utf8


class Keep(Task):
    values = Input(Topic("values", key=utf8, value=utf8))
    kept = Store("kept", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        self.kept.put(record.key, record.value)


job = Job("moving", stages=[Keep], partitions={BEFORE})
"""


def fill(log: EmbeddedLog, job: Job, keys: int) -> None:
    """Write the state: keys of 12 bytes, values of 74."""
    create_topics(job, log)
    bulk_write = begin(log, job, Settings())
    attempts = [Attempt(log, bulk_write, number, 1, (STORE,)) for number in range(BEFORE)]
    for first in range(0, keys, ROWS):
        rows: list[list[bytes]] = [[] for _ in attempts]
        for number in range(first, min(first + ROWS, keys)):
            key = b"key-%08d" % number
            rows[partition_of(key, BEFORE)].append(key)
        for attempt, own in zip(attempts, rows, strict=True):
            attempt.add([STORE] * len(own), own, [key * 6 + b"ab" for key in own])
    commit(log, bulk_write, [attempt.close() for attempt in attempts], settings=Settings(), full=True)


def move(directory: Path, way: str, keys: int) -> None:
    """Rescale the job in a directory, and print what it took."""
    job, log = load_job(str(directory.parent / "job.py")), EmbeddedLog(directory / "log.db")
    where = LogSpec("embedded", "", str(directory / "log.db"))
    memory, begun, cpu = Memory(), time.perf_counter(), tree_cpu_s()
    memory.start()
    with SparkMover(way, where, where, None, Silent()) as mover:
        moved = rescale(log, job, AFTER, Settings(), own_topics=True, mover=None if way == WAYS[0] else mover)
    seconds, computed = time.perf_counter() - begun, tree_cpu_s() - cpu
    memory.end()
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    others = ", ".join(f"{name} {mib:,.0f} MiB" for name, mib in sorted(memory.peak_mib.items()))
    assert moved.entries["keep/kept"] == keys
    load = os.getloadavg()[0]
    print(f"{way}: {seconds:.1f} s, CPU {computed:.1f} s; driver {driver:,.0f} MiB; {others}; load {load:.0f}")
    log.close()


def main(keys: int) -> None:
    """Fill a job, and rescale a copy of it in each way, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "job.py").write_text(CODE)
        (root / "base").mkdir()
        log = EmbeddedLog(root / "base" / "log.db")
        fill(log, load_job(str(root / "job.py")), keys)
        log.close()
        for way in WAYS:
            own = root / "own"
            shutil.copytree(root / "base", own)
            subprocess.run([sys.executable, "-m", __spec__.name, str(keys), way, str(own)], check=True)
            shutil.rmtree(own)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        move(Path(sys.argv[3]), sys.argv[2], int(sys.argv[1]))
    else:
        main(int(sys.argv[1]))
