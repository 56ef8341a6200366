"""A worker whose outbox ends or holds its process at a named point of an application.

Run as a script: target of the sink, directory of the job, state directory, point, act. No hook in the framework serves
this: the sinks are wrapped here, in the worker's own process.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from framework.job.directory import JobDirectory
from framework.settings import Settings
from framework.sinks.files import FilesSink
from framework.sinks.sql import SqlSink
from framework.worker.lifetime import run_worker
from framework.worker.process_main import open_worker
from framework.worker.worker_log import configure_logs
from grete import Files, Input, Job, Output, Record, Table, Task, Topic, int64, json, utf8
from tests.contracts.sinks import Numbered

COMMITTED, HALF, WRITTEN, INSIDE, SHOWN, APPLIED = "committed", "half written", "written", "inside", "shown", "applied"
POINTS = (COMMITTED, HALF, WRITTEN, INSIDE, SHOWN, APPLIED)
KILL, HOLD = "kill", "hold"
NUMBERS = Topic("numbers", key=utf8, value=int64)


def job_writing(target: str) -> Job:
    """Return a job that writes numbers to a directory or, if it is a file or url, to a table."""
    value = json(Numbered)
    sink: Any = Files(target, value) if Path(target).is_dir() else Table(target, "numbers", value)

    class Export(Task):
        numbers = Input(NUMBERS)
        out = Output(sink)

        def process(self, record: Record[str, int]) -> None:
            self.out.send(None, Numbered("a", record.value))

    return Job("job", stages=[Export])


class Point:
    """Where to act, once."""

    def __init__(self, name: str, act: str) -> None:
        self.name, self.act = name, act

    def reached(self, name: str) -> None:
        """Act if this is the point: end this process, or wait until somebody lets it go on."""
        if name == self.name:
            self.name = ""
            if self.act == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(1, b"held\n")
            os.read(0, 1)


def around(point: Point, owner: type, method: str, before: str | None, after: str | None) -> None:
    """Wrap a method in two points."""
    original: Callable[..., Any] = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            point.reached(before)
        result = original(*arguments, **options)
        if after:
            point.reached(after)
        return result

    setattr(owner, method, wrapped)


def main() -> int:
    """Run the worker."""
    target, directory, state, name, act = sys.argv[1:]
    point = Point(name, act)
    for sink in (FilesSink, SqlSink):
        around(point, sink, "begin", COMMITTED, None)
        around(point, sink, "write", None, HALF)
        around(point, sink, "commit", WRITTEN, APPLIED)
    around(point, Path, "rename", INSIDE, SHOWN)
    execute = SqlSink._execute

    def executed(self: SqlSink, statement: str, parameters: Any = (), *, doing: str) -> Any:
        commits = statement == "COMMIT" and doing.startswith("committing")
        if commits:
            point.reached(INSIDE)
        result = execute(self, statement, parameters, doing=doing)
        if commits:
            point.reached(SHOWN)
        return result

    setattr(SqlSink, "_execute", executed)  # noqa: B010  # mypy does not let a class be changed openly
    whose = configure_logs(0)
    job_directory = JobDirectory(Path(directory), state=Path(state))
    settings = Settings(checkpoint_interval_ms=50)
    return run_worker(lambda: open_worker(job_writing(target), 0, job_directory, settings), whose)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that is held must not hold the end up
