"""Supervision of one machine: its workers and standbys, from the assignment of partitions to their end.

A driver calls a method for each thing that happens, with the time, and carries out the actions that it returns, in
their order. It reads all that workers have said before it calls ``tick``: what was not read is no silence.
"""

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from grete.core.supervision.actions import (
    GiveUp,
    KillWorker,
    Reassign,
    Spawn,
    StopWorker,
    SupervisionAction,
    Tell,
    TellDrain,
)
from grete.core.supervision.assignment import Assignment, HostedState
from grete.core.supervision.lifecycle import ProcessState
from grete.core.supervision.policy import Policy
from grete.core.supervision.process_end import ExitKind, ProcessExit, halted, indented
from grete.core.supervision.sharing import Sharing, open_in
from grete.core.supervision.standbys import Standbys
from grete.core.supervision.supervised_worker import KilledFor, SupervisedWorker
from grete.errors import ExitCode
from grete.protocol.report import StandbyReport, TaskState, WorkerReport

SILENT_GAP_S_MAX = 0.5  # of silence that one look counts: a supervisor that was away for long does not know
STARTING, RUNNING = ProcessState.STARTING, ProcessState.RUNNING


@dataclass(frozen=True)
class StopFailure:
    """A worker that did not stop as it was asked to. ``late``: not in time; else it ended as ``text`` says."""

    number: int
    late: bool
    text: str


class Supervision:
    """The supervision of one machine's workers and standbys.

    ``workers``: by number, those that host something, or have to say why not. ``sharing``: who shares what is active.
    ``changes`` is raised when one of them says something, ends, or is to host others. ``failures``: what the stop of
    the machine has met. ``ended``: task → the highest generation with which a process here had run it that has ended.
    """

    def __init__(self, policy: Policy, processes: int | None) -> None:
        """Host nothing yet. ``processes``: how many workers share the partitions, None: one for each."""
        self.assignment = Assignment()
        self.workers: dict[int, SupervisedWorker] = {}
        self.standbys = Standbys(policy)
        self.changes = 0
        self.failures: list[StopFailure] = []
        self.ended: dict[str, int] = {}
        self._policy, self.sharing = policy, Sharing(processes)
        self._gone: dict[int, SupervisedWorker] = {}  # by number: those of which all has been taken away
        self._undrained: set[int] | None = None  # once the inputs have ended: the workers that do not know it yet
        self.stopping = False  # all are to stop
        self._looked_s: float | None = None  # when silence was counted last

    @property
    def takes_input(self) -> bool:
        """Whether all tasks of all workers take input."""
        return all(worker.reports.takes_input for worker in self.workers.values())

    @property
    def has_processes(self) -> bool:
        """Whether a process is there."""
        return bool(self.standbys.held) or any(worker.running for worker in self.workers.values())

    def hosted(self) -> dict[int, HostedState]:
        """Return partition → what has become of it, of those that are here, or have ended here without a stop."""
        ready = dict.fromkeys(self.standbys.wanted, HostedState.STANDBY)
        coming = dict.fromkeys(self.assignment.active & self.standbys.held, HostedState.STARTING)
        here = {each: worker.hosted_state(each) for worker in self.workers.values() for each in worker.hosted}
        fenced = {each for each in ready if here.get(each) is HostedState.FENCED}  # of a worker that has ended
        moving = dict.fromkeys(self.sharing.moving & self.assignment.active, HostedState.STARTING)
        return ready | coming | {each: state for each, state in here.items() if each not in fenced} | moving

    def assign(self, assignment: Assignment, again: Collection[int], now_s: float) -> list[SupervisionAction]:
        """Host these partitions from now on; those that stay are not disturbed.

        What is taken away stops gracefully (R6). A partition that was a standby starts when that has ended, and has let
        go of the store. ``again``: the partitions that start again though they were fenced here, or have halted.
        """
        self.assignment = assignment
        ready = assignment.standby - assignment.active
        actions = self.standbys.want(ready, assignment.active, assignment.coming, now_s)
        return actions + self._host(again, now_s)

    def tick(self, now_s: float) -> list[SupervisionAction]:
        """Start what is due, and kill what is late or silent."""
        policy, gap_s = self._policy, 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        actions = self.standbys.tick(now_s, open_in(self.workers)) if self.standbys.by_partition else []
        if not self.stopping and self.sharing.must_spread(self.workers, self.assignment.active):
            actions += self._host((), now_s)
        for worker in self.workers.values():
            if worker.state is ProcessState.WAITING and now_s >= worker.restarts.due_s and not self.stopping:
                actions.append(self._start(worker))
            elif worker.state is ProcessState.STOPPING and worker.kill_at_s is not None and now_s > worker.kill_at_s:
                actions += self._kill(worker, KilledFor.DELAY)
            elif worker.state in (STARTING, RUNNING):
                actions += self._listen(worker, gap_s)
                worker.reports.still_s += min(gap_s, policy.gap_s_max)
                still_s_max = policy.silent_s_max if worker.state is RUNNING else policy.silent_start_s_max
                if worker.reports.still_s > still_s_max:
                    actions += self._kill(worker, KilledFor.SILENCE)
        return actions

    def reported(self, number: int, report: WorkerReport) -> list[SupervisionAction]:
        """Take a report of a worker whose process is there."""
        worker = self.workers[number]
        assert worker.running, (number, worker.state)  # a report of a process that has ended is of no use
        self.changes += 1
        if worker.state is STARTING:
            worker.become(RUNNING)
        has_read, failures, news = worker.reports.take(report, worker.partitions)
        worker.ran |= {task.name: task.generation for task in report.tasks if task.status is TaskState.RUNNING}
        worker.restarts.counts += failures
        if has_read:
            worker.restarts.progressed()
        actions: list[SupervisionAction] = [Tell(text) for text in news]
        if self._undrained and number in self._undrained and report.tasks and worker.state is RUNNING:
            self._undrained.discard(number)  # it runs: it takes the signal
            actions.append(TellDrain(number))
        return actions

    def sign_of_life(self, number: int) -> None:
        """Take a sign of life of a worker: it has nothing new to report."""
        self.workers[number].reports.lives()

    def exited(self, number: int, end: ProcessExit, now_s: float) -> list[SupervisionAction]:
        """Take note that the process of a worker has ended; what it had reported came before."""
        worker, code = self.workers[number], end.code
        assert worker.running, (number, worker.state)
        self.changes += 1
        self.ended |= {task: max(each, self.ended.get(task, 0)) for task, each in worker.ran.items()}
        worker.reports.forget()
        if self._undrained is not None:
            self._undrained.discard(number)  # the next one knows from its start on
        if self.stopping:
            return self._stopped(worker, end)
        if worker.kill_at_s is not None and code != ExitCode.HALTED:
            quiet = end.is_quiet or worker.killed_for is KilledFor.REQUEST
            told: list[SupervisionAction] = [] if quiet else [Tell(worker.unfinished(end)[1])]
            worker.become(ProcessState.WAITING)
            self._go_on(worker, ())
            return told
        if worker.killed_for is not KilledFor.REQUEST and code not in (ExitCode.DONE, ExitCode.FENCED):
            worker.restarts.note(worker.end(end))
        if code in (ExitCode.DONE, ExitCode.FENCED):
            worker.end_for_good(code, end.said)
            return []
        if code == ExitCode.HALTED:
            return [self._give_up(worker, end, "halted")]
        return self._restart(worker, end, now_s)

    def standby_reported(self, partition: int, report: StandbyReport, now_s: float) -> list[SupervisionAction]:
        """Take a report of a standby whose process is there."""
        self.changes += 1
        return self.standbys.reported(partition, report, now_s) + self._let_go(partition, now_s)

    def standby_exited(self, partition: int, end: ProcessExit, now_s: float) -> list[SupervisionAction]:
        """Take note that the process of a standby has ended."""
        self.changes += 1
        return self.standbys.exited(partition, end, now_s) + self._let_go(partition, now_s)

    def drain(self) -> list[SupervisionAction]:
        """Tell every worker, and those that are started later, that the inputs of the job have ended (E7)."""
        if self._undrained is not None:
            return []
        workers = self.workers.values()
        told = [worker.number for worker in workers if worker.state is RUNNING and worker.reports.tasks]
        self._undrained = {worker.number for worker in workers if worker.running}.difference(told)
        return [TellDrain(number) for number in told]

    def stop(self, now_s: float) -> list[SupervisionAction]:
        """Ask every process to stop gracefully (R6), and start none; what does not end in time is killed."""
        self.stopping = True
        actions = self.standbys.want((), (), (), now_s)
        for worker in self.workers.values():
            if worker.state in (STARTING, RUNNING):
                actions += self._stop(worker, now_s)
        return actions

    def kill(self, number: int) -> list[SupervisionAction]:
        """Kill a worker because somebody asks for it; it starts again."""
        worker = self.workers[number]
        there = worker.running and worker.state is not ProcessState.KILLED
        return self._kill(worker, KilledFor.REQUEST) if there else []

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two calls: each store is open in one process."""
        self.standbys.check_invariants()
        for number, worker in self.workers.items():
            assert worker.number == number, (worker.number, number)
            worker.check_invariants(self._policy.restarts_max)
        assert not (self._gone.keys() & self.workers.keys()), self._gone.keys() & self.workers.keys()
        assert not any(worker.running for worker in self._gone.values()), self._gone.keys()
        running = {number for number, worker in self.workers.items() if worker.running}
        assert (self._undrained or set()) <= running, f"no process is there to be told: {self._undrained}"
        assert not self.standbys.wanted & self.assignment.active, "a standby is kept of what is to run here"
        wanted = [partition for worker in self.workers.values() for partition in worker.wanted]
        assert len(wanted) == len({*wanted}), f"two workers are to host one partition: {sorted(wanted)}"
        assert {*wanted} <= self.assignment.active, (wanted, self.assignment.active)
        taken = {p for worker in self.workers.values() if worker.running for p in worker.partitions}
        assert not taken & self.standbys.held, f"a standby and a worker have one store: {taken & self.standbys.held}"
        assert not self.sharing.moving & {*wanted}, f"two workers have one store: {self.sharing.moving}"

    def _host(self, again: Collection[int], now_s: float) -> list[SupervisionAction]:
        """Let workers host what is active, but for that of which a standby has the store."""
        self.changes += 1
        of = self.sharing.spread(self.workers, {*(self.assignment.active - self.standbys.held)})
        actions: list[SupervisionAction] = []
        for number in sorted({*self.workers, *of}):
            actions += self._want(self.workers.get(number) or self._added(number), of.get(number, ()), again, now_s)
        return actions

    def _let_go(self, partition: int, now_s: float) -> list[SupervisionAction]:
        """Start a partition as active once its standby has let go of the store."""
        if partition not in self.assignment.active or partition in self.standbys.held or self.stopping:
            return []
        return self._host((), now_s)

    def _added(self, number: int) -> SupervisedWorker:
        """Return a worker that hosts nothing yet; one that was here before goes on counting its starts."""
        worker = self._gone.pop(number) if number in self._gone else SupervisedWorker(number)
        self.workers[number] = worker
        return worker

    def _want(
        self, worker: SupervisedWorker, partitions: tuple[int, ...], again: Collection[int], now_s: float
    ) -> list[SupervisionAction]:
        """Let a worker host these partitions: its process is told, or ends if it is to host none."""
        worker.wanted = partitions
        if not worker.running:
            if not worker.stays_away(again):
                self._go_on(worker, again)
            return []
        if worker.kill_at_s is not None:
            return []  # it ends; the next one begins with what is wanted then
        if worker.state is ProcessState.KILLED:
            if partitions:
                worker.host(partitions, again)
            else:
                worker.kill_at_s = now_s
            return []
        if not partitions:
            worker.reports.fenced.clear()  # if it comes back, it comes as any other
            return self._stop(worker, now_s)
        return [Reassign(worker.number, partitions, tuple(again))] if worker.host(partitions, again) else []

    def _go_on(self, worker: SupervisedWorker, again: Collection[int]) -> None:
        """Let a worker without a process host what is wanted of it, or forget it."""
        if worker.wanted != worker.partitions or worker.exit_code is not None or worker.kill_at_s is not None:
            worker.begin_again(again)
        if not worker.wanted:
            worker.become(ProcessState.ABSENT)
            self._gone[worker.number] = self.workers.pop(worker.number)
        elif worker.state is not ProcessState.WAITING:
            worker.become(ProcessState.WAITING)

    def _listen(self, worker: SupervisedWorker, gap_s: float) -> list[SupervisionAction]:
        """Tell that a worker says nothing, and that it speaks again."""
        missed = worker.reports.missed(min(gap_s, SILENT_GAP_S_MAX)) if worker.state is RUNNING else None
        if missed is None:
            return []
        if not missed:
            return [Tell(f"worker {worker.number} reports again")]
        return [
            Tell(
                f"worker {worker.number} has said nothing for {worker.reports.silent_s:.0f} s: its process is stopped, "
                "or gets no processor; it is ended if it does not go on for "
                f"{self._policy.silent_s_max:.0f} s (liveness_timeout_ms)"
            )
        ]

    def _start(self, worker: SupervisedWorker) -> Spawn:
        assert not self.stopping, worker.number
        assert worker.partitions and not self.standbys.held & {*worker.partitions}, (worker.number, worker.partitions)
        worker.started()
        fenced = tuple(worker.reports.fenced)
        return Spawn(worker.number, worker.partitions, fenced, draining=self._undrained is not None)

    def _stop(self, worker: SupervisedWorker, now_s: float) -> list[SupervisionAction]:
        assert worker.kill_at_s is None, worker.number  # else it is to end already, by an earlier time
        worker.become(ProcessState.STOPPING)
        worker.kill_at_s = now_s + self._policy.stop_s
        return [StopWorker(worker.number)]

    def _kill(self, worker: SupervisedWorker, why: KilledFor) -> list[SupervisionAction]:
        worker.become(ProcessState.KILLED)
        worker.killed_for = why
        if why is not KilledFor.SILENCE:
            worker.reports.forget()
        return [KillWorker(worker.number)]

    def _restart(self, worker: SupervisedWorker, end: ProcessExit, now_s: float) -> list[SupervisionAction]:
        """Wait before the next start: not at all after the first end, then longer and longer."""
        exited = end.said if end.kind is ExitKind.EXIT else None
        log_away = exited is not None and exited.reason == "log away"
        wait_ms = worker.restarts.wait_ms(self._policy, now_s, log_away=log_away)
        if wait_ms is None:
            crashes = f"crashed {worker.restarts.crashes} times without progress between ({end.text})"
            return [self._give_up(worker, end, crashes)]
        worker.become(ProcessState.WAITING)
        actions: list[SupervisionAction] = []
        if worker.killed_for is not KilledFor.REQUEST:
            how, restart = worker.how_ended(end), f"restart in {wait_ms / 1000:.1f} s"
            text = worker.told(how, end)
            if worker.restarts.is_told_again(text):
                actions.append(Tell(f"worker {worker.number} {how}, as the last time; {restart}"))
            else:
                trace = indented("" if end.said is None else end.said.traceback)
                actions.append(Tell(f"{text}; {restart}{trace}"))
        return actions

    def _give_up(self, worker: SupervisedWorker, end: ProcessExit, how: str) -> GiveUp:
        """Let a person look: it does not start again by itself."""
        has_halted = end.code == ExitCode.HALTED
        error = halted(end.said, worker.told(how, end), given_up=not has_halted)
        worker.end_for_good(ExitCode.HALTED if has_halted else ExitCode.FAILED, end.said)
        if worker.restarts.last is not None:
            worker.restarts.last = replace(worker.restarts.last, code=str(error.code.value))
        return GiveUp(error)

    def _stopped(self, worker: SupervisedWorker, end: ProcessExit) -> list[SupervisionAction]:
        """Take note of the end of a worker while all are to stop."""
        if end.code == ExitCode.HALTED:
            worker.restarts.note(worker.end(end))
            return [self._give_up(worker, end, "halted")]
        if end.code in (ExitCode.DONE, ExitCode.FENCED):
            worker.end_for_good(end.code, end.said)
            return []
        worker.become(ProcessState.WAITING)
        if end.kind is ExitKind.TERMINATED:  # a worker takes the signal itself from its first step on
            who = f"worker {worker.number}"
            return [Tell(f"{who} was ended by SIGTERM while it was starting: it had processed nothing")]
        late, text = worker.unfinished(end)
        self.failures.append(StopFailure(worker.number, late, text))
        return [Tell(text)]
