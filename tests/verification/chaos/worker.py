"""A worker as `grete worker` runs it, watched from outside: where it is, and, if asked, where it dies.

No hook in the framework serves this: the driver's methods are wrapped here, in the worker's own process. The phase of
each task is written to a file that outlives the process, so that the phase that a SIGKILL hit is known exactly.
"""

import mmap
import os
import resource
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from grete.cli.commands.worker import worker
from grete.cli.job_target import NamedJob
from grete.cli.settings_file import settings_of
from grete.core import actions as do
from grete.core.aligned.task import TaskCore
from grete.core.lifecycle import StartupPhase, TaskStatus
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.pending_sends import CHANGELOG
from grete.logs.address import LogAddress

SLOT_BYTES = 8  # of a worker in the file: a phase for each of its tasks, then the point at which it died
POINT_AT = SLOT_BYTES - 1
# In the order in which a worker that has several tasks is called by one of them.
PHASES = ["starting", "restoring", "claiming", "announcing", "rolling back", "stopping", "committing", "running"]
SEND_POLLS = 40  # of 5 ms, in which what was sent gets there: the embedded log needs one, Kafka a few


def phase_of(core: TaskCore) -> str:
    """Return the phase of a task."""
    match core.status:
        case TaskStatus.STARTING:
            if core.start_up.phase is StartupPhase.CREATED:
                return "starting"
            claims = core.start_up.phase in (StartupPhase.CLAIMING, StartupPhase.VERIFYING)
            return "claiming" if claims else "restoring"
        case TaskStatus.ANNOUNCING:
            return "announcing"
        case TaskStatus.RECLAIMING:
            return "rolling back"
        case TaskStatus.STOPPED:
            return "stopping"
        case _ if core.closing.stopping:
            return "stopping"
        case TaskStatus.GENESIS:
            return "committing"
        case _:
            return "running" if core.commits.pending is None else "committing"


def _aligned(driver: TaskDriver) -> TaskCore:
    assert isinstance(driver.core, TaskCore)  # as all jobs of this proof are
    return driver.core


def _claims(driver: TaskDriver, action: do.Action) -> bool:
    return isinstance(action, do.AppendChangelog) and driver.core.status is TaskStatus.STARTING


def _commits(driver: TaskDriver, action: do.Action) -> bool:
    return (
        isinstance(action, do.AppendChangelog)
        and driver.core.commits.pending is not None
        and bool(driver.core.commits.committed)
    )


def _marks(_driver: TaskDriver, action: do.Action) -> bool:
    return isinstance(action, do.Send) and action.value[0] & 15 == 1


# Name → (before or after the action, which action). "after" means: what it sent is in the log, its answer is not read.
Test = Callable[[TaskDriver, do.Action], bool]
POINTS: dict[str, tuple[str, Test]] = {
    "before the claim": ("before", _claims),
    "claim in the log, not yet known": ("after", _claims),
    "rolled back, claim not sent": (
        "before",
        lambda d, a: isinstance(a, do.AppendChangelog) and d.core.status is TaskStatus.RECLAIMING,
    ),
    "rolled back, claim in the log": (
        "after",
        lambda d, a: isinstance(a, do.AppendChangelog) and d.core.status is TaskStatus.RECLAIMING,
    ),
    "part of the state restored": ("after", lambda _d, a: isinstance(a, do.ApplySegment)),
    "state restored, no changelog position": ("before", lambda _d, a: isinstance(a, do.WriteChangelogPosition)),
    "changelog position written, not announced": ("after", lambda _d, a: isinstance(a, do.WriteChangelogPosition)),
    "one rollback marker sent, the others not": (
        "after",
        lambda d, a: isinstance(a, do.Send) and d.core.status is TaskStatus.ANNOUNCING,
    ),
    "frame processed, nothing sent": ("after", lambda _d, a: isinstance(a, do.Process)),
    "one output frame sent": ("after", lambda _d, a: isinstance(a, do.Send) and a.value[0] & 15 == 0),
    "checkpoint frozen": ("after", lambda _d, a: isinstance(a, do.Freeze)),
    "changelog data sent, commit not yet": ("sent before", _commits),
    "commit in the log, not yet known": ("after", _commits),
    "commit valid, store not written": ("before", lambda _d, a: isinstance(a, do.ApplyFrozen)),
    "store written, no marker sent": ("before", _marks),
    "one marker sent, the others not": ("after", _marks),
    "part of the logs trimmed": ("after", lambda _d, a: isinstance(a, do.Trim)),
    "commit done, stop under way": ("after", lambda d, a: isinstance(a, do.Committed) and _aligned(d).closing.stopping),
    "open records, store flushed to a file": ("flushed", lambda _d, a: isinstance(a, do.Process)),
    "commit valid, store flushed to a file": ("flushed", lambda _d, a: isinstance(a, do.ApplyFrozen)),
}

IN_TRANSACTION = "frozen within a transaction"


class CommitProgress:
    """Wraps the driver's methods in this process."""

    def __init__(self, path: Path, slot: int, point: str | None, countdown: int) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._at = slot * SLOT_BYTES
        self._point = point
        self._left = countdown

    def install(self) -> None:
        """Wrap them."""
        tick, perform = TaskDriver.tick, TaskDriver._perform_next
        memory, at = self._memory, self._at
        numbers = {name: number for number, name in enumerate(PHASES)}

        def watched_tick(driver: TaskDriver) -> bool:
            busy = tick(driver)
            memory[at + driver.parts.owner] = numbers[phase_of(_aligned(driver))]
            return busy

        TaskDriver.tick = watched_tick  # type: ignore[assignment]  # put in the place of a method
        if self._point == IN_TRANSACTION:
            self._freeze_in_transaction()
        if self._point not in POINTS:
            return
        when, test = POINTS[self._point]

        def watched_perform(driver: TaskDriver) -> bool:
            action = driver.parts.todo[0]
            here = test(driver, action) and self._counted()
            if here and when in ("before", "sent before"):
                self._die(driver, None, sent=when == "sent before")
            busy = perform(driver)
            if here:
                if when == "flushed":
                    flush_to_files(driver)
                self._die(driver, action, sent=True)
            return busy

        TaskDriver._perform_next = watched_perform  # type: ignore[assignment]  # as above

    def _freeze_in_transaction(self) -> None:
        """Stop this process by SIGSTOP when a transaction's messages are with the broker, and its end is not."""
        from grete.logs.kafka.write.transactional_writer import TransactionalWriter

        hand_over = TransactionalWriter._hand_over

        def watched(writer: TransactionalWriter, records: Any, callback: Any) -> None:
            hand_over(writer, records, callback)
            if callback is None and records and self._counted():
                assert writer._producer.flush(60) == 0, "the broker has not all of the transaction"
                # to this thread: one sent to the process stops it by way of any thread, and this one commits meanwhile
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

        TransactionalWriter._hand_over = watched  # type: ignore[assignment]  # as above

    def _counted(self) -> bool:
        self._left -= 1
        return self._left == 0

    def _die(self, driver: TaskDriver, action: do.Action | None, *, sent: bool) -> None:
        """End this process by SIGKILL; before, see what was sent into the log, and at least what ``action`` sent."""
        awaited = CHANGELOG if isinstance(action, do.AppendChangelog) else getattr(action, "token", None)
        for _ in range(SEND_POLLS if sent else 0):
            answers = driver.parts.io.log.poll()
            if any(awaited in (None, answer.token) for answer in answers):
                break
            driver.parts.io.log.wait(5)
        assert self._point in POINTS
        self._memory[self._at + POINT_AT] = 1 + list(POINTS).index(self._point)
        os.kill(os.getpid(), signal.SIGKILL)


def flush_to_files(driver: TaskDriver) -> None:
    """Make RocksDB write its memtables to SST files, as it does by itself when they are full."""
    store: Any = driver._store
    for family in (*store._stores.values(), store._db):
        family.flush()


def run(
    *,
    status_fd: int,
    reference: str,
    partition: int,
    directory: str,
    state: str,
    log: str,
    config: str | None,
    sets: list[str],
    phases: str,
    slot: int,
    point: str | None,
    countdown: int,
    file_bytes_max: int | None,
) -> int:
    """Run a worker to its end; return its exit code (C5)."""
    if file_bytes_max is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
    CommitProgress(Path(phases), slot, point, countdown).install()
    address = LogAddress(log, None if config is None else Path(config))
    named = NamedJob(reference, Path(directory), address, partial(settings_of, sets, None))
    return worker(named, partition=partition, state_directory=Path(state), status_fd=status_fd)
