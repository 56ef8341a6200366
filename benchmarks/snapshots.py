"""A new machine, on Kafka: how long until its first outputs, from the changelog, a snapshot and a standby."""

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.on_kafka import Watcher, send
from benchmarks.results import Cell, Kept, Table, write
from benchmarks.running import console, taken, tree_cpu_s
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import KAFKA, LogAddress
from grete.protocol.report import StandbyReport, StandbyState
from grete.settings import Settings
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.snapshot_upload import SnapshotUpload
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
from grete.stores.snapshot_folder import SnapshotFolder
from grete.testing.broker import find_broker
from grete.worker.life.standby_worker import open_standby
from grete.worker.supervisor.local_job import LocalJob

PARTITIONS = 2
ROWS = 10_000  # written at once
STORE = 10  # the id of the task's store
LIMIT_S = 900.0  # of a start
MIB = 1 << 20
SIZES = (100_000, 1_000_000, 10_000_000)  # keys
JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, bytes_serde, utf8


class Keep(Task):
    pairs = Input(Topic("NAME-pairs", key=utf8, value=bytes_serde))
    kept = Store("kept", key=utf8, value=bytes_serde)
    out = Output(Topic("NAME-seen", key=utf8, value=bytes_serde))

    def process(self, record: Record[str, bytes]) -> None:
        self.kept.put(record.key, record.value)
        self.out.send(record.key, record.value)


job = Job("NAME", stages=[Keep], partitions=2)
"""


class Moving:
    """A job with a state of keys of 86 bytes, in no order, and machines that it moves to."""

    def __init__(self, stack: ExitStack, bootstrap: str, keys: int) -> None:
        self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grete-snapshots-")))
        self.bootstrap, self.name = bootstrap, f"moving-{keys}-{os.urandom(3).hex()}"
        self.file = self.directory / "job.py"
        self.file.write_text(JOB.replace("NAME", self.name))
        self.job = load_job(str(self.file))
        self.address, self.url = LogAddress(f"{KAFKA}{bootstrap}"), str(self.directory / "folder")
        self.log = self.machine("first").open_log()
        stack.callback(self.log.close)
        prepare(self.job, self.log, self.machine("first"), Settings(), [f"{self.name}-pairs"])
        self._fill(keys)

    def machine(self, name: str) -> JobDirectory:
        """Return the directory of the job on one machine."""
        return JobDirectory(self.directory / name, address=self.address)

    def _fill(self, keys: int) -> None:
        run = begin(self.log, self.job, Settings())
        attempts = [Attempt(self.log, run, task, 1) for task in range(PARTITIONS)]
        for task, attempt in enumerate(attempts):
            rng = random.Random(task)
            for start in range(0, keys // PARTITIONS, ROWS):
                names = [b"%016x" % rng.getrandbits(64) for _ in range(min(ROWS, keys // PARTITIONS - start))]
                attempt.add([STORE] * len(names), names, [b"%010d" % number * 7 for number in range(len(names))])
        commit(self.log, run, [attempt.close() for attempt in attempts], settings=Settings(), full=True)

    def first_output(self, machine: str, snapshot_url: str, *, restores: bool) -> tuple[float, float]:
        """Start the job; return seconds, and CPU seconds of its processes, until a record of each partition is out."""
        send(self.bootstrap, f"{self.name}-pairs", [(b"%d" % number, b"new") for number in range(20)])
        watcher = Watcher(self.bootstrap, f"{self.name}-seen", PARTITIONS)
        while watcher.take(1.0):
            pass  # of the starts before
        begun, used = time.perf_counter(), tree_cpu_s()
        settings = Settings(snapshot_url=snapshot_url)
        with LocalJob(self.job, str(self.file), self.machine(machine), settings) as local:
            seen = set[int]()
            while len(seen) < PARTITIONS:
                seen |= {message.partition() or 0 for message in watcher.take(0.0)}
                local.poll(10)
                if time.perf_counter() - begun > LIMIT_S:
                    raise SystemExit(f"no output {LIMIT_S:.0f} s after the start: the measurement does not count")
            seconds, cpu_s = time.perf_counter() - begun, tree_cpu_s() - used
            while not local.supervisor.takes_input:
                local.poll(10)
            tasks = [task for worker in local.supervisor.workers.values() for task in worker.reports.tasks.values()]
            local.stop()
        watcher.close()
        restored = sum(task.counters.get("restores", 0) for task in tasks)
        if restored != PARTITIONS * restores:
            raise SystemExit(f"{restored} tasks have read whole changelogs: the measurement does not count")
        return seconds, cpu_s

    def stand_by(self, machine: str) -> None:
        """Keep the state on a machine, until that has all that is committed."""
        standby = open_standby(self.job, range(PARTITIONS), self.machine(machine), Settings())

        def look(report: StandbyReport) -> None:
            if all(task.status is StandbyState.STANDBY for task in report.tasks):
                standby.stop()

        standby.report = look
        with closing(standby):
            standby.run()

    def take(self) -> tuple[float, float, int, int]:
        """Take snapshots from the first machine; return seconds, CPU seconds, bytes, and bytes that were written."""
        begun, used = time.perf_counter(), tree_cpu_s()
        folder, stores = SnapshotFolder(self.url, self.name), self.machine("first")
        upload = SnapshotUpload(self.log, self.name, folder, stores.snapshots(), Settings().rocksdb_bytes)
        size = new = 0
        for (graph, _), wiring in zip(self.job.tasks(), all_wirings(self.job), strict=True):
            found = upload.take(graph, wiring, stores.state(wiring.name))
            if found is None or found.uploaded is None or found.source != "local store":
                raise SystemExit(f"{wiring.name}: {found}: the measurement does not count")
            size, new = size + found.uploaded.size_bytes, new + found.uploaded.new_bytes
        return time.perf_counter() - begun, tree_cpu_s() - used, size, new


def measured(bootstrap: str, keys: int) -> tuple[list[Cell], list[Cell]]:
    """Return a row about starts, and one about the snapshots."""
    with ExitStack() as stack:
        moving = Moving(stack, bootstrap, keys)
        of_changelog = moving.first_output("first", "", restores=True)
        taken_first = moving.take()
        of_snapshot = moving.first_output("second", moving.url, restores=False)
        shutil.rmtree(moving.machine("second").directory)
        moving.stand_by("third")
        of_standby = moving.first_output("third", "", restores=False)
        shutil.rmtree(moving.machine("third").directory)
        moving.first_output("first", "", restores=False)
        taken_again = moving.take()
    starts: list[Cell] = [f"{keys:,}", *(round(each, 2) for each in (*of_changelog, *of_snapshot, *of_standby))]
    snapshots: list[Cell] = [f"{keys:,}"]
    for seconds, cpu_s, size, new in (taken_first, taken_again):
        snapshots += [round(seconds, 2), round(cpu_s, 2), round(size / MIB, 1), round(new / MIB, 1)]
    return starts, snapshots


def main(sizes: Sequence[int]) -> None:
    """Measure all sizes on LOG, or on a broker of its own; with WRITE=1 put the tables into the docs."""
    log, run = os.environ.get("LOG") or "", taken("confluent-kafka", "rocksdict", "fsspec")
    with ExitStack() as stack:
        bootstrap = log.removeprefix(KAFKA) if log.startswith(KAFKA) else ""
        bootstrap = bootstrap or stack.enter_context(find_broker(loaded=True)).bootstrap
        rows = []
        for keys in sizes:
            rows.append(measured(bootstrap, keys))
            console.print(*rows[-1], sep="\n", soft_wrap=True)
    run.tables = [
        Table(
            "From the start on a new machine until a reader of Kafka has seen an output of each partition",
            ["keys", "changelog: s", "CPU s", "snapshot: s", "CPU s of it", "standby: s", "CPU s of that"],
            [row for row, _ in rows],
        ),
        Table(
            "Taking snapshots of both tasks from their local stores, then once more after 20 records",
            ["keys", "first: s", "CPU s", "MiB", "MiB written", "again: s", "CPU s ", "MiB ", "MiB written "],
            [row for _, row in rows],
        ),
    ]
    if os.environ.get("WRITE"):
        write("snapshots", Kept([run]))


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or SIZES)
