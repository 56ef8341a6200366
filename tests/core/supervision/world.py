"""A machine on virtual time: the core of its supervisor, and processes that run, work, freeze, crash and stop.

The world does what the driver does: it reads what processes have said, then their ends, then it lets the core look at
the clock. It fails at once where something happens that must never happen: a store that two processes have open.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from grete.core.supervision.actions import (
    GiveUp,
    KeepStandby,
    KillStandby,
    KillWorker,
    Reassign,
    Spawn,
    SpawnStandby,
    StopStandby,
    StopWorker,
    SupervisionAction,
    Tell,
    TellComing,
    TellDrain,
)
from grete.core.supervision.assignment import Assignment, HostedState
from grete.core.supervision.policy import Policy
from grete.core.supervision.process_end import ExitKind, ProcessExit
from grete.core.supervision.supervision import Supervision
from grete.errors import ExitCode, Halted
from grete.protocol.report import EndReport, Reason, StandbyReport, StandbyState, StandbyTaskReport, TaskState
from grete.protocol.report import WorkerReport as Report
from tests.support.reports import OF_WORKER, task_report

STEP_S = 0.1  # of the world; also what a supervisor waits that has nothing to do
START_S, STOP_S, RESTORE_S = 0.5, 0.8, 2.0  # of a healthy process
REPORT_S = 1.0  # between two reports
POLICY = Policy(restarts_max=3, backoff_ms=100, backoff_ms_max=1_000, stop_s=4.0, silent_s_max=8.0)
TERMINATED = ProcessExit(ExitKind.TERMINATED, -15, "killed by SIGTERM", None, None, "w.log", disk_full=False, at_ms=0)
KILLED = ProcessExit(ExitKind.KILLED, -9, "killed by SIGKILL", None, None, "w.log", disk_full=False, at_ms=0)


def exit_with(code: int, reason: Reason = "other", text: str = "it broke") -> ProcessExit:
    """Return the end of a process by an exit code; with an error that it has reported, unless it is done."""
    said = None if code == ExitCode.DONE else EndReport(reason=reason, text=text)
    return ProcessExit(ExitKind.EXIT, code, f"code {code}", said, None, "w.log", disk_full=False, at_ms=0)


@dataclass
class Process:
    """One process. ``due_s``: when what it is at is over: its start, or its stop."""

    partitions: tuple[int, ...]
    due_s: float
    knows_end: bool = False  # that the inputs have ended; a standby: that a worker is to come
    frozen: bool = False  # it does nothing until SIGKILL comes
    deaf: bool = False  # it works and reports, but takes no signal
    stopping: bool = False
    trouble: str = ""  # of a standby
    left: int = round(RESTORE_S / STEP_S)  # looks until a standby has restored
    stays: bool = False  # a standby whose process is to be a worker's
    started: bool = False
    said_s: float = 0.0
    end: ProcessExit | None = None
    open: set[int] = field(default_factory=set)  # the stores that it has open
    leaves: dict[int, float] = field(default_factory=dict)  # partitions that it gives up, and when it has


Crashes = Callable[[int, Process], ProcessExit | None]  # number, its process → how it ends now, None: it does not


class Machine:
    """``told``: what a person was told. ``errors``: of workers that were given up. ``spawns``: by worker number."""

    def __init__(self, *, processes: int | None = None, policy: Policy = POLICY) -> None:
        """Host nothing."""
        self.now_s = 0.0
        self.core = Supervision(policy, processes)
        self.workers: dict[int, Process] = {}
        self.standbys: dict[int, Process] = {}
        self.kept: list[Process] = []  # of standbys that wait to be a worker
        self.works = True  # records come: workers read and commit
        self.committed = Counter[int]()  # by partition: in its changelog, so for all its processes
        self.crashes: Crashes = lambda _number, _process: None
        self.restoring = True  # what standbys have to restore comes
        self.gap_s = STEP_S  # between two looks of the supervisor
        self.told: list[str] = []
        self.errors: list[Halted] = []
        self.spawns = Counter[int]()
        self.ended: dict[int, list[float]] = {}  # worker → when its processes ended
        self._looked_s = 0.0

    def assign(
        self, *active: int, standby: Collection[int] = (), again: Collection[int] = (), coming: Collection[int] = ()
    ) -> None:
        """Assign partitions, as a member of the job does."""
        of = Assignment(frozenset(active), frozenset(standby), frozenset(coming))
        self._do(self.core.assign(of, again, self.now_s))

    def share(self, processes: int) -> None:
        """Ask for that many workers, as a person does."""
        self.core.sharing.asked = processes

    def drain(self) -> None:
        """Let the inputs end."""
        self._do(self.core.drain())

    def stop(self, seconds: float = 60.0) -> None:
        """Stop the machine, and wait."""
        self._do(self.core.stop(self.now_s))
        end_s = self.now_s + seconds
        while self.core.has_processes:
            assert self.now_s < end_s, (self.workers, self.standbys)
            self.run(STEP_S)

    def kill(self, number: int) -> None:
        """Kill a worker as a person does who asks the supervisor for it."""
        self._do(self.core.kill(number))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - STEP_S / 2:
            self.now_s += STEP_S
            for number, process in self.workers.items():
                self._work(number, process)
            for partition, process in self.standbys.items():
                self._restore(partition, process)
            if self.now_s - self._looked_s >= self.gap_s - STEP_S / 2:
                self._look()

    def pause(self, seconds: float) -> None:
        """Let time pass in which no process runs, the supervisor included: a machine that sleeps."""
        self.now_s += seconds

    def hosted(self) -> dict[int, HostedState]:
        """Return the state of each partition, as the machine says it."""
        return self.core.hosted()

    def _look(self) -> None:
        self._looked_s = self.now_s
        for number, process in list(self.workers.items()):
            if process.started and not process.frozen and self.workers.get(number) is process:
                self._report(number, process)
        for partition, process in list(self.standbys.items()):
            if process.started and not process.frozen and self.standbys.get(partition) is process:
                self._do(self.core.standby_reported(partition, self._standby_report(partition, process), self.now_s))
        for number, process in list(self.workers.items()):
            if process.end is not None:
                del self.workers[number]
                self.ended.setdefault(number, []).append(self.now_s)
                self._do(self.core.exited(number, process.end, self.now_s))
        for partition, process in list(self.standbys.items()):
            if process.end is not None and self.standbys.get(partition) is process:
                del self.standbys[partition]
                self._do(self.core.standby_exited(partition, process.end, self.now_s))
        self._do(self.core.tick(self.now_s))
        self.kept.clear()
        stores = Counter(p for process in (*self.workers.values(), *self.standbys.values()) for p in process.open)
        assert set(stores.values()) <= {1}, f"two processes have a store open: {stores}"

    def _work(self, number: int, process: Process) -> None:
        if process.end is not None or process.frozen:
            return
        if process.stopping and self.now_s >= process.due_s:
            self._end(process, exit_with(ExitCode.DONE))
        elif not process.started and self.now_s >= process.due_s:
            process.started = True
            process.open |= set(process.partitions)
        elif process.started and not process.stopping:
            process.leaves = {each: due_s for each, due_s in process.leaves.items() if due_s > self.now_s}
            process.open = {*process.partitions, *process.leaves}
            self.committed.update(process.partitions if self.works else ())
            if (end := self.crashes(number, process)) is not None:
                self._end(process, end)

    def _restore(self, partition: int, process: Process) -> None:
        if process.end is not None or process.frozen:
            return
        if process.stopping and self.now_s >= process.due_s:
            process.open.clear()
            if not process.stays:
                process.end = TERMINATED
        elif not process.started and self.now_s >= process.due_s:
            process.started = True
            process.open = {partition}

    def _end(self, process: Process, end: ProcessExit) -> None:
        process.end = end
        process.open.clear()

    def _report(self, number: int, process: Process) -> None:
        if self.now_s - process.said_s < REPORT_S - STEP_S / 2 and not process.stopping:
            return
        process.said_s = self.now_s
        state = TaskState.STOPPED if process.stopping and process.end is not None else TaskState.RUNNING
        tasks = tuple(
            task_report(f"count-{each}", status=state, read_up_to=((self.committed[each],), ()))
            for each in sorted({*process.partitions, *process.leaves})
        )
        self._do(self.core.reported(number, Report(tasks=tasks, measures=OF_WORKER)))

    def _standby_report(self, partition: int, process: Process) -> StandbyReport:
        if process.stopping and not process.open:
            return StandbyReport(tasks=())
        process.left -= self.restoring
        left = max(0, process.left)
        task = StandbyTaskReport(
            stage="count",
            partition=partition,
            status=StandbyState.RESTORING if left else StandbyState.STANDBY,
            checkpoint_id=-1,
            position=-1,
            read=1_000 - left,
            end=1_000,
            behind=-1 if left else 0,
            trouble=process.trouble,
        )
        return StandbyReport(tasks=(task,))

    def _do(self, actions: Collection[SupervisionAction]) -> None:
        self.core.check_invariants()
        for action in actions:
            match action:
                case Spawn(number=number, partitions=partitions):
                    assert number not in self.workers, f"worker {number} runs already"
                    assert partitions
                    self.spawns[number] += 1
                    wait_s = STEP_S if self.kept else START_S
                    self.workers[number] = Process(
                        partitions, self.now_s + wait_s, knows_end=action.draining, said_s=self.now_s
                    )
                case SpawnStandby(partition=partition):
                    assert partition not in self.standbys, f"the standby of {partition} runs already"
                    self.standbys[partition] = Process((partition,), self.now_s + START_S)
                case Reassign(number=number, partitions=partitions):
                    given_up = {*self.workers[number].open}.difference(partitions)
                    self.workers[number].partitions = partitions
                    self.workers[number].leaves = dict.fromkeys(given_up, self.now_s + STOP_S)
                case TellDrain(number=number):
                    assert not self.workers[number].knows_end, "it was told before"
                    assert self.workers[number].started, "it does not take the signal yet"
                    self.workers[number].knows_end = True
                case StopWorker(number=number):
                    self._signal(self.workers[number])
                case StopStandby(partition=partition, stays=stays):
                    self.standbys[partition].stays = stays
                    self._signal(self.standbys[partition])
                case KillWorker(number=number):
                    self._end(self.workers[number], KILLED)
                case KillStandby(partition=partition):
                    self._end(self.standbys[partition], KILLED)
                case KeepStandby(partition=partition):
                    self.kept.append(self.standbys.pop(partition))
                case Tell(text=text):
                    self.told.append(text)
                case GiveUp(error=error):
                    self.errors.append(error)
                case TellComing(partition=partition):
                    assert not self.standbys[partition].knows_end
                    self.standbys[partition].knows_end = True

    def _signal(self, process: Process) -> None:
        assert not process.stopping, "it was asked to stop before"
        if process.frozen or process.deaf or process.end is not None:
            return
        if process.started:
            process.stopping, process.due_s = True, self.now_s + STOP_S
        else:
            self._end(process, TERMINATED)
