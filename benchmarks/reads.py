"""Reads of a running job's state: ``make bench EXPERIMENT=reads [ROUNDS=2] [RECORDS=1000000] [READS=200] [WRITE=1]``.

`grete up` counts RECORDS by key on the embedded log, in turn alone and while a program asks for READS keys a second at
/state, each as soon as the answer before is there. What a read takes is measured by who asks, on the same machine.
"""

import http.client
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.progress import track

from benchmarks.results import Table
from benchmarks.running import console, keep, taken
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition

KEYS = 10_000
BATCH = 20_000  # records that are written into the log at once
LIMIT_S = 900.0
INTERVAL_MS = 1_000
JOB = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8


class Count(Task):
    ticks = Input(Topic("ticks", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, self.counts.get(record.key, 0) + 1)


job = Job("reads", stages=[Count])
"""


class Measured(NamedTuple):
    """One run: records a second, and the ms of each read."""

    rate: float
    reads_ms: list[float]


@contextmanager
def served(directory: Path, records: int) -> Iterator[tuple[str, int]]:
    """Write the input, run the job on it, and yield the address of its page. Raises SystemExit if it does not run."""
    code, said = directory / "reads_job.py", directory / "up.log"
    code.write_text(JOB)
    job = load_job(str(code))
    with closing(EmbeddedLog(directory / "job" / "log.db")) as log:
        create_topics(job, log)
        metadata = log.open_metadata("reads")
        at = TopicPartition("ticks", 0)
        for begin in range(0, records, BATCH):
            numbers = range(begin, min(begin + BATCH, records))
            rows = [ExternalRecord(at, b"k%d" % (number % KEYS), b"", number, None) for number in numbers]
            metadata.produce_with_meta(rows, {})
        metadata.produce_with_meta([ExternalRecord(at, b"end", b"", records, None)], {})
    command = [sys.executable, "-m", "grete.cli", "up", str(code), f"--directory={directory / 'job'}", "--http=0"]
    command += [f"--set=checkpoint_interval_ms={INTERVAL_MS}"]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as up:
        try:
            by_s = time.monotonic() + LIMIT_S
            while (found := re.search(r"http://([\d.]+):(\d+)", said.read_text())) is None:
                if up.poll() is not None or time.monotonic() > by_s:
                    raise SystemExit(f"the job does not run:\n{said.read_text()[-4_000:]}")
                time.sleep(0.1)
            yield found[1], int(found[2])
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(LIMIT_S)


class Asking:
    """A connection to the page, which is kept."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=LIMIT_S)

    def get(self, path: str) -> int:
        """Return the status of an answer."""
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status


def run(records: int, a_second: int) -> Measured:
    """Measure one run, with this number of reads a second."""
    with tempfile.TemporaryDirectory() as place, served(Path(place), records) as address:
        asking, ended, reads = Asking(address), threading.Event(), list[float]()
        while asking.get("/readyz") != 200:
            time.sleep(0.05)
        began_s = time.monotonic()

        def read() -> None:
            reader, next_s = Asking(address), time.monotonic()
            while not ended.is_set():
                asked_s = time.perf_counter()
                reader.get(f"/state/counts/k{random.randrange(KEYS)}")
                reads.append(1_000 * (time.perf_counter() - asked_s))
                next_s = max(next_s + 1 / a_second, time.monotonic() - 1.0)
                ended.wait(max(0.0, next_s - time.monotonic()))

        thread = threading.Thread(target=read)
        if a_second:
            thread.start()
        while asking.get("/state/counts/end") != 200:
            if time.monotonic() > began_s + LIMIT_S:
                raise SystemExit(f"{records:,} records are not counted within {LIMIT_S:.0f} s")
            time.sleep(0.25)
        took_s = time.monotonic() - began_s
        ended.set()
        if a_second:
            thread.join()
        return Measured(records / took_s, reads)


def table(found: dict[int, list[Measured]]) -> Table:
    """Return a row for each number of reads a second: the job's rate, and the reads' percentiles, of all rounds."""
    alone = statistics.median(each.rate for each in found[0])
    rows: list[list[int | float | str | None]] = []
    for a_second, runs in found.items():
        rate = statistics.median(each.rate for each in runs)
        reads = sorted(ms for each in runs for ms in each.reads_ms)
        p50, p99 = (f"{reads[int(share * (len(reads) - 1))]:.1f}" if reads else "" for share in (0.5, 0.99))
        rows.append([f"{a_second:,}", f"{rate:,.0f}", f"{rate / alone:.2f}", f"{len(reads):,}", p50, p99])
    columns = ["reads a second asked for", "records/s", "of the job alone", "reads", "p50, ms", "p99, ms"]
    return Table("A key's read at /state while a job counts records, embedded log", columns, rows)


def main() -> None:
    """Measure in turn; print the table, and with WRITE=1 put it into the docs."""
    records, a_second = int(os.environ.get("RECORDS") or 1_000_000), int(os.environ.get("READS") or 200)
    rounds = int(os.environ.get("ROUNDS") or 2)
    found: dict[int, list[Measured]] = {0: [], a_second: []}
    for each in track([0, a_second] * rounds, "measuring", console=console):
        found[each].append(run(records, each))
    done = taken("rocksdict", "uvicorn", "starlette")
    done.notes = [f"{records:,} records of {KEYS:,} keys, a checkpoint each {INTERVAL_MS} ms, {rounds} rounds in turn."]
    shown = table(found)
    console.print_json(data=[shown.columns, *shown.rows])
    keep("reads", done, [shown])


if __name__ == "__main__":
    main()
