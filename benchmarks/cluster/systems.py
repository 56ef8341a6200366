"""How a member of each system is started on a machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.preparing import java_classpath
from benchmarks.results import ROOT
from framework.spark.java import find_java
from tests.verification.machines.machine import Machine

INTERVAL_MS = 100  # of checkpoints and of commits
STREAMS = ROOT / "benchmarks" / "kafka_streams"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


@dataclass(frozen=True)
class Names:
    """Of one run: the job's topics and where its broker is."""

    bootstrap: str
    run: str
    partitions: int

    @property
    def events(self) -> str:
        """Return the topic that is read."""
        return f"bench-events-{self.run}"

    @property
    def counted(self) -> str:
        """Return the topic that is written."""
        return f"bench-counted-{self.run}"


@dataclass(frozen=True)
class System:
    """One row of the tables. ``prepare`` fetches what it needs, before there is a network without a way out."""

    name: str
    start: Callable[[Machine, Names], "subprocess.Popen[bytes]"]
    prepare: Callable[[], object] = field(default=lambda: None)


def _grete(*sets: str) -> Callable[[Machine, Names], "subprocess.Popen[bytes]"]:
    def start(machine: Machine, names: Names) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "framework.cli", "up", "benchmarks.cluster.job"]
        command += ["--log", f"kafka://{names.bootstrap}", "--directory", str(machine.directory / "job")]
        settings = [f"checkpoint_interval_ms={INTERVAL_MS}", f"machine={machine.name}", *sets]
        command += [part for each in settings for part in ("--set", each)]
        own = {"BENCH_RUN": names.run, "BENCH_MACHINE": machine.name, "BENCH_PARTITIONS": str(names.partitions)}
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        return machine.start(command, machine.directory / "log", environment=own | paths)

    return start


def _classes() -> str:
    return java_classpath("Kafka Streams", STREAMS / "pom.xml", STREAMS / "CountHere.java")


def _streams(standbys: int, session_ms: int) -> Callable[[Machine, Names], "subprocess.Popen[bytes]"]:
    def start(machine: Machine, names: Names) -> "subprocess.Popen[bytes]":
        state = machine.directory / "state"
        command = [find_java(), "-Xmx500m", QUIET, "-cp", _classes(), "CountHere", names.bootstrap, names.events]
        command += [names.counted, f"cluster-{names.run}", str(state), machine.name, str(INTERVAL_MS)]
        command += ["2", str(standbys), str(session_ms)]
        return machine.start(command, machine.directory / "log")

    return start


def _everything() -> None:
    find_java()
    _classes()


SYSTEMS = {
    system.name: system
    for system in (
        System("Grete", _grete()),
        System("Kafka Streams", _streams(0, 45_000), _everything),
        System("Kafka Streams, a standby, session timeout 6 s", _streams(1, 6_000), _everything),
    )
}


def words(machine: Machine) -> str:
    """Return the end of a member's log."""
    path: Path = machine.directory / "log"
    return path.read_text(errors="replace")[-2_000:] if path.exists() else ""
