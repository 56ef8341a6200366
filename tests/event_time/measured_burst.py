"""``python -m tests.event_time.measured_burst``: what a stop and commits do in a burst of a million timers.

``--timers N`` takes another number, ``--job`` one of the other modules here with such a job (decided_burst with
PYTHONHASHSEED=0). A worker is asked to stop as soon as a commit has some of them, and a second one fires the rest.
"""

import signal
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from grete import Job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import last_commit
from tests.event_time.bursting_job import FIRST_MS, IN, OUT, STEP_MS
from tests.support.reports import positions
from tests.worker.workers import TaskStatus, WorkerUnderTest, word_log

SHOWN = TopicPartition(OUT.name, 0)
CHANGELOG = TopicPartition("bursting.report.changelog", 0)


def worker_of(directory: Path, job: str) -> WorkerUnderTest:
    """Start a worker of the job."""
    return WorkerUnderTest(
        directory, "--set=shutdown_timeout_ms=600000", reference=f"tests.event_time.{job}", task="report-0"
    )


def main(
    timers: Annotated[int, typer.Option(help="How many are due at once.")] = 1_000_000,
    job_module: Annotated[
        str, typer.Option("--job", help="bursting_job, calling_burst, decided_burst")
    ] = "bursting_job",
) -> None:
    """Measure it, on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        job: Job = import_module(f"tests.event_time.{job_module}").job
        directory = Path(folder) / "job"
        log = word_log(directory, job)
        times = FIRST_MS, FIRST_MS + STEP_MS * timers, FIRST_MS + STEP_MS * timers + 1
        log.produce(0, 1, [ExternalRecord(TopicPartition(IN.name, 0), b"k", b"", at) for at in times])
        log.poll()

        def has_timers() -> bool:
            last = last_commit(log, CHANGELOG)  # its position is behind the record that moves time
            return last is not None and last.commit.external[0].offset == len(times) - 1

        begun = time.monotonic()
        with worker_of(directory, job_module) as worker:
            worker.until(lambda _: has_timers())
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

        def shows_more(before: int) -> Callable[[TaskStatus], bool]:
            return lambda status: seen(status) or log.bounds(SHOWN)[1] > before

        with worker_of(directory, job_module) as worker:
            done = False
            while not done:  # each commit gives it patience again
                done = seen(worker.until(shows_more(log.bounds(SHOWN)[1])))
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
