"""Both jobs as one that is measured."""

import time
from collections.abc import Sequence

from benchmarks.latency.workers import Workers

TURN_S = 0.01


def stored_in(run: str) -> str:
    """Return the name of the topic between the jobs."""
    return f"latency-postings-{run}"


class Productions:
    """Jobs that run side by side, the first one first."""

    def __init__(self, jobs: Sequence[Workers]) -> None:
        """Take jobs whose workers have been started."""
        self.jobs = jobs

    def started(self) -> bool:
        """Return whether all tasks take input."""
        return all(job.started() for job in self.jobs)

    def supervise(self, until_s: float) -> None:
        """Let the supervisors work until a time, by turns."""
        while time.monotonic() < until_s:
            for job in self.jobs:
                job.supervise(min(until_s, time.monotonic() + TURN_S))

    def cpu_s(self) -> float:
        """Return the CPU time of the workers that run now."""
        return sum(job.cpu_s() for job in self.jobs)

    def kill(self, partition: int) -> None:
        """Kill the workers of a partition, as they would die with their host."""
        for job in self.jobs:
            job.kill(partition)

    def last_words(self) -> str:
        """Return those of the first workers."""
        return "\n".join(job.last_words() for job in self.jobs)

    def close(self) -> None:
        """End all workers."""
        for job in self.jobs:
            job.close()
