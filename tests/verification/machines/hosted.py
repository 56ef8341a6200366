"""Workers of the chain job on the machines of a network, each a ``grete worker`` of one partition."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from tests.support.reports import said_in
from tests.verification.chaos.chain import ChainJob, Mode
from tests.verification.machines.machine import Machine

ROOT = Path(__file__).parents[3]
LONG_FETCHES = "consumer.fetch.wait.max.ms=100\n"  # of workers that ask every 10 ms, and wait most of the time
WORDS = 3  # lines of a log that are told
REFERENCE = """from tests.verification.chaos.chain import chain_job

job = chain_job({suffix!r}, {mode!r}).job
"""


@dataclass(eq=False)
class Hosted:
    """One process. ``took_s``: from its start until all its tasks took input, None: not yet."""

    partition: int
    machine: Machine
    process: "subprocess.Popen[bytes]"
    pipe: int
    log: Path
    state: Path
    started_s: float
    took_s: float | None = None
    ended_by: set[str] = field(default_factory=set)  # what we did to it to end it
    status: dict[str, Any] = field(default_factory=dict)

    def words(self) -> str:
        """Return the end of its log, without what is usual."""
        return " / ".join(self._odd_lines()[-WORDS:])[-1500:]

    def last_event(self) -> str:
        """Return the last event of its log that is not usual, or nothing."""
        for line in reversed(self._odd_lines()):
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                return str(entry.get("kind") or entry["event"])
        return ""

    def _odd_lines(self) -> list[str]:
        return [line for line in self.log.read_text(errors="replace").splitlines() if '"INFO"' not in line]


class Hosting:
    """Starts workers and takes what they say. ``living`` is in the order of their starts."""

    def __init__(self, names: ChainJob, mode: Mode, log: str) -> None:
        self.names = names
        self.living: list[Hosted] = []
        self.starts = 0
        suffix = names.job.name.removeprefix("chain")
        self._reference, self._log = REFERENCE.format(suffix=suffix, mode=mode), log

    def job_directory(self, machine: Machine) -> JobDirectory:
        """Return the directory in which a machine keeps the job."""
        return JobDirectory(machine.directory / "job", address=LogAddress(self._log))

    def start(self, machine: Machine, partition: int, sets: Sequence[str], state: Path | None = None) -> Hosted:
        """Start a worker of a partition on a machine; its stores are the machine's own, if not in ``state``."""
        self.starts += 1
        machine.write("chain_here.py", self._reference)
        machine.write("kafka.properties", LONG_FETCHES)
        log = machine.directory / f"worker-{self.starts}-of-{partition}.log"
        place = self.job_directory(machine)
        command = [sys.executable, "-m", "grete.cli", "worker", "chain_here.py", "--partition", str(partition)]
        command += ["--log", self._log, "--kafka-config", "kafka.properties", "--directory", str(place.directory)]
        command += ["--state-directory", str(state)] if state is not None else []
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        command += ["--status-fd", str(writer), *(part for each in sets for part in ("--set", each))]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = machine.start(command, log, files=[writer], environment={"PYTHONPATH": paths, "PYTHONHASHSEED": "0"})
        os.close(writer)
        kept = place.state_directory if state is None else state
        hosted = Hosted(partition, machine, process, reader, log, kept, time.monotonic())
        self.living.append(hosted)
        return hosted

    def poll(self) -> list[Hosted]:
        """Take what they say; return those that have ended since the last call."""
        for hosted in self.living:
            _read_status(hosted)
            if hosted.took_s is None and self._takes_input(hosted):
                hosted.took_s = time.monotonic() - hosted.started_s
        ended = [hosted for hosted in self.living if hosted.process.poll() is not None]
        for hosted in ended:
            os.close(hosted.pipe)
            self.living.remove(hosted)
        return ended

    def _takes_input(self, hosted: Hosted) -> bool:
        tasks = hosted.status.values()
        return len(tasks) == len(self.names.job.stages) and all(task["status"] == "running" for task in tasks)

    def on(self, machine: Machine) -> list[Hosted]:
        """Return the living workers of a machine."""
        return [hosted for hosted in self.living if hosted.machine is machine]

    def ask_to_stop(self, hosted: Hosted) -> None:
        """Send SIGTERM."""
        hosted.ended_by.add("a stop")
        hosted.process.send_signal(signal.SIGTERM)

    def wipe(self, machine: Machine) -> None:
        """Delete all that the job has on a machine without processes: it comes back with an empty disk."""
        assert not self.on(machine)
        shutil.rmtree(self.job_directory(machine).directory, ignore_errors=True)


def _read_status(hosted: Hosted) -> None:
    """Take the last whole line in the pipe; workers drop what does not fit."""
    try:
        lines = os.read(hosted.pipe, 1 << 16).split(b"\n")
    except BlockingIOError:
        return
    for line in reversed(lines[:-1]):  # an empty one is a sign of life
        with contextlib.suppress(ValueError):
            hosted.status = said_in(line)
            return
