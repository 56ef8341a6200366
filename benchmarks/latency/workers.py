"""The job that is measured: what the experiment asks of it, and Grete's own, its workers under their supervisor."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from benchmarks.latency.modes import Mode
from grete.core.supervision.assignment import Assignment
from grete.job.directory import JobDirectory
from grete.logs.address import IN_DIRECTORY, KAFKA, LogAddress
from grete.protocol.report import TaskState
from grete.worker.supervisor.supervisor import Supervisor

JOB = "benchmarks.latency.job"


class Running(Protocol):
    """A job that runs: Grete's, or a peer's."""

    def started(self) -> bool:
        """Return whether it has come so far that documents may be sent, as far as it can tell."""
        ...

    def supervise(self, until_s: float) -> None:
        """Let it run until a time. Raises SystemExit if a process of it ended of itself."""
        ...

    def cpu_s(self) -> float:
        """Return the CPU time of its processes that run now; 0 where the system does not tell."""
        ...

    def kill(self, partition: int) -> None:
        """Kill the process of a partition; another takes its place."""
        ...

    def last_words(self) -> str:
        """Return the end of what it wrote of itself."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def cpu_s(processes: Iterable[int]) -> float:
    """Return the CPU time of processes; nothing for those that have ended, or where the system does not tell."""
    total = 0.0
    for number in processes:
        stat = Path(f"/proc/{number}/stat")
        if stat.exists():
            fields = stat.read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Workers:
    """Grete's job: a worker for each partition."""

    def __init__(
        self,
        log: str,
        mode: Mode,
        checkpoint_interval_ms: int,
        partitions: int,
        run: str,
        directory: Path,
        job_module: str,
    ) -> None:
        """``directory``: where the job lives, and the embedded log."""
        os.environ |= {
            "BENCH_RUN": run,
            "BENCH_PARTITIONS": str(partitions),
            "BENCH_MODE": mode.name,
            "BENCH_INTERVAL_MS": str(checkpoint_interval_ms),
            "PYTHONHASHSEED": "0",
        }
        job_directory = JobDirectory(directory, address=LogAddress(log) if log.startswith(KAFKA) else IN_DIRECTORY)
        self.directory = job_directory
        self.log = log if log.startswith(KAFKA) else str(job_directory.directory / "log.db")
        self._supervisor = Supervisor(
            job_directory, job_module, Assignment(frozenset(range(partitions))), mode.settings(checkpoint_interval_ms)
        )

    def started(self) -> bool:
        """Return whether all tasks take input."""
        return all(
            worker.reports.tasks and all(task.status is TaskState.RUNNING for task in worker.reports.tasks.values())
            for worker in self._supervisor.workers.values()
        )

    def supervise(self, until_s: float) -> None:
        """Let the supervisor work until a time."""
        while (left := until_s - time.monotonic()) > 0:
            self._supervisor.poll(min(20.0, left * 1000))
        if self._supervisor.news:
            raise SystemExit(f"a worker crashed: {self._supervisor.news[0]}: the run does not count")

    def cpu_s(self) -> float:
        """Return the CPU time of the workers that run now."""
        processes = map(self._supervisor.process, self._supervisor.workers)
        return cpu_s(process.pid for process in processes if process is not None)

    def kill(self, partition: int) -> None:
        """Kill a worker; the supervisor starts its successor."""
        self._supervisor.kill(partition)
        self._supervisor.news.clear()

    def last_words(self) -> str:
        """Return those of the first worker."""
        return "" if (last := self._supervisor.workers[0].restarts.last) is None else last.text

    def stop(self) -> None:
        """Let all workers commit and end. Raises SystemExit if one does not in time."""
        self._supervisor.stop()
        if late := [each.number for each in self._supervisor.core.failures if each.late]:
            raise SystemExit(f"workers {late} did not stop in time: the run does not count")

    def close(self) -> None:
        """End all workers."""
        self._supervisor.close()
