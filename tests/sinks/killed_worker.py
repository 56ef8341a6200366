"""A worker whose outbox ends or holds its process at a named point of an application.

Run as a script: target of the sink, directory of the job, state directory, point, act, sink_delivery. No hook in the
framework serves this: the sinks are wrapped here, in the worker's own process.
"""

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from grete import Input, Job, Output, Record, Task, Topic, int64, utf8
from grete.errors import FrameworkError
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.sinks.files import FilesSink
from grete.sinks.sql import SqlSink
from grete.worker.life.lifetime import run_worker
from grete.worker.life.opening import open_worker
from grete.worker.logs.worker_log import configure_logs
from tests.contracts.sinks import Numbered, declared_for, own_sink

COMMITTED, HALF, WRITTEN, INSIDE, SHOWN, APPLIED = "committed", "half written", "written", "inside", "shown", "applied"
POINTS = (COMMITTED, HALF, WRITTEN, INSIDE, SHOWN, APPLIED)
# of a release ahead of the commit: how far the sink is asked, and answered; the release begins, is written, is shown
ASKED, ANSWERED, RELEASING, INSIDE_RELEASE, SHOWN_RELEASE, RELEASED = (
    "asked",
    "answered",
    "releasing",
    "inside release",
    "shown release",
    "released",
)
EARLY_POINTS = (ASKED, ANSWERED, RELEASING, INSIDE_RELEASE, SHOWN_RELEASE, RELEASED)
KILL, HOLD = "kill", "hold"
LIMIT_S = 180.0
NUMBERS = Topic("numbers", key=utf8, value=int64)


def settings_of(sink_delivery: str) -> Settings:
    """Return the settings of a worker: of early releases most are ahead of any commit."""
    stop_ms = int(LIMIT_S * 1000)  # on a loaded machine a sink takes longer than the default
    if sink_delivery == "early":
        return Settings(sink_delivery="early", checkpoint_interval_ms=1_000, shutdown_timeout_ms=stop_ms)
    return Settings(checkpoint_interval_ms=50, shutdown_timeout_ms=stop_ms)


def job_writing(target: str, sink_delivery: str) -> Job:
    """Return a job that writes numbers to a sink."""
    sink: Any = declared_for(target)

    class Export(Task):
        numbers = Input(NUMBERS)
        out = Output(sink)

        def process(self, record: Record[str, int]) -> None:
            self.out.send(None, Numbered("a", record.value))

    return Job("job", stages=[Export], mode="deterministic" if sink_delivery == "early" else "aligned")


class Point:
    """A place in the code that acts once."""

    def __init__(self, name: str, act: str) -> None:
        self.name, self.act = name, act
        self.free = threading.Event()  # no step is held, or one that was has ended
        self.free.set()

    def reached(self, name: str) -> None:
        """Act if this is the point: end this process, or wait until somebody lets it go on."""
        if name == self.name:
            self.name = ""
            if self.act == KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            self.free.clear()
            os.write(1, b"held\n")
            os.read(0, 1)


def around(point: Point, owner: Any, method: str, before: str | None, after: str | None) -> None:
    """Wrap a method in two points."""
    original: Callable[..., Any] = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before:
            point.reached(before)
        try:
            result = original(*arguments, **options)
        except FrameworkError as error:
            if not point.free.is_set():
                os.write(1, f"{type(error).__name__}\n".encode())
            raise
        finally:
            point.free.set()
        if after:
            point.reached(after)
        return result

    setattr(owner, method, wrapped)


def line_by_line(reached: Callable[[str], None], owner: type[Any]) -> None:
    """Let ``commit`` say ``line 1``, ``line 2`` and so on before each line of the sink's own module that it runs."""
    original: Callable[[Any], None] = owner.commit

    def commit(self: Any) -> None:
        lines = itertools.count(1)

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if frame.f_globals["__name__"] != owner.__module__:
                return None
            if event == "line":
                reached(f"line {next(lines)}")
            return trace

        sys.settrace(trace)
        try:
            original(self)
        finally:
            sys.settrace(None)

    owner.commit = commit


def main() -> int:
    """Run the worker."""
    target, directory, state, name, act, sink_delivery = sys.argv[1:]
    point = Point(name, act)
    own = own_sink(target)
    if own is not None:
        line_by_line(point.reached, own)
    for sink in (FilesSink, SqlSink) if own is None else (own,):
        around(point, sink, "begin", COMMITTED, None)
        around(point, sink, "write", None, HALF)
        around(point, sink, "commit", WRITTEN, APPLIED)
    for sink in (FilesSink, SqlSink):
        around(point, sink, "last_released", ASKED, ANSWERED)
        around(point, sink, "release", RELEASING, RELEASED)
    around(point, Path, "rename", INSIDE, SHOWN)
    around(point, os, "link", INSIDE_RELEASE, SHOWN_RELEASE)
    execute = SqlSink._execute

    def executed(self: SqlSink, statement: str, parameters: Any = (), *, doing: str) -> Any:
        commits = statement == "COMMIT" and doing.startswith("committing")
        releases = statement == "COMMIT" and doing.startswith("releasing")
        if commits or releases:
            point.reached(INSIDE if commits else INSIDE_RELEASE)
        result = execute(self, statement, parameters, doing=doing)
        if commits or releases:
            point.reached(SHOWN if commits else SHOWN_RELEASE)
        return result

    setattr(SqlSink, "_execute", executed)  # noqa: B010  # mypy does not let a class be changed openly
    whose = configure_logs([0], 0)
    job_directory = JobDirectory(Path(directory), state=Path(state))
    job = job_writing(target, sink_delivery)
    code = run_worker(lambda: open_worker(job, [0], job_directory, settings_of(sink_delivery)), whose)
    point.free.wait(LIMIT_S)  # a step that was held goes on to its end, though its worker has ended
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a thread that is held must not hold the end up
