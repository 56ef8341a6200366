"""A worker that is killed within a commit: a script.

killed_slices.py DIRECTORY MODE WHERE COUNT: run a job until it has committed all of its input, with slices and chunks
of a few keys; killed by SIGKILL before the COUNT-th call of WHERE, one of CALLS (0: not at all).
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.core.deterministic import write_ahead
from grete.execution.changelog import changelog_writer
from grete.execution.changelog.changelog_writer import DataSlices
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.report import WorkerReport
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay
from grete.worker.process.worker import OpenedLog, Worker

CALLS = {
    "slice": (DataSlices, "next"),
    "chunk": (Overlay, "apply_chunk"),
    "freeze": (Overlay, "freeze"),
    "part": (Overlay, "freeze_part"),
}

names = Topic("names", key=utf8, value=utf8)
totals = Topic("totals", key=utf8, value=int64)


class Count(Task):
    """Counts names, and sends each total."""

    input = Input(names)
    counts = Store("counts", key=utf8, value=int64)
    output = Output(totals)

    def process(self, record: Record[str, str]) -> None:
        """Count one."""
        total = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, total)
        self.output.send(record.value, total)


def job_of(mode: Any) -> Job:
    """Return the job in a mode."""
    return Job("slices", [Count], partitions=1, mode=mode)


def open_job(directory: Path, mode: str) -> tuple[Job, EmbeddedLog]:
    """Return the job and its log, with all topics."""
    job, log = job_of(mode), EmbeddedLog(directory / "log.db")
    create_topics(job, log)
    for topic in (names, totals):
        log.create_topic(topic.name, 1, plain=True)
    return job, log


def dies(owner: type, name: str, count: int) -> None:
    """Kill this process before a call."""
    function, calls = getattr(owner, name), [0]

    def call(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    setattr(owner, name, call)


def main(directory: Path, mode: str, where: str, count: int) -> None:
    """Run until all is committed."""
    vars(changelog_writer)["SLICE_KEYS"], vars(write_ahead)["FREEZE_PART_BYTES_MIN"] = 7, 1_000
    Overlay.apply_chunk.__defaults__ = (7,)
    dies(*CALLS[where], count)
    job, log = open_job(directory, mode)
    worker = Worker(job, [0], OpenedLog(log), JobDirectory(directory), Settings(checkpoint_interval_ms=20))
    end = log.bounds(worker.drivers[0].wiring.external[0])[1]

    def report(_report: WorkerReport) -> None:
        commit = worker.drivers[0].core.commits.committed
        if commit is not None and commit.external and commit.external[0].offset >= end:
            worker.stop()

    worker.reports.send = report
    worker.run()
    worker.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
