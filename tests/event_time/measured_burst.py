"""``python -m tests.event_time.measured_burst``: what a stop and commits do in a burst of a million timers.

``--timers N`` takes another number. A worker is asked to stop as soon as a commit has some of them, and a second one
fires the rest.
"""

import signal
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.state.commits import last_commit
from tests.event_time.bursting_job import FIRST_MS, IN, OUT, STEP_MS, bursting
from tests.support.reports import positions
from tests.worker.workers import TaskStatus, WorkerUnderTest, word_log

SHOWN = TopicPartition(OUT.name, 0)
CHANGELOG = TopicPartition("bursting.report.changelog", 0)


def worker_of(directory: Path) -> WorkerUnderTest:
    """Start a worker of the job."""
    return WorkerUnderTest(directory, reference="tests.event_time.bursting_job", task="report-0")


def main(timers: Annotated[int, typer.Option(help="How many are due at once.")] = 1_000_000) -> None:
    """Measure it, on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        job, directory = bursting(), Path(folder) / "job"
        log = word_log(directory, job)
        times = FIRST_MS, FIRST_MS + STEP_MS * timers, FIRST_MS + STEP_MS * timers + 1
        log.produce(0, 1, [ExternalRecord(TopicPartition(IN.name, 0), b"k", b"", at) for at in times])
        log.poll()
        begun = time.monotonic()
        with worker_of(directory) as worker:
            worker.until(lambda _: log.bounds(SHOWN)[1] > len(times))
            typer.echo(f"first commit with timers: {time.monotonic() - begun:.2f} s after the start")
            asked = time.monotonic()
            worker.signal(signal.SIGTERM)
            code = worker.ends()
            typer.echo(
                f"SIGTERM: exit {code} after {time.monotonic() - asked:.2f} s, {log.bounds(SHOWN)[1]} records shown"
            )
        commits, begun = set[int](), time.monotonic()

        def seen(status: TaskStatus) -> bool:
            if (last := last_commit(log, CHANGELOG)) is not None:
                commits.add(last.commit.checkpoint_id)
            return bool(positions(status).get(f"{IN.name}[0]") == len(times))

        with worker_of(directory) as worker:
            worker.until(seen)
            took = time.monotonic() - begun
            worker.signal(signal.SIGTERM)
            worker.ends()
        shown = log.bounds(SHOWN)[1]
        typer.echo(
            f"the rest: {took:.1f} s, at least {len(commits)} commits; {shown} of {timers + len(times)} records shown"
        )
        assert shown == timers + len(times)


if __name__ == "__main__":
    typer.run(main)
