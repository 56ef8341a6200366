"""One worker of a machine: what it hosts, the state of its process, and what becomes of its partitions."""

from collections import Counter
from collections.abc import Collection
from enum import Enum

from grete.core.supervision.assignment import HostedState
from grete.core.supervision.lifecycle import LIVE, WORKER_PROCESS, ProcessState
from grete.core.supervision.policy import Policy
from grete.core.supervision.process_end import ExitKind, ProcessExit, WorkerEnd, worker_end
from grete.core.supervision.worker_reports import SILENT_S, WorkerReports
from grete.errors import ExitCode
from grete.protocol.report import EndReport, Reason, TaskReport, TaskState

GIVEN_UP = (ExitCode.HALTED, ExitCode.FAILED)  # the exit codes of a worker for which a person must look
Life = tuple[int, int, int]  # of a task: its worker, the start of that, and its own start there


class KilledFor(Enum):
    """The reason for which the supervisor killed a worker."""

    REQUEST = "somebody asked for it: no news to anybody"
    SILENCE = "it had said nothing for too long"
    DELAY = "it did not end in time"


class Restarts:
    """Restarts of one worker. ``due_s``: of the next. ``last``: the last end, until what it read since is committed.

    ``counts``: its ends by reason, also those of single tasks, for as long as the machine runs.
    """

    def __init__(self) -> None:
        """No end yet."""
        self.crashes = 0  # in a row, without anything read and committed in between: an empty commit is no progress
        self.due_s = 0.0
        self.last: WorkerEnd | None = None
        self.counts = Counter[Reason]()
        self._waits = 0  # the same as ``crashes``, of ends because the log did not answer
        self._told = ""

    def progressed(self) -> None:
        """Count from the beginning: something was read and committed."""
        self.crashes, self._waits, self.last = 0, 0, None

    def begin_again(self) -> None:
        """Wait for nothing, as if the next start was the first one."""
        self.progressed()
        self.due_s, self._told = 0.0, ""

    def note(self, end: WorkerEnd) -> None:
        """Keep an end for those who are told of it."""
        self.last = end
        self.counts[end.reason] += 1

    def wait_ms(self, policy: Policy, now_s: float, *, log_away: bool) -> int | None:
        """Count an end, and plan the next start; return the wait, None: it has crashed too often."""
        if log_away:
            self._waits += 1
        else:
            self.crashes += 1
        if self.crashes > policy.restarts_max:
            return None
        wait_ms = policy.restart_wait_ms(self.crashes + self._waits)
        self.due_s = now_s + wait_ms / 1000
        return wait_ms

    def is_told_again(self, text: str) -> bool:
        """Tell whether the last end was told by the same text, and keep this one."""
        told, self._told = self._told, text
        return told == text


class SupervisedWorker:
    """The worker of a number. ``partitions``: of its process, or of the next one. ``wanted``: what it is to host.

    ``exit_code``: of a process that has ended for good, and ``ended``: the partitions for which it has. ``ran``: task →
    the generation with which it last ran in this process. One that only starts may lose its claim.
    """

    def __init__(self, number: int) -> None:
        """Host nothing."""
        self.number = number
        self.state = WORKER_PROCESS.first
        self.partitions: tuple[int, ...] = ()
        self.wanted: tuple[int, ...] = ()
        self.reports = WorkerReports()
        self.restarts = Restarts()
        self.starts = 0
        self.exit_code: int | None = None
        self.ended: tuple[int, ...] = ()
        self.kill_at_s: float | None = None  # of one that was asked to end
        self.killed_for: KilledFor | None = None
        self.ran: dict[str, int] = {}

    def check_invariants(self, restarts_max: int) -> None:
        """Raise AssertionError unless this holds between any two calls of Supervision."""
        assert (self.exit_code is not None) == (self.state is ProcessState.ENDED), (self.state, self.exit_code)
        assert self.state is not ProcessState.STOPPING or self.kill_at_s is not None, self.number
        assert self.state is not ProcessState.KILLED or self.killed_for is not None, self.number
        assert self.starts >= 1 or not self.running, (self.state, self.starts)
        assert {*self.ended} <= {*self.partitions}, (self.ended, self.partitions)
        assert self.restarts.crashes <= restarts_max + 1, self.restarts.crashes
        assert self.reports.silent_s >= 0.0, self.reports.silent_s
        assert self.reports.still_s >= 0.0, self.reports.still_s

    def become(self, state: ProcessState) -> None:
        """Change the state of its process. Raises AssertionError if it cannot follow the one before."""
        self.state = WORKER_PROCESS.change(f"worker {self.number}", self.state, state)

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.state in LIVE

    @property
    def hosted(self) -> tuple[int, ...]:
        """Its partitions, and those that it has not given up yet."""
        return tuple(sorted({*self.partitions, *self.reports.partitions}))

    def hosted_state(self, partition: int) -> HostedState:
        """Return the state of one of its partitions."""
        if self.exit_code is not None and partition not in self.ended:
            return HostedState.STARTING  # once an assignment leaves out the others
        if self.exit_code == ExitCode.FENCED:
            return HostedState.FENCED
        if self.exit_code in GIVEN_UP:
            return HostedState.HALTED
        states = self.reports.states(partition)
        if self.kill_at_s is not None or self.exit_code is not None or partition not in self.partitions:
            return HostedState.STORED if states == {TaskState.STOPPED} else HostedState.STOPPING
        if TaskState.FENCED in states:
            return HostedState.FENCED
        return HostedState.RUNNING if states == {TaskState.RUNNING} else HostedState.STARTING

    @property
    def runs_all(self) -> bool:
        """Whether it runs all its partitions, and has given up all others."""
        running = all(self.hosted_state(each) is HostedState.RUNNING for each in self.partitions)
        return running and self.state is ProcessState.RUNNING and self.hosted == self.partitions == self.wanted

    def life_of(self, task: TaskReport) -> Life:
        """Return in which of its lives a task has said this."""
        return self.number, self.starts, task.life

    def started(self) -> None:
        """Take note that a new process begins."""
        self.become(ProcessState.STARTING)
        self.reports.process_started()
        self.starts += 1
        self.killed_for, self.ran = None, {}

    def host(self, partitions: tuple[int, ...], again: Collection[int]) -> bool:
        """Host these partitions from now on; return whether its process, which runs, is to be told."""
        if partitions == self.partitions and not any(task.partition in again for task in self.reports.fenced.values()):
            return False
        self.partitions = partitions
        self.reports.keep_fenced(partitions, again)
        return True

    def stays_away(self, again: Collection[int]) -> bool:
        """Whether it has ended for good: partitions that it is still to host are not all among those ``again``."""
        kept = set(self.wanted) & set(self.ended)
        given_up = self.exit_code in GIVEN_UP and not self.wanted  # it is told of until a person has looked
        return self.exit_code is not None and (given_up or not kept <= set(again))

    def begin_again(self, again: Collection[int]) -> None:
        """Host what is wanted now, as if this was the first start."""
        self.partitions, self.exit_code, self.ended, self.kill_at_s = self.wanted, None, (), None
        self.restarts.begin_again()
        self.reports.begin_again(self.partitions, again)

    def end_for_good(self, code: int, said: EndReport | None) -> None:
        """Take note that it does not start again by itself: all of it, or the partition whose task has failed."""
        self.become(ProcessState.ENDED)
        self.exit_code = code
        of = None if said is None or code == ExitCode.FENCED else said.place.partition
        assert code not in GIVEN_UP or self.partitions, self.number  # what has failed hosted something
        self.ended = (of,) if of in self.partitions and of is not None else self.partitions

    @property
    def is_silent(self) -> bool:
        """Whether its process runs and has sent no report for SILENT_S."""
        return self.state is ProcessState.RUNNING and self.reports.silent_s >= SILENT_S

    @property
    def was_silent(self) -> bool:
        """Whether it was killed because it had said nothing for too long."""
        return self.killed_for is KilledFor.SILENCE

    def how_ended(self, end: ProcessExit) -> str:
        """Return the end of its process, in words."""
        if self.was_silent:
            return f"said nothing for {self.reports.still_s:.0f} s (is its process stopped?), and was killed"
        if end.kind is not ExitKind.EXIT:
            return f"was {end.text}"
        reason = "other" if end.said is None else end.said.reason
        known = {"log away": "gave up waiting for the log", "hung": "hung, and was ended"}
        return known.get(reason, f"crashed, {end.text}")

    def end(self, end: ProcessExit) -> WorkerEnd:
        """Return the end of its process for those who are told of it."""
        return worker_end(end, self.how_ended(end), silent=self.was_silent)

    def unfinished(self, end: ProcessExit) -> tuple[bool, str]:
        """Return (whether it was still at it, what is told) of a process that was to stop, and did not."""
        again = "what it had not committed is processed again"
        killed = self.killed_for in (KilledFor.REQUEST, KilledFor.DELAY)
        hung = end.code == ExitCode.FAILED and (end.said is None or end.said.reason == "hung")
        if killed or hung:
            why = "(it was killed)" if killed else end.words if end.said is None else f"({end.words})"
            return True, f"worker {self.number} did not stop in time {why}: {again}"
        said = f": {end.words}" if end.kind is ExitKind.EXIT else ""
        return False, f"worker {self.number} {self.how_ended(end)} while it stopped; {again}{said}"

    def told(self, how: str, end: ProcessExit) -> str:
        """Return its end as it is told, with the error; ``how`` it has ended."""
        return f"worker {self.number} {how}{' ' if end.said is None else ': '}{end.words}"
