"""Processor time of an idle job: ``python -m benchmarks.idle [partitions=64] [seconds=60] [rests=30,360]``.

`grete up --processes 2` of two stages, with a checkpoint interval of a second, on a Kafka broker of its own. No record
ever comes. ``rests``: how many seconds after all tasks run it is looked at, each time for ``seconds``. Linux only.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, taken, tree
from tests.verification.chaos.cluster import Cluster

LIMIT_S = 300.0  # of the start, and of the stop
PROCESSES = 2
STAGES = 2
KIB = 1 << 10
JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

WORDS = Topic("idle-words", key=utf8, value=int64)


class Spread(Task):
    ticks = Input(Topic("idle-ticks", key=utf8, value=utf8))
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, 1)


class Count(Task):
    words = Input(WORDS)
    total = Store("total", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.total.put(record.key, self.total.get(record.key, 0) + 1)


job = Job("idle", stages=[Spread, Count], partitions=PARTITIONS)
"""


@contextmanager
def running(bootstrap: str, directory: Path, partitions: int) -> Iterator[int]:
    """Yield the process of `grete up` once all tasks run. Raises SystemExit if they do not."""
    job, own = directory / "idle_job.py", directory / "job"
    job.write_text(JOB.replace("PARTITIONS", str(partitions)))
    command = [sys.executable, "-m", "grete.cli", "up", str(job), f"--log=kafka://{bootstrap}"]
    command += [f"--directory={own}", f"--processes={PROCESSES}", "--set=checkpoint_interval_ms=1000"]
    with (directory / "up.log").open("ab") as said, subprocess.Popen(command, stdout=said, stderr=said) as up:
        try:
            by = time.monotonic() + LIMIT_S
            while (
                sum(log.read_text().count('"event": "ready"') for log in own.glob("logs/*.log")) < STAGES * partitions
            ):
                if up.poll() is not None or time.monotonic() > by:
                    raise SystemExit(f"the job does not run:\n{(directory / 'up.log').read_text()[-4_000:]}")
                time.sleep(1)
            yield up.pid
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(LIMIT_S)


def cpu_s(process: int) -> float:
    """Return the seconds that a process has taken of the processor, without its children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(process: int) -> int:
    """Return its memory; what processes share counts once in all."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def look(up: int, seconds: float) -> list[Cell]:
    """Return shares of a core in percent, of `grete up`, of the processes below it and of all, and their MiB."""
    processes = tree(up)
    before, began_s = {each: cpu_s(each) for each in processes}, time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    shares = {each: 100 * (cpu_s(each) - before[each]) / took_s for each in processes}
    below = sum(shares.values()) - shares[up]
    mib = sum(map(memory_kib, processes)) / KIB
    return [round(shares[up], 1), round(below, 1), round(sum(shares.values()), 1), round(mib)]


def main(partitions: int, seconds: float, rests: Sequence[float]) -> None:
    """Measure; WRITE=1 puts the table into the docs."""
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    with tempfile.TemporaryDirectory(prefix="grete-idle-") as folder, Cluster(Path(folder) / "kafka") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("idle-ticks", partitions)])["idle-ticks"].result(60)
        with running(cluster.bootstrap, Path(folder), partitions) as up:
            begun_s = time.monotonic()
            for rest in rests:
                time.sleep(max(0.0, begun_s + rest - time.monotonic()))
                load = round(os.getloadavg()[0], 1)
                rows.append([partitions, rest, *look(up, seconds), load])
                console.print(*rows[-1])
    title = f"`grete up --processes {PROCESSES}`, two stages, a checkpoint interval of 1 s, over {seconds:.0f} s"
    columns = ["partitions", "s after the start", "grete up, % of a core", "the workers", "together", "MiB", "load"]
    keep("idle", run, [Table(title, columns, rows)])


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    moments = [float(each) for each in given.get("rests", "30,360").split(",")]
    main(int(given.get("partitions", 64)), float(given.get("seconds", 60)), moments)
