"""Processor time of an idle job: ``python -m benchmarks.idle [partitions=64] [seconds=30] [rests=30,60,345] …``.

`grete up` of three stages on a Kafka broker of its own. ``rests``: how many seconds after all tasks run, or after the
last record, it is looked at, each time for ``seconds``. ``fed=20``: records come for 20 s, 0: no record ever comes.
``intervals=200,1000,5000``: of checkpoints, in ms. ``processes=4``, ``stages=3``. Linux only.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice, product
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, taken, tree
from tests.verification.chaos.cluster import Cluster

LIMIT_S = 300.0  # of the start, and of the stop
RATE = 1_000  # records/s, while some come
TICK_S = 0.1  # between two batches of them
KIB = 1 << 10
JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

STREAMS = [Topic(f"idle-words-{number}", key=utf8, value=int64) for number in range(STAGES)]


class Spread(Task):
    ticks = Input(Topic("NAME-ticks", key=utf8, value=utf8))
    out = Output(STREAMS[0])

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.value, 1)


def passing(number):
    class Pass(Task):
        words = Input(STREAMS[number])
        out = Output(STREAMS[number + 1])

        def process(self, record: Record[str, int]) -> None:
            self.out.send(record.key, record.value)

    Pass.__name__ = f"Pass{number}"
    return Pass


class Count(Task):
    words = Input(STREAMS[STAGES - 2])
    total = Store("total", key=utf8, value=int64)

    def process(self, record: Record[str, int]) -> None:
        self.total.put(record.key, self.total.get(record.key, 0) + 1)


job = Job("NAME", stages=[Spread, *map(passing, range(STAGES - 2)), Count], partitions=PARTITIONS)
"""


class Shape(NamedTuple):
    """Partitions, stages and processes of the job."""

    partitions: int
    stages: int
    processes: int


@contextmanager
def running(bootstrap: str, directory: Path, name: str, shape: Shape, interval_ms: int) -> Iterator[int]:
    """Yield the process of `grete up` once all tasks run. Raises SystemExit if they do not."""
    job, own = directory / f"{name.replace('-', '_')}.py", directory / name
    code = JOB.replace("NAME", name).replace("PARTITIONS", str(shape.partitions))
    job.write_text(code.replace("STAGES", str(shape.stages)))
    command = [sys.executable, "-m", "grete.cli", "up", str(job), f"--log=kafka://{bootstrap}", f"--directory={own}"]
    command += [f"--processes={shape.processes}", f"--set=checkpoint_interval_ms={interval_ms}"]
    with (directory / "up.log").open("ab") as said, subprocess.Popen(command, stdout=said, stderr=said) as up:
        try:
            by = time.monotonic() + LIMIT_S
            while (
                sum(log.read_text().count('"event": "ready"') for log in own.glob("logs/*.log"))
                < shape.stages * shape.partitions
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


def feed(bootstrap: str, topic: str, seconds: float) -> None:
    """Send RATE records/s, for that long, to all partitions."""
    producer, until_s = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}), time.monotonic() + seconds
    numbers = count()
    while time.monotonic() < until_s:
        for number in islice(numbers, round(RATE * TICK_S)):
            producer.produce(topic, b"word-%d" % (number % 5_000), b"key-%d" % number)
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(60)


def main(
    shape: Shape, intervals: Sequence[int], fed_s: Sequence[float], seconds: float, rests: Sequence[float]
) -> None:
    """Measure; WRITE=1 puts the table into the docs."""
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    with tempfile.TemporaryDirectory(prefix="grete-idle-") as folder, Cluster(Path(folder) / "kafka") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for number, (interval_ms, fed) in enumerate(product(intervals, fed_s)):
            name = f"idle-{number}"
            admin.create_topics([NewTopic(f"{name}-ticks", shape.partitions)])[f"{name}-ticks"].result(60)
            with running(cluster.bootstrap, Path(folder), name, shape, interval_ms) as up:
                feed(cluster.bootstrap, f"{name}-ticks", fed)
                begun_s = time.monotonic()
                for rest in rests:
                    time.sleep(max(0.0, begun_s + rest - time.monotonic()))
                    load = round(os.getloadavg()[0], 1)
                    rows.append([interval_ms, fed, rest, *look(up, seconds), load])
                    console.print(*rows[-1])
    what = f"{shape.partitions} partitions, {shape.stages} stages"
    title = f"{what}, `grete up --processes {shape.processes}`, over {seconds:.0f} s"
    columns = ["interval, ms", "records for, s", "s after", "grete up, % of a core", "the workers", "together", "MiB"]
    keep("idle", run, [Table(title, [*columns, "load"], rows)])


if __name__ == "__main__":
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    main(
        Shape(int(given.get("partitions", 64)), int(given.get("stages", 3)), int(given.get("processes", 4))),
        [int(each) for each in given.get("intervals", "200,1000,5000").split(",")],
        [float(each) for each in given.get("fed", "0,20").split(",")],
        float(given.get("seconds", 30)),
        [float(each) for each in given.get("rests", "30,60").split(",")],
    )
