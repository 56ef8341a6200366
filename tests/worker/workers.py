"""Worker processes in the hands of a test: real ones, with real signals."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grete import Job
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord, JobMetadata, Log
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import last_commit
from grete.worker.pipes.signal_pipe import STOPS
from tasks.word_count import job as word_count
from tests.support.dropped import when_dropped
from tests.support.reports import said_in
from tests.support.waiting import Patience, bounded, until, written

LIMIT_S = 180.0  # of any wait: far beyond what a slow machine needs, so that a hang is a failure and nothing else is
LOOK_S = 0.5  # that a wait sleeps at most, if nothing wakes it
SENTENCES, TOTALS = TopicPartition("sentences", 0), TopicPartition("word-totals", 0)
CHANGELOG = TopicPartition("word-count.count-words.changelog", 0)
TASK = "count-words-0"

TaskStatus = dict[str, Any]


class WorkerUnderTest:
    """``grete worker``, killed at the end of the block whatever it does; ``task``: whose status is looked at."""

    def __init__(
        self,
        directory: Path,
        *options: str,
        reference: str = "tasks.word_count",
        partition: int = 0,
        task: str = TASK,
    ) -> None:
        self.status: TaskStatus = {}
        self.task = task
        self._reader, writer = os.pipe()
        self._rest = b""
        command = [sys.executable, "-m", "grete.cli", "worker", reference, f"--partition={partition}"]
        command += [f"--directory={directory}", f"--status-fd={writer}", *options]
        self.log_path = directory.parent / f"worker-{writer}-{time.monotonic_ns()}.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, pass_fds=[writer], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        os.close(writer)

    def until(self, condition: Callable[[TaskStatus], bool]) -> TaskStatus:
        """Wait for a status of the task that meets the condition; fail if the worker ends before."""
        patience = Patience(written(condition), self._said)
        while True:
            patience.check()
            if not select.select([self._reader], [], [], LOOK_S)[0]:
                continue
            data = os.read(self._reader, 1 << 16)
            assert data, f"it has ended before {written(condition)}: {self._said()}"
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in filter(None, lines):  # an empty one is a sign of life
                try:
                    self.status = said_in(line)[self.task]
                except ValueError:
                    continue  # a line cut short by a full pipe: this test was slow to read it
                if condition(self.status):
                    return self.status

    def running(self) -> TaskStatus:
        """Wait until the task takes input."""
        return self.until(lambda status: status["status"] == "running")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for its end; return the exit code. Its reports are read as a supervisor does: it waits for a reader."""
        patience = Patience("the worker's end", self._said)
        while self._reader >= 0:
            patience.check()
            if select.select([self._reader], [], [], LOOK_S)[0] and not os.read(self._reader, 1 << 16):
                break
        with bounded("the worker's end", self._said):
            return self.process.wait()

    def _said(self) -> str:
        return f"{self.status}\n{self.log_path.read_text()}"

    def leave(self) -> None:
        """Close the status pipe, as a supervisor that dies does."""
        os.close(self._reader)
        self._reader = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        if self._reader >= 0:
            os.close(self._reader)


def word_log(directory: Path, job: Job = word_count) -> EmbeddedLog:
    """Return the log of a job with its topics."""
    log = EmbeddedLog(JobDirectory(directory).directory / "log.db")
    when_dropped(log, log.file.sql.close)  # a test need not close it
    create_topics(job, log)
    return log


def say(log: JobMetadata, *sentences: str) -> None:
    """Append sentences."""
    records = [ExternalRecord(SENTENCES, None, sentence.encode(), 1) for sentence in sentences]
    log.produce_with_meta(records, {})


def until_committed(log: EmbeddedLog, sentences: int) -> None:
    """Wait until that many sentences are part of a commit."""

    def are_committed() -> bool:
        last = last_commit(log, CHANGELOG)
        return last is not None and bool(last.commit.external) and last.commit.external[0].offset >= sentences

    until(
        are_committed,
        f"a commit of {sentences} sentences",
        step=lambda: log.wait(1_000 * LOOK_S),
        saw=lambda: last_commit(log, CHANGELOG),
    )


def totals(log: Log) -> list[tuple[str, int]]:
    """Return (word, total) of everything sent."""
    rows = log.read(TOTALS, 0, 1 << 30)
    return [((row.key or b"").decode(), int.from_bytes(row.value or b"", "big")) for row in rows]


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Give the test its own signal handlers back after a command that has put in others."""
    before = [(number, signal.getsignal(number)) for number in STOPS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
