"""Runs cases in real workers: a first life that ends by SIGKILL, and a second one that makes the same outputs again.

``python -m tests.verification.nondeterminism.lives ROLE DIRECTORY CASE…`` prints its findings as JSON: case → word.
Each role is a process of its own, so that two lives share neither addresses nor variables. It has imported all but the
cases and forks for each of them, so a worker starts in milliseconds.
"""

import gc
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, open_reader
from grete.ports import ExternalRecord, Log
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import ReplayResult, replay
from grete.settings import Settings
from grete.state.read.checkpoints.commits import newest_commit
from grete.worker.life.process_main import WorkerSpec, main
from tests.verification.nondeterminism.lines import ANSWERS, LINES

PATIENCE_S = 180.0
ATTEMPTS = 5  # where a checkpoint comes between the last answer and the kill
AT_ONCE = 24  # cases: most of a life is waiting for a checkpoint
TEXTS = ["to be or not to be", "that is the question", "whether it is nobler", "in the mind to suffer"] * 2
SETTINGS = Settings(checkpoint_interval_ms=1_000)


def package(case: str) -> str:
    """Return the module of a case, such as cases/clock."""
    return f"tests.verification.nondeterminism.{case.replace('/', '.')}"


def feed(log: Log, first: int, texts: list[str]) -> None:
    """Append lines; their keys repeat."""
    now = int(time.time() * 1_000)
    log.create_topic(LINES.name, 1, plain=True)
    place = TopicPartition(LINES.name, 0)
    for number, text in enumerate(texts, first):
        log.produce(0, 0, [ExternalRecord(place, b"abc"[number % 3 :][:1], text.encode(), now + number)])
        log.poll()


def answers(log: Log) -> int:
    """Return the number of visible outputs."""
    return 0 if log.partitions(ANSWERS.name) is None else log.bounds(TopicPartition(ANSWERS.name, 0))[1]


def committed(log: Log, job: Job) -> int:
    """Return the number of lines that the last commit of the task includes."""
    wiring = wire(job.topology(), 0, 0)
    found = None if log.partitions(wiring.changelog.topic) is None else newest_commit(log, wiring)
    return 0 if found is None else max((each.offset for each in found.commit.external), default=0)


@contextmanager
def worker(case: str, directory: Path) -> Iterator[Callable[[], int | None]]:
    """Start a worker, and end it by SIGKILL; yields what tells its exit code once it has ended by itself."""
    pid = os.fork()
    if pid == 0:
        os.environ["CORPUS_DIRECTORY"] = str(directory)
        spec = WorkerSpec(
            job=package(case),
            number=0,
            partitions=(0,),
            directory=str(directory),
            log=IN_DIRECTORY.url,
            kafka_config=None,
            settings=SETTINGS,
            output=str(directory / "worker.log"),
            status_fd=os.open(os.devnull, os.O_WRONLY),
        )
        spec_read, spec_write = os.pipe()
        os.write(spec_write, msgspec.json.encode(spec) + b"\n")
        os.dup2(spec_read, 0)
        os._exit(main([spec.job, "0"]))
    codes: list[int] = []

    def code() -> int | None:
        if not codes:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes.append(os.waitstatus_to_exitcode(status))
        return codes[0] if codes else None

    try:
        yield code
    finally:
        if code() is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def wait(log: Log, code: Callable[[], int | None], done: Callable[[], bool]) -> None:
    """Wait until something is so. Raises RuntimeError if the worker ends before, or after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if code() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the worker has not got there: exit code {code()}, {answers(log)} outputs")
        log.wait(20)


def in_a_fork(work: Callable[[], None]) -> None:
    """Do something that opens a log, in a process of its own: what forks later must not have one."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # a fork must never go on as its parent
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("a fork has failed: its error is above")


def feed_in_a_fork(directory: Path, first: int, texts: list[str]) -> None:
    """Append lines before a worker starts."""

    def work() -> None:
        with closing(JobDirectory(directory).open_log()) as log:
            feed(log, first, texts)

    in_a_fork(work)


def first_life(case: str, directory: Path) -> str:
    """Let a worker commit four lines and answer four more, which it has not committed when it is killed."""
    for _ in range(ATTEMPTS):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        feed_in_a_fork(directory, 0, TEXTS[:4])
        with worker(case, directory) as code, closing(JobDirectory(directory).open_log()) as log:
            job = load_job(package(case))
            wait(log, code, lambda: committed(log, job) >= 4)  # noqa: B023  # it ends in this turn of the loop
            feed(log, 4, TEXTS[4:])
            wait(log, code, lambda: answers(log) >= 8)  # as above
        with closing(JobDirectory(directory).open_log()) as log:
            if committed(log, job) < 8:
                return "killed"
    return "committed too soon"


def second_life(case: str, directory: Path) -> str:
    """Let another worker go on where the last commit is."""
    with closing(open_reader(IN_DIRECTORY, directory / "log.db")) as reader:
        before = reader.bounds(TopicPartition(ANSWERS.name, 0))[1]
    feed_in_a_fork(directory, before, ["one more"])
    with worker(case, directory) as code, closing(JobDirectory(directory).open_log()) as log:
        deadline = time.monotonic() + PATIENCE_S
        while answers(log) == before and code() is None and time.monotonic() < deadline:
            log.wait(20)
        if (ended := code()) is None and answers(log) > before:
            return "same"
        return "halts" if ended == ExitCode.HALTED else f"exit code {ended}"


def replayed(case: str, directory: Path) -> str:
    """Replay the first life from its begin, as `grete check-determinism` does first."""
    found = replay_of(case, directory, 0)
    directory.with_suffix(".restarts").write_text(json.dumps(found.restarts))
    return said(found)


def restarted(case: str, directory: Path) -> str:
    """Replay it from a later checkpoint, as the command does then, in a process of its own."""
    restarts = json.loads(directory.with_suffix(".restarts").read_text())
    return said(replay_of(case, directory, restarts[-1]))


def replay_of(case: str, directory: Path, since: int) -> ReplayResult:
    """Return the findings of a replay."""
    os.environ["CORPUS_DIRECTORY"] = str(directory)
    with closing(open_reader(IN_DIRECTORY, directory / "log.db")) as log:
        return replay(load_job(package(case)), log, Settings(), since)


def said(found: ReplayResult) -> str:
    """Return a word for it."""
    return "same" if (found.difference, found.halted) == (None, None) else "differs"


ROLES = {"first": first_life, "replayed": replayed, "restarted": restarted, "second": second_life}


def one(role: str, case: str, directory: Path) -> int:
    """Fork for a case; the word that it finds goes to a file beside its directory."""
    pid = os.fork()
    if pid:
        return pid
    try:
        found = ROLES[role](case, directory)
    except BaseException as error:  # noqa: BLE001  # a fork must never go on as its parent
        sys.excepthook(*sys.exc_info())
        found = f"{type(error).__name__}: {error}"
    directory.with_suffix(f".{role}").write_text(found)
    os._exit(0)


def run(role: str, directory: Path, cases: list[str]) -> dict[str, str]:
    """Run a role over cases, some at a time; return what it found."""
    waiting, running = list(cases), set[int]()
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            case = waiting.pop(0)
            running.add(one(role, case, directory / case.replace("/", "-")))
        running.discard(os.waitpid(-1, 0)[0])
    return {case: (directory / f"{case.replace('/', '-')}.{role}").read_text() for case in cases}


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # what is here now is copied by no fork
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
