"""A worker process as its supervisor sees it: what it hosts, what it said last, how it has ended."""

import os
import signal
import subprocess
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from grete.errors import ExitCode, Halted
from grete.halts import HaltCode, halt_code
from grete.protocol.report import (
    EndReport,
    ReadUpTo,
    Reason,
    TaskReport,
    TaskState,
    WorkerMeasures,
    decode_worker_report,
)
from grete.worker.assignment import HostedState
from grete.worker.control_pipe import Order, line_of
from grete.worker.ends import FAULTS, WorkerEnd
from grete.worker.status import moved
from grete.worker.status_pipe import StatusLines, report_in
from grete.worker.task_news import EndsTold, failures_of_tasks, news_of_tasks

Life = tuple[int, int]  # of a task: the start of its worker, and its own start there
GIVEN_UP = (ExitCode.HALTED, ExitCode.FAILED)  # the exit codes of a worker for which a person must look


@dataclass
class WorkerProcess:
    """One worker as its supervisor sees it."""

    number: int
    partitions: tuple[int, ...]  # of the process, or of the next one
    wanted: tuple[int, ...] = ()  # what it is to host: the process ends if that is something else
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    tasks: dict[str, TaskReport] = field(default_factory=dict)  # by name, as they said last
    measures: WorkerMeasures | None = None  # likewise, of the process
    checkpoint_id: int = -1  # highest checkpoint that one of its tasks reported
    read_up_to: dict[str, ReadUpTo] = field(default_factory=dict)  # task → what it has read and committed
    end: EndReport | None = None  # why its process ended, if it could say so
    starts: int = 0
    crashes: int = 0  # in a row, without anything read and committed in between: an empty commit is no progress
    waits_ended: int = 0  # the same, of ends because the log did not answer: no fault of the worker's
    restart_at: float = 0.0
    exit_code: int | None = None  # of a process that is not to be restarted
    ended: tuple[int, ...] = ()  # the partitions for which it is not
    stop_by: float | None = None  # of one that ends alone: when it is killed, by the monotonic clock
    killed: bool = False  # by us: no news to anybody
    told_ends: bool = False  # that the job is drained
    silent_s: float = 0.0  # since it said something, once it had begun to
    was_silent: bool = False  # for too long: it was killed for that
    shown: str = ""  # its last end as it was told, with the error: the same again is told in short
    lines: StatusLines = field(default_factory=StatusLines)
    orders: bytes = b""  # that the pipe to it has not taken yet
    fenced: dict[str, TaskReport] = field(default_factory=dict)  # task that another process has → its last report
    ends_told: EndsTold = field(default_factory=dict)  # task → its ends alone in this process
    last_end: WorkerEnd | None = None  # until it has committed what it read since
    ends: Counter[Reason] = field(default_factory=Counter)
    states_of: dict[str, TaskReport] | None = None  # the reports that ``states`` were taken from
    states: dict[int, set[TaskState]] = field(default_factory=dict)  # of its tasks, by partition

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process is not None

    @property
    def takes_input(self) -> bool:
        """Whether all its tasks take input."""
        return bool(self.tasks) and all(
            states <= {TaskState.RUNNING, TaskState.FENCED} for states in self._states().values()
        )

    def started(self, *, told_ends: bool) -> None:
        """Take note that a new process has just begun; ``told_ends``: it knows that the inputs have ended."""
        self.forget_reports()
        self.lines, self.orders, self.ends_told = StatusLines(), b"", {}
        self.starts += 1
        self.killed, self.was_silent, self.end = False, False, None
        self.told_ends, self.silent_s = told_ends, 0.0

    def forget_reports(self) -> None:
        """Forget what it said last: that is not true of the dead."""
        self.tasks, self.measures = {}, None

    def life_of(self, task: TaskReport) -> Life:
        """Return in which of its lives a task has said this."""
        return self.starts, task.life

    def take(self, line: bytes) -> list[str]:
        """Take a line of the pipe; return what a person is to be told of its tasks. Raises TransientError."""
        report = report_in(line, decode_worker_report, f"worker {self.number}")
        if report is None:
            return []
        said, self.measures, self.end = {task.name: task for task in report.tasks}, report.measures, report.end
        self.ends += failures_of_tasks(said, self.ends_told)
        news = list(news_of_tasks(said, self.ends_told))
        self.ends_told = {name: task.ends for name, task in said.items()}
        self._keep_fenced(self.fenced | said, ())
        self.tasks = said | {name: task for name, task in self.fenced.items() if name not in said}
        self.checkpoint_id = max(self.checkpoint_id, *(task.checkpoint_id for task in self.tasks.values()), -1)
        if self._has_read(said):
            self.crashes, self.waits_ended, self.last_end = 0, 0, None
        return news

    def _has_read(self, said: Mapping[str, TaskReport]) -> bool:
        """Whether one of its tasks has committed more than it, or a process before this one, had when it last said."""
        now = {name: task.read_up_to for name, task in said.items()}
        has_read = any(moved(self.read_up_to.get(name), each) for name, each in now.items())
        self.read_up_to |= {name: each for name, each in now.items() if each is not None}
        return has_read

    def host(self, partitions: tuple[int, ...], again: Collection[int]) -> None:
        """Tell the process, which runs, to host these partitions from now on; ``again``: although they were fenced."""
        if partitions == self.partitions and not any(task.partition in again for task in self.fenced.values()):
            return
        self.partitions = partitions
        self._keep_fenced(self.fenced, again)
        self.orders += line_of(Order(partitions=partitions, again=tuple(again)))
        self.send_orders()

    def send_orders(self) -> None:
        """Write what the process is still to be told, as much of it as the pipe takes."""
        if not self.orders or self.process is None or self.process.stdin is None:
            return
        with suppress(BlockingIOError, BrokenPipeError):  # it is busy, or has just ended: then its successor knows
            handle = self.process.stdin.fileno()
            os.set_blocking(handle, False)
            self.orders = self.orders[os.write(handle, self.orders) :]

    def stays_away(self, again: Collection[int]) -> bool:
        """Whether it has ended for good: partitions that it is still to host are not all among those ``again``."""
        kept = set(self.wanted) & set(self.ended)
        given_up = self.exit_code in GIVEN_UP and not self.wanted  # it is told of until a person has looked
        return self.exit_code is not None and (given_up or not kept <= set(again))

    def begin_again(self, again: Collection[int] = ()) -> None:
        """Host what is wanted now, as if this was the first start."""
        self.partitions, self.exit_code, self.stop_by = self.wanted, None, None
        self.crashes = self.waits_ended = 0
        self.checkpoint_id, self.restart_at, self.shown, self.last_end = -1, 0.0, "", None
        self._keep_fenced(self.fenced, again)

    def _keep_fenced(self, known: Mapping[str, TaskReport], again: Collection[int]) -> None:
        """Keep in mind which tasks another process has, of the partitions that are to be here, but not ``again``."""
        stay = set(self.partitions).difference(again)
        fenced = {name: task for name, task in known.items() if task.status is TaskState.FENCED}
        self.fenced = {name: task for name, task in fenced.items() if task.partition in stay}

    @property
    def hosted(self) -> tuple[int, ...]:
        """Its partitions, and those that it has not given up yet."""
        return tuple(sorted({*self.partitions, *self._states()}))

    def _states(self) -> dict[int, set[TaskState]]:
        """Return what the tasks of each partition do; worked out once for a report, and asked for at each turn."""
        if self.states_of is not self.tasks:
            self.states_of, self.states = self.tasks, {}
            for task in self.tasks.values():
                self.states.setdefault(task.partition, set()).add(task.status)
        return self.states

    def state(self, partition: int) -> HostedState:
        """Return what has become of one of its partitions."""
        if self.exit_code is not None and partition not in self.ended:
            return HostedState.STARTING  # once an assignment leaves out the others
        if self.exit_code == ExitCode.FENCED:
            return HostedState.FENCED
        if self.exit_code in GIVEN_UP:
            return HostedState.HALTED
        states = self._states().get(partition, set())
        if self.stop_by is not None or self.exit_code is not None or partition not in self.partitions:
            return HostedState.STORED if states == {TaskState.STOPPED} else HostedState.STOPPING
        if TaskState.FENCED in states:
            return HostedState.FENCED
        return HostedState.RUNNING if states == {TaskState.RUNNING} else HostedState.STARTING

    def end_for_good(self, code: int) -> None:
        """Take note that it does not start again by itself: all of it, or the partition whose task has failed."""
        self.exit_code = code
        of = None if self.end is None or code == ExitCode.FENCED else self.end.place.partition
        self.ended = (of,) if of in self.partitions and of is not None else self.partitions

    def halted(self, said: EndReport | None, text: str) -> Halted:
        """Return the error of its end for good; ``said``: its last words."""
        said = said or EndReport(reason="other", text="")
        place = said.place
        error = Halted(
            text + indented(said.traceback),
            code=halt_code(said.code or None),
            task=place.task,
            stage=place.stage,
            topic=place.topic,
            partition=place.topic_partition,
            offset=place.offset,
            checkpoint_id=place.checkpoint_id,
            setting=place.setting,
        )
        if self.exit_code == ExitCode.FAILED:
            error.code = HaltCode.GIVEN_UP
        if self.last_end is not None:
            self.last_end = replace(self.last_end, code=str(error.code.value))
        return error

    def unfinished(self, code: int, words: str) -> tuple[bool, str]:
        """Return (whether it was still at it, what is told) of a process that was to stop, and did not.

        ``words``: its last ones, for people. One whose stop has timed out reports no end.
        """
        again = "what it had not committed is processed again"
        if self.killed or (code == ExitCode.FAILED and self.end is None):
            words = "it was killed" if self.killed else words
            return True, f"worker {self.number} did not stop in time ({words}): {again}"
        said = f": {words}" if code >= 0 else ""
        return False, f"worker {self.number} {self.how_ended(code, self.end)} while it stopped; {again}{said}"

    def how_ended(self, code: int, said: EndReport | None) -> str:
        """Return how its process has ended; ``said``: its last words."""
        if self.was_silent:
            return f"said nothing for {self.silent_s:.0f} s (is its process stopped?), and was killed"
        known: dict[Reason, str] = {"log away": "gave up waiting for the log", "hung": "hung, and was ended"}
        reason: Reason = "other" if said is None or code < 0 else said.reason
        return known.get(reason, f"was {code_text(code)}" if code < 0 else f"crashed, {code_text(code)}")


def indented(trace: str) -> str:
    """Return a traceback of the user's code on lines of its own, or ""."""
    return f"\n{textwrap.indent(trace, '  ')}" if trace else ""


def code_text(code: int) -> str:
    """Return an exit code as text; Python has a signal as a negative one."""
    how = "aborted" if code in FAULTS else "killed"
    return f"{how} by {signal.Signals(-code).name}" if code < 0 else f"code {code}"
