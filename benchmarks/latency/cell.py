"""One run of the experiment: ``python -m benchmarks.latency.cell LOG key=value …`` prints one JSON object.

``LOG``: embedded or kafka://host:port. The job's workers under their supervisor, the writer of documents and the reader
of changes are processes of their own; this one supervises and, if it is told to, kills.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.latency.modes import MODES
from benchmarks.on_kafka import make_topic
from framework.logs.embedded import EmbeddedLog
from framework.logs.open import IN_DIRECTORY, KAFKA, LogAddress
from framework.runtime.place import Place
from framework.runtime.supervisor import Supervisor

RATE = 50.0  # documents a second
WARM_S = 2.0  # of documents whose latency does not count: code, caches and connections are cold
START_S_MAX = 60.0
RUN_S_MAX = 120.0  # beyond the documents' own time
CALM_S = 3.0  # before an idle job is measured, and after its start
Child = subprocess.Popen[str]
Result = dict[str, Any]


@dataclass
class Plan:
    """What to run. ``kills``: when to kill a worker, in s after the first document that counts."""

    log: str
    mode: str = "at-least-once"
    interval_ms: int = 1_000
    partitions: int = 2
    seconds: float = 15.0
    idle_s: float = 0.0  # to measure before the first document
    kills: list[float] = field(default_factory=list)

    @property
    def documents(self) -> int:
        """All documents, those to warm up included."""
        return round((self.seconds + WARM_S) * RATE)


class Stage:
    """The processes of a run, and the place where the job lives."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        """Make the topics; start the workers."""
        run = os.urandom(4).hex()
        mode = MODES[plan.mode]
        os.environ |= {
            "BENCH_RUN": run,
            "BENCH_PARTITIONS": str(plan.partitions),
            "BENCH_MODE": mode.name,
            "PYTHONHASHSEED": "0",
        }
        self.plan, self.directory = plan, directory
        self.topics = f"latency-documents-{run}", f"latency-changes-{run}"
        kafka = plan.log.startswith(KAFKA)
        place = Place(directory / "job", address=LogAddress(plan.log) if kafka else IN_DIRECTORY)
        self.log = plan.log if kafka else str(place.directory / "log.db")
        for topic in self.topics:
            if kafka:
                make_topic(plan.log.removeprefix(KAFKA), topic, plan.partitions)
            else:
                log = EmbeddedLog(Path(self.log))
                log.create_topic(topic, plan.partitions, plain=True)
                log.close()
        settings = mode.settings(plan.interval_ms)
        self.supervisor = Supervisor(place, "benchmarks.latency.job", range(plan.partitions), settings)
        self.children: list[Child] = []

    def child(self, module: str, topic: str, *arguments: str) -> Child:
        """Start the writer or the reader."""
        command = [sys.executable, "-m", f"benchmarks.latency.{module}", self.log, topic, str(self.plan.partitions)]
        command += [str(self.plan.documents), str(self.result(module)), *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(process)
        return process

    def result(self, module: str) -> Path:
        """Return the file that a child leaves."""
        return self.directory / f"{module}.json"

    def supervise(self, until_s: float) -> None:
        """Let the supervisor work until a time. Raises SystemExit if a worker crashed of itself."""
        while (left := until_s - time.monotonic()) > 0:
            self.supervisor.poll(min(20.0, left * 1000))
        if self.supervisor.news:
            raise SystemExit(f"a worker crashed: {self.supervisor.news[0]}: the run is void")

    def start(self) -> None:
        """Return when all tasks take input."""
        deadline = time.monotonic() + START_S_MAX
        while not all(
            worker.status and all(task["status"] == "running" for task in worker.status.values())
            for worker in self.supervisor.workers.values()
        ):
            self.supervise(time.monotonic() + 0.02)
            if time.monotonic() > deadline:
                raise SystemExit(f"the job does not start: {self.supervisor.last_words(0)}")

    def cpu_s(self) -> float:
        """Return the CPU time of the workers that run now; 0 where the system does not tell."""
        total = 0.0
        for worker in self.supervisor.workers.values():
            stat = Path(f"/proc/{worker.process.pid}/stat") if worker.process is not None else Path("/nowhere")
            if stat.exists():
                fields = stat.read_text().rpartition(")")[2].split()
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def idle(self, seconds: float) -> float:
        """Return the share of a core that a task takes which has nothing to do, in %."""
        self.supervise(time.monotonic() + CALM_S)
        before = self.cpu_s()
        self.supervise(time.monotonic() + seconds)
        tasks = 2 * self.plan.partitions
        return 100 * (self.cpu_s() - before) / seconds / tasks

    def close(self) -> None:
        """End everything."""
        for process in self.children:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.supervisor.close()


def await_ready(process: Child) -> None:
    """Return when a child says that it is ready. Raises SystemExit if it ends instead."""
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit(f"{process.args!r} ended: the run is void")


def run(plan: Plan, directory: Path) -> Result:
    """Run, and return what was seen."""
    stage = Stage(plan, directory)
    try:
        stage.start()
        idle = stage.idle(plan.idle_s) if plan.idle_s else None
        repeats = plan.kills and MODES[plan.mode].repeats
        reader = stage.child("reader", stage.topics[1], "repeats" if repeats else "once")
        feeder = stage.child("feeder", stage.topics[0], str(RATE))
        for process in (reader, feeder):
            await_ready(process)
        assert feeder.stdin is not None
        cpu = stage.cpu_s()
        began = time.monotonic() + WARM_S
        feeder.stdin.write("go\n")
        feeder.stdin.flush()
        killed: list[tuple[float, int]] = []
        for number, after in enumerate(plan.kills):
            stage.supervise(began + after)
            partition = number % plan.partitions
            killed.append((time.monotonic(), partition))
            stage.supervisor.kill(partition)
            stage.supervisor.news.clear()
        deadline = began + plan.seconds + RUN_S_MAX
        while any(process.poll() is None for process in stage.children):
            stage.supervise(time.monotonic() + 0.1)
            if any(process.poll() for process in stage.children) or time.monotonic() > deadline:
                raise SystemExit("the writer or the reader has failed, or there is no end: the run is void")
        used = {"cpu_s": stage.cpu_s() - cpu, "idle_percent": idle}
        sent, seen = (json.loads(stage.result(module).read_text()) for module in ("feeder", "reader"))
        return report(plan, sent, seen, killed) | used
    finally:
        stage.close()


def report(plan: Plan, sent: list[float], seen: Result, killed: list[tuple[float, int]]) -> Result:
    """Return the figures: ms, and s since the first document that counts."""
    first = round(WARM_S * RATE)
    start = sent[first]
    latencies = [(at - begun) * 1000 for at, begun in zip(seen["latest"], sent, strict=True)][first:]
    back = [
        min((at for at, begun in zip(seen["firsts"][partition], sent, strict=True) if begun > when and at), default=0.0)
        - when
        for when, partition in killed
    ]
    ordered = sorted(latencies)
    return {
        "latencies_ms": [round(each, 2) for each in latencies],
        "sent_s": [round(each - start, 3) for each in sent[first:]],
        "kills_s": [round(when - start, 3) for when, _ in killed],
        "first_output_s": back,
        "documents": plan.documents,
        "records": seen["records"],
        "repeated": seen["repeated"],
        **{f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in (50, 75, 95, 99)},
        "max": ordered[-1],
    }


def main(arguments: list[str]) -> None:
    """Run one plan in a directory of its own."""
    pairs = dict(argument.split("=", 1) for argument in arguments[1:])
    plan = Plan(
        arguments[0],
        pairs.get("mode", "at-least-once"),
        int(pairs.get("interval_ms", 1_000)),
        int(pairs.get("partitions", 2)),
        float(pairs.get("seconds", 15)),
        float(pairs.get("idle_s", 0)),
        [float(each) for each in pairs.get("kills", "").split(",") if each],
    )
    directory = Path(tempfile.mkdtemp(prefix="grete-latency-"))
    try:
        print(json.dumps(run(plan, directory)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
