"""A worker with calls that is killed: a script.

killed_calls.py DIRECTORY MODE URL WHERE COUNT: run a job until it has committed all of its input; killed by SIGKILL
before the COUNT-th call of WHERE, one of PLACES (0: not at all).
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from grete import Call, Input, Job, Output, Record, Store, Task, Topic, int64, utf8
from grete.core.deterministic.call_results import CallResults
from grete.execution.calls.flight import RecordInFlight
from grete.execution.calls.thread import CallThread
from grete.execution.engine.driver import TaskDriver
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.report import WorkerReport
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay
from grete.worker.process.worker import OpenedLog, Worker

PLACES: dict[str, tuple[type, str]] = {
    "call": (CallThread, "begin"),  # others are in flight
    "record": (RecordInFlight, "restart"),
    "results": (CallResults, "valid"),  # are in the log, and nothing of them was sent
    "freeze": (Overlay, "freeze"),
    "chunk": (Overlay, "apply_chunk"),
}

asked = Topic("asked", key=utf8, value=utf8)
answered = Topic("answered", key=utf8, value=int64)
url = ""


def ask(what: str) -> int:
    """Return the number that the server gives this request."""
    with urlopen(f"{url}/{what}", timeout=30) as answer:
        return int(answer.read())


class Ask(Task):
    """Asks for each record, keeps the last answer of each key, and sends all."""

    records = Input(asked)
    ask = Call(ask, result=int64)
    last = Store("last", key=utf8, value=int64)
    answers = Output(answered)
    in_flight = 16

    async def process(self, record: Record[str, str]) -> None:
        """Ask."""
        number = await self.ask(record.value)
        self.last.put(record.key, number)
        self.answers.send(record.value, number)


def job_of(mode: Any) -> Job:
    """Return the job in a mode."""
    return Job("asks", [Ask], partitions=1, mode=mode)


def open_job(directory: Path, mode: str) -> tuple[Job, EmbeddedLog]:
    """Return the job and its log, with all topics."""
    job, log = job_of(mode), EmbeddedLog(directory / "log.db")
    create_topics(job, log)
    for topic in (asked, answered):
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


def main(directory: Path, mode: str, address: str, where: str, count: int) -> None:
    """Run until all is committed."""
    global url  # noqa: PLW0603  # the function of a call has no other way to get it
    url = address
    dies(*PLACES[where], count)
    job, log = open_job(directory, mode)
    worker = Worker(
        job, [0], OpenedLog(log), JobDirectory(directory), Settings(checkpoint_interval_ms=50, batch_bytes_max=400)
    )
    driver: TaskDriver = worker.drivers[0]
    end = log.bounds(driver.wiring.external[0])[1]

    def report(_report: WorkerReport) -> None:
        commit = driver.core.commits.committed
        if commit is not None and commit.external and commit.external[0].offset >= end:
            worker.stop()

    worker.reports.send = report
    worker.run()
    worker.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
