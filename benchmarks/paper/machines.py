"""The job on machines: network namespaces with a worker each; the broker, the writer and the reader are at the switch.

``python -m benchmarks.paper`` makes the network, as root; a run enters it by the name of the network.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.latency.modes import Mode
from benchmarks.latency.workers import cpu_s
from grete.job.directory import JobDirectory
from grete.logs.address import KAFKA, LogAddress
from grete.settings import Settings
from tests.verification.chaos.cluster import Cluster
from tests.verification.machines.machine import NAMESPACES, inside, pids_in
from tests.verification.machines.network import Network

ROOT = Path(__file__).parents[2]
STOP_S_MAX = 30.0
LOOK_S = 0.02
TAIL = 2_000  # characters of a log


@contextlib.contextmanager
def network(machines: int) -> Iterator[tuple[str, str]]:
    """Yield the name of a network of machines, and its log: a broker at the switch, where the thread is meanwhile.

    Raises NoNetwork where there can be none.
    """
    with tempfile.TemporaryDirectory(prefix="grete-paper-") as name:
        directory = Path(name)
        with (
            Network(directory, [f"m{number}" for number in range(machines)]) as made,
            Cluster(directory / "kafka", host=made.host) as broker,
        ):
            yield made.machines["m0"].namespace.removesuffix("-m0"), KAFKA + broker.bootstrap


class Hosts:
    """Workers on machines: each has the tasks of one partition, and its own directory. They are not killed."""

    def __init__(self, on: str, log: str, mode: Mode, interval_ms: int, run: str, directory: Path) -> None:
        """``on``: the name of the network."""
        self._on, self._log, self._run, self.directory = on, log, run, directory
        self._mode, self._interval_ms = mode, interval_ms
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, partitions: int) -> None:
        """Start a worker for each partition of a job."""
        own = {
            "BENCH_RUN": self._run,
            "BENCH_PARTITIONS": str(partitions),
            "BENCH_MODE": self._mode.name,
            "BENCH_INTERVAL_MS": str(self._interval_ms),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        os.environ |= own  # the job is loaded here, too
        for partition in range(partitions):
            self._start(partition, module, own)

    def _start(self, partition: int, module: str, own: Mapping[str, str]) -> None:
        place = self.on_machine(partition)
        command = [sys.executable, "-m", "grete.cli", "worker", module, "--partition", str(partition)]
        command += ["--log", self._log, "--directory", str(place.directory)]
        changed, usual = self._mode.settings(self._interval_ms), Settings()
        for name in Settings.__struct_fields__:
            if getattr(changed, name) != getattr(usual, name):
                command += ["--set", f"{name}={getattr(changed, name)}"]
        with self._words_of(partition).open("wb") as words, inside(self._namespace(partition)):
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=os.environ | dict(own)
            )
        self._started.append(process)

    def on_machine(self, partition: int) -> JobDirectory:
        """Return the job's directory on the machine of a partition."""
        return JobDirectory(self.directory / f"m{partition}", address=LogAddress(self._log))

    def started(self) -> bool:
        """Return True: the first documents will tell."""
        return True

    def supervise(self, until_s: float) -> None:
        """Wait until a time. Raises SystemExit if a worker has ended."""
        time.sleep(max(0.0, until_s - time.monotonic()))
        if any(process.poll() is not None for process in self._started):
            raise SystemExit(f"a worker ended: the run does not count\n{self.last_words()}")

    def cpu_s(self) -> float:
        """Return the CPU time of all that runs on the machines."""
        return cpu_s(pid for partition in range(len(self._started)) for pid in pids_in(self._namespace(partition)))

    def kill(self, partition: int) -> None:
        """Raise SystemExit: another worker would have to take its place."""
        raise SystemExit(f"worker {partition} is on a machine: kills is for workers under their supervisor")

    def last_words(self) -> str:
        """Return the end of each worker's log."""
        logs = (self._words_of(partition) for partition in range(len(self._started)))
        return "\n".join(log.read_text(errors="replace")[-TAIL:] for log in logs)

    def stop(self) -> None:
        """Let all workers commit and end. Raises SystemExit if one does not in time."""
        for process in self._started:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S_MAX
        while any(process.poll() is None for process in self._started):
            if time.monotonic() > deadline:
                raise SystemExit(f"workers do not stop: the run does not count\n{self.last_words()}")
            time.sleep(LOOK_S)

    def close(self) -> None:
        """End all workers."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()

    def _namespace(self, partition: int) -> Path:
        return NAMESPACES / f"{self._on}-m{partition}"

    def _words_of(self, partition: int) -> Path:
        return self.directory / f"m{partition}.log"
