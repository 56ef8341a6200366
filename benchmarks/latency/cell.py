"""One run of the experiment: ``python -m benchmarks.latency.cell LOG key=value …`` prints one JSON object.

``LOG``: embedded or kafka://host:port. The job's workers under their supervisor (or a peer's processes), the writer of
documents and the reader of changes are processes of their own; this one supervises and, if it is told to, kills.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.latency.modes import MODES, Mode
from benchmarks.latency.workers import JOB, Running, Workers
from benchmarks.on_kafka import make_topic
from benchmarks.peers.process import Process
from benchmarks.peers.tools import PEERS
from grete.logs.address import EMBEDDED, KAFKA
from grete.logs.embedded import EmbeddedLog

RATE = 50.0  # documents a second
WARM_S = 2.0  # of documents whose latency does not count: code, caches and connections are cold
PEERS_WARM_S = 10.0  # a JVM compiles its code while it runs
START_S_MAX = 120.0
RUN_S_MAX = 120.0  # beyond the documents' own time
QUIET_S = 3.0  # before an idle job is measured, and after its start
Child = subprocess.Popen[str]
Result = dict[str, Any]


@dataclass
class Plan:
    """The plan of a run.

    ``mode``: or a peer; ``kills``: times to kill a worker, in s after the first document that counts; ``machines``: the
    network on whose machines workers run, of an experiment that has one.
    """

    log: str
    mode: str = "at-least-once"
    checkpoint_interval_ms: int = 1_000
    partitions: int = 2
    seconds: float = 15.0
    idle_s: float = 0.0  # to measure before the first document
    kills: list[float] = field(default_factory=list)
    rate: float = RATE
    machines: str = ""

    @property
    def first(self) -> int:
        """The first document that counts."""
        return round((PEERS_WARM_S if self.mode in PEERS else WARM_S) * self.rate)

    @property
    def documents(self) -> int:
        """All documents, those to warm up included."""
        return self.first + round(self.seconds * self.rate)


class Stage:
    """The processes of a run: the job, and its two ends."""

    job_module: ClassVar = JOB
    modes: ClassVar[Mapping[str, Mode]] = MODES
    peer_options: ClassVar[Sequence[str]] = ()

    def __init__(self, plan: Plan, directory: Path) -> None:
        """Make the topics; start the job."""
        run = os.urandom(4).hex()
        self.plan, self.directory = plan, directory
        self.topics = f"latency-documents-{run}", f"latency-changes-{run}"
        self.children: list[Child] = []
        if plan.log.startswith(KAFKA):
            for topic in self.topics:
                make_topic(plan.log.removeprefix(KAFKA), topic, plan.partitions)
        self.job: Running
        self.job, self.log = self._peer() if plan.mode in PEERS else self.workers(run)
        if self.log != plan.log:
            log = EmbeddedLog(Path(self.log))
            for topic in self.topics:
                log.create_topic(topic, plan.partitions, plain=True)
            log.close()

    def _peer(self) -> tuple[Running, str]:
        plan, peer = self.plan, replace(PEERS[self.plan.mode], options=self.peer_options)
        where = self.topics, self.directory / "job"
        bootstrap = plan.log.removeprefix(KAFKA)
        return Process(bootstrap, peer, plan.checkpoint_interval_ms, plan.partitions, *where), plan.log

    def workers(self, run: str) -> tuple[Running, str]:
        """Start Grete's job; return it with its log."""
        plan, mode = self.plan, self.modes[self.plan.mode]
        where = run, self.directory / "job", self.job_module
        own = Workers(plan.log, mode, plan.checkpoint_interval_ms, plan.partitions, *where)
        return own, own.log

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

    def start(self) -> None:
        """Wait until the job takes input."""
        deadline = time.monotonic() + START_S_MAX
        while not self.job.started():
            self.job.supervise(time.monotonic() + 0.02)
            if time.monotonic() > deadline:
                raise SystemExit(f"the job does not start: {self.job.last_words()}")

    def observe(self, process: Child) -> None:
        """Wait until a child has written a line. Raises SystemExit if it ends instead, or it takes too long."""
        assert process.stdout is not None
        deadline = time.monotonic() + START_S_MAX
        while not select.select([process.stdout], [], [], 0)[0]:
            self.job.supervise(time.monotonic() + 0.02)
            if time.monotonic() > deadline:
                raise SystemExit(f"{process.args!r} says nothing for {START_S_MAX:.0f} s: {self.job.last_words()}")
        if not process.stdout.readline():
            raise SystemExit(f"{process.args!r} ended: the run does not count")

    def idle(self, seconds: float) -> float:
        """Return the share of a core that a task takes which has nothing to do, in %."""
        self.job.supervise(time.monotonic() + QUIET_S)
        before = self.job.cpu_s()
        self.job.supervise(time.monotonic() + seconds)
        tasks = 2 * self.plan.partitions
        return 100 * (self.job.cpu_s() - before) / seconds / tasks

    def begin(self) -> None:
        """Note what the job has done before the first document that counts."""

    def end(self) -> Result:
        """Return further figures: all outputs have been seen, and the job still runs. Raises SystemExit."""
        return {}

    def close(self) -> None:
        """End everything."""
        for process in self.children:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.job.close()


def tell(process: Child) -> None:
    """Let a child go on."""
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def run(stage: Stage) -> Result:
    """Run, close the stage, and return what was seen."""
    plan = stage.plan
    try:
        stage.start()
        idle = stage.idle(plan.idle_s) if plan.idle_s else None
        reader = stage.child("reader", stage.topics[1], allowed(plan, stage.modes))
        feeder = stage.child("feeder", stage.topics[0], str(plan.rate))
        stage.observe(reader)
        stage.observe(feeder)
        tell(feeder)
        stage.observe(reader)  # the first document of each partition has come through
        stage.begin()
        cpu = stage.job.cpu_s()
        began = time.monotonic() + plan.first / plan.rate
        tell(feeder)
        killed: list[tuple[float, int]] = []
        for number, after in enumerate(plan.kills):
            stage.job.supervise(began + after)
            partition = number % plan.partitions
            killed.append((time.monotonic(), partition))
            stage.job.kill(partition)
        deadline = began + plan.seconds + RUN_S_MAX
        while any(process.poll() is None for process in stage.children):
            stage.job.supervise(time.monotonic() + 0.1)
            if any(process.poll() for process in stage.children) or time.monotonic() > deadline:
                raise SystemExit("the writer or the reader has failed, or there is no end: the run does not count")
        used = {"cpu_s": stage.job.cpu_s() - cpu, "idle_percent": idle}
        sent, seen = (json.loads(stage.result(module).read_text()) for module in ("feeder", "reader"))
        return report(plan, sent, seen, killed) | used | stage.end()
    finally:
        stage.close()


def allowed(plan: Plan, modes: Mapping[str, Mode]) -> str:
    """Return the trouble that the reader allows: repeats, losses, or none."""
    if plan.kills and modes[plan.mode].repeats:
        return "repeats"
    return "losses" if plan.kills and modes[plan.mode].loses else "once"


def report(plan: Plan, sent: list[float], seen: Result, killed: list[tuple[float, int]]) -> Result:
    """Return the figures: ms, and s since the first document that counts."""
    first = plan.first
    start = sent[first]
    whole = [(begun, at) for at, begun in zip(seen["latest"], sent, strict=True) if at][first:]  # else it lost a record
    latencies = [(at - begun) * 1000 for begun, at in whole]
    back = [
        min((at for at, begun in zip(seen["firsts"][partition], sent, strict=True) if begun > when and at), default=0.0)
        - when
        for when, partition in killed
    ]
    ordered = sorted(latencies)
    return {
        "latencies_ms": [round(each, 2) for each in latencies],
        "sent_s": [round(begun - start, 3) for begun, _ in whole],
        "kills_s": [round(when - start, 3) for when, _ in killed],
        "first_output_s": back,
        "documents": plan.documents,
        "records": seen["records"],
        "repeated": seen["repeated"],
        "lost": seen["lost"],
        **{f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in (50, 75, 95, 99)},
        "max": ordered[-1],
    }


def planned(arguments: list[str]) -> Plan:
    """Return the plan that a command line asks for. Raises SystemExit for a log that is none."""
    if arguments[0] != EMBEDDED and not arguments[0].startswith(KAFKA):
        raise SystemExit(f"log {arguments[0]!r}: {EMBEDDED}, or {KAFKA}host:port of a broker that runs")
    pairs = dict(argument.split("=", 1) for argument in arguments[1:])
    return Plan(
        arguments[0],
        pairs.get("mode", "at-least-once"),
        int(pairs.get("checkpoint_interval_ms", 1_000)),
        int(pairs.get("partitions", 2)),
        float(pairs.get("seconds", 15)),
        float(pairs.get("idle_s", 0)),
        [float(each) for each in pairs.get("kills", "").split(",") if each],
        float(pairs.get("rate", RATE)),
        pairs.get("machines", ""),
    )


def main(arguments: list[str], stage: type[Stage] = Stage) -> None:
    """Run one plan in a directory of its own."""
    plan = planned(arguments)
    directory = Path(tempfile.mkdtemp(prefix="grete-latency-"))
    try:
        print(json.dumps(run(stage(plan, directory))))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
