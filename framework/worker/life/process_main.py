"""A worker's process as a supervisor starts it: nothing is imported that only people need.

Its spec is a line of standard input: it may hold secrets, and every user of a machine sees the command lines there.
``python -m grete.worker.life.process_main JOB NUMBER`` says to people what the process is for. Without these it is a
prewarmed worker: it imports everything, opens nothing, and waits for its spec. Most of a start is Python's imports. A
standby that was asked to end becomes a prewarmed worker, until its supervisor closes the pipe.
"""

import contextlib
import functools
import os
import signal
import sys
from pathlib import Path

import msgspec

from grete.api.jobs.job import Job
from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.quoting import set_shown
from grete.settings import Settings
from grete.worker.life.lifetime import run_worker
from grete.worker.life.opening import OpenedAhead, open_worker
from grete.worker.life.standby_worker import StandbyWorker, open_standby, run_standby
from grete.worker.logs.open_files import raise_limit
from grete.worker.logs.worker_log import configure_logs
from grete.worker.pipes.control_pipe import ControlPipe
from grete.worker.pipes.output_file import OutputFile, printed_to
from grete.worker.pipes.signal_pipe import on_stop
from grete.worker.pipes.status_pipe import StatusPipe
from grete.worker.process.watchdog import exits_after
from grete.worker.process.worker import Worker


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work of a worker process, as one JSON object.

    ``partitions``: those whose tasks it hosts, but for the ``fenced`` ones, by name. ``output``: the file that takes
    its log lines. ``drain``: the inputs have ended (E7). ``standby``: it keeps their stores ready, and runs no task.
    """

    job: str
    number: int
    partitions: tuple[int, ...]
    directory: str
    log: str
    kafka_config: str | None
    settings: Settings  # all of them: a worker looks neither into the environment nor for a file
    output: str
    status_fd: int = -1
    drain: bool = False
    fenced: tuple[str, ...] = ()
    standby: bool = False


def spec_in(job_directory: JobDirectory, reference: str, settings: Settings) -> WorkerSpec:
    """Return the arguments that all processes of a supervisor share; each also has a number, partitions, an output."""
    address = job_directory.address
    return WorkerSpec(
        job=reference,
        number=0,
        partitions=(),
        directory=str(job_directory.directory),
        log=address.url,
        kafka_config=None if address.config is None else str(address.config),
        settings=settings,
        output="",
    )


def main(arguments: list[str]) -> ExitCode:
    """Run a worker by its spec, or wait for one first; return its exit code (C5)."""
    raise_limit()
    if not arguments:
        with contextlib.suppress(ImportError):
            import grete.logs.kafka  # noqa: F401  # into memory, before it is needed
    line = _line_of(0)
    if not line:
        return ExitCode.DONE  # the supervisor is gone
    control, code, ahead = _taken(0), ExitCode.DONE, OpenedAhead()
    while line:
        spec = msgspec.json.decode(line, type=WorkerSpec)
        code = _run(spec, control, ahead)
        if not spec.standby or code is not ExitCode.DONE:
            break
        on_stop(signal.SIG_DFL)
        line = _line_of(control)  # it may go on as the worker that takes its place, with all that it has loaded
    return code


def _run(spec: WorkerSpec, control: int, ahead: OpenedAhead) -> ExitCode:
    set_shown(spec.settings.show_records)
    output = OutputFile(Path(spec.output))
    sys.stdout, sys.stderr = printed_to(1), printed_to(2)
    whose, pipe = configure_logs(spec.partitions, spec.number), StatusPipe(spec.status_fd)

    def load() -> tuple[Job, JobDirectory]:
        with exits_after(spec.settings.liveness_timeout_ms / 1000):
            job = _loaded(spec.job)
        whose.job = job.name
        config = None if spec.kafka_config is None else Path(spec.kafka_config)
        return job, JobDirectory(Path(spec.directory), address=LogAddress(spec.log, config))

    def make_standby() -> StandbyWorker:
        job, job_directory = load()
        standby = open_standby(job, spec.partitions, job_directory, spec.settings, pipe=pipe)
        standby.tidy = output.rotate
        standby.open_ahead = lambda: ahead.open(job, spec.partitions, job_directory, spec.settings, pipe)
        return standby

    def make() -> Worker:
        job, job_directory = load()
        waits_s = spec.settings.send_timeout_ms / 1000  # its supervisor has found the brokers
        worker = open_worker(
            job,
            spec.partitions,
            job_directory,
            spec.settings,
            pipe=pipe,
            connect_seconds=waits_s,
            fenced=spec.fenced,
            opened=ahead.take(spec.partitions),
        )
        worker.reports.tidy, worker.control = output.rotate, ControlPipe(control)
        if spec.drain:
            worker.drain()
        return worker

    return run_standby(make_standby, pipe) if spec.standby else run_worker(make, whose, pipe)


@functools.cache
def _loaded(reference: str) -> Job:
    """Return the job; a process that was a standby has run its module already, and runs it no second time."""
    return load_job(reference)


def _line_of(handle: int) -> bytes:
    """Return a line, b"" if none will come; what is behind it stays in the pipe."""
    line = b""
    while (byte := os.read(handle, 1)) and byte != b"\n":
        line += byte
    return line if byte else b""


def _taken(handle: int) -> int:
    """Return another handle of the same pipe; the job's own code, which is imported later, finds nothing to read."""
    taken, null = os.dup(handle), os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, handle)
    os.close(null)
    return taken


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
