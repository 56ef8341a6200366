"""The systems: each starts a member on a machine."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.preparing import java_classpath, python_with
from benchmarks.results import ROOT
from grete.spark.java import find_java
from tests.verification.machines.machine import Machine

INTERVAL_MS = 100  # of checkpoints and of commits
STREAMS = ROOT / "benchmarks" / "kafka_streams"
QUIX = ROOT / "benchmarks" / "peers" / "quixstreams"
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


@dataclass(frozen=True)
class Names:
    """The names of one run: the job's topics, and the address of its broker."""

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


def _grete(*options: str) -> Callable[[Machine, Names], "subprocess.Popen[bytes]"]:
    def start(machine: Machine, names: Names) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "grete.cli", "up", "benchmarks.cluster.job"]
        command += ["--log", f"kafka://{names.bootstrap}", "--directory", str(machine.directory / "job")]
        settings = [f"checkpoint_interval_ms={INTERVAL_MS}", f"machine={machine.name}"]
        command += [*options, *(part for each in settings for part in ("--set", each))]
        own = {"BENCH_RUN": names.run, "BENCH_MACHINE": machine.name, "BENCH_PARTITIONS": str(names.partitions)}
        paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        return machine.start(command, machine.directory / "log", environment=own | paths)

    return start


def _classes() -> str:
    return java_classpath("Kafka Streams", STREAMS / "pom.xml", STREAMS / "CountHere.java")


def _streams(standbys: int, session_ms: int, threads: int = 2) -> Callable[[Machine, Names], "subprocess.Popen[bytes]"]:
    def start(machine: Machine, names: Names) -> "subprocess.Popen[bytes]":
        state = machine.directory / "state"
        command = [find_java(), "-Xmx500m", QUIET, "-cp", _classes(), "CountHere", names.bootstrap, names.events]
        command += [names.counted, f"cluster-{names.run}", str(state), machine.name, str(INTERVAL_MS)]
        command += [str(threads), str(standbys), str(session_ms)]
        return machine.start(command, machine.directory / "log")

    return start


def _quix_python() -> str:
    return python_with("quixstreams", QUIX / "requirements.txt")


def _quix(machine: Machine, names: Names) -> "subprocess.Popen[bytes]":
    command = [_quix_python(), str(QUIX / "count_here.py"), names.bootstrap, names.events, names.counted]
    command += [f"cluster-{names.run}", str(machine.directory / "state"), machine.name, str(INTERVAL_MS)]
    return machine.start(command, machine.directory / "log")


def _everything() -> None:
    find_java()
    _classes()


SYSTEMS = {
    system.name: system
    for system in (
        System("Grete", _grete()),
        System("Grete, a standby", _grete("--set", "standby_replicas=1")),
        System("Kafka Streams", _streams(0, 45_000), _everything),
        System("Kafka Streams, a standby, session timeout 6 s", _streams(1, 6_000), _everything),
        System("quixstreams", _quix, _quix_python),
    )
}

# For messages a second: a member has one process, or one thread, that processes records, so two have both cores.
RATED = {
    system.name: system
    for system in (
        System("Grete, --processes 1", _grete("--processes", "1")),
        System("Kafka Streams, a thread", _streams(0, 45_000, threads=1), _everything),
        System("quixstreams", _quix, _quix_python),
    )
}


def words(machine: Machine) -> str:
    """Return the end of a member's log."""
    path: Path = machine.directory / "log"
    return path.read_text(errors="replace")[-2_000:] if path.exists() else ""
