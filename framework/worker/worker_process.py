"""A worker process as its supervisor sees it: what it hosts, what it said last, how it has ended."""

import signal
import subprocess
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from framework.errors import ExitCode
from framework.worker.assignment import HostedState
from framework.worker.ends import Reason, WorkerEnd
from framework.worker.last_words import HUNG, LOG_AWAY

GIVEN_UP = (ExitCode.HALTED, ExitCode.FAILED)  # the exit codes of a worker for which a person must look


@dataclass
class WorkerProcess:
    """One worker as its supervisor sees it."""

    number: int
    partitions: tuple[int, ...]  # of the process, or of the next one
    wanted: tuple[int, ...] = ()  # what it is to host: the process ends if that is something else
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    status: dict[str, Any] = field(default_factory=dict)
    checkpoint_id: int = -1  # highest checkpoint that one of its tasks reported
    starts: int = 0
    crashes: int = 0  # in a row, without a commit in between
    waits_ended: int = 0  # the same, of ends because the log did not answer: no fault of the worker's
    restart_at: float = 0.0
    exit_code: int | None = None  # of a process that is not to be restarted
    stop_by: float | None = None  # of one that ends alone: when it is killed, by the monotonic clock
    killed: bool = False  # by us: no news to anybody
    told_ends: bool = False  # that the job is drained
    silent_s: float = 0.0  # since it said something, once it had begun to
    was_silent: bool = False  # for too long: it was killed for that
    shown: str = ""  # its last end as it was told, with the error: the same again is told in short
    line: bytes = b""
    last_end: WorkerEnd | None = None  # until it has committed again
    ends: Counter[Reason] = field(default_factory=Counter)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None

    @property
    def takes_input(self) -> bool:
        """Whether all its tasks take input."""
        return bool(self.status) and all(task["status"] == "running" for task in self.status.values())

    def stays_away(self, again: Collection[int]) -> bool:
        """Whether it has ended for good: partitions that it is still to host are not all among those ``again``."""
        kept = set(self.wanted) & set(self.partitions)
        given_up = self.exit_code in GIVEN_UP and not self.wanted  # it is told of until a person has looked
        return self.exit_code is not None and (given_up or not kept <= set(again))

    def begin_again(self) -> None:
        """Host what is wanted now, as if this was the first start."""
        self.partitions, self.exit_code, self.stop_by = self.wanted, None, None
        self.crashes = self.waits_ended = 0
        self.checkpoint_id, self.restart_at, self.shown, self.last_end = -1, 0.0, "", None

    def state(self, partition: int) -> HostedState:
        """Return what has become of one of its partitions."""
        if self.exit_code == ExitCode.FENCED:
            return HostedState.FENCED
        if self.exit_code in GIVEN_UP:
            return HostedState.HALTED
        if self.stop_by is not None or self.exit_code is not None:
            return HostedState.STOPPING
        tasks = [task for name, task in self.status.items() if int(name.rpartition("-")[2]) == partition]
        takes_input = bool(tasks) and all(task["status"] == "running" for task in tasks)
        return HostedState.RUNNING if takes_input else HostedState.STARTING

    def how_ended(self, code: int, event: str | None) -> str:
        """Return how its process has ended; ``event``: the last that it has logged."""
        if self.was_silent:
            return f"said nothing for {self.silent_s:.0f} s (is its process stopped?), and was killed"
        known = {LOG_AWAY: "gave up waiting for the log", HUNG: "hung, and was ended"}
        return known.get(event or "", f"was {code_text(code)}" if code < 0 else f"crashed, {code_text(code)}")


def code_text(code: int) -> str:
    """Return an exit code as text; Python has a signal as a negative one."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"code {code}"
