"""The processes of a simulated world: what starts when, on which host, and what starts again after a kill."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from grete.core.graph.task_topology import TaskWiring
from grete.core.lifecycle import TaskStatus
from grete.execution.engine.driver import TaskDriver
from tests.verification.simulation.arrivals import Arrivals
from tests.verification.simulation.builds import Builds
from tests.verification.simulation.disk import Host, Hosts
from tests.verification.simulation.process import Process, Surroundings
from tests.verification.simulation.trace import Trace, WorldTime
from tests.verification.simulation.twins import Twins
from tests.verification.simulation.worker import Worker


class Start(NamedTuple):
    """A start that is to come."""

    step: int
    task: int
    crash_at: int = 0  # this crossing of its boundary; 0: none
    lurks: bool = False  # see Process


class Population:
    """``all``: every process, those that are paused included."""

    def __init__(
        self,
        around: Surroundings,
        builds: Builds,
        arrivals: Arrivals,
        time: WorldTime,
        trace: Trace,
        rand: Callable[[], float],
        seen: Counter[str],
    ) -> None:
        plan = around.plan
        self.all: list[Process] = []
        self.hosts = Hosts(plan.wirings, rand)
        self.twins = Twins()
        self.promote: Callable[[int], Host | None] = lambda _task: (
            None
        )  # gives the host of a standby that is taken over
        self.ended: set[int] = set()  # tasks that a damage has ended: they do not start again
        self._starts = [Start(0, task) for task in plan.wirings if task == plan.together_with(task)[0]]
        self._started = 0
        self._plan, self._around, self._builds, self._arrivals = plan, around, builds, arrivals
        self._time, self._trace, self._rand, self._seen = time, trace, rand, seen

    def awake(self) -> list[Process]:
        """Return the processes that are not paused."""
        return [process for process in self.all if not process.worker.paused]

    def restart(self, task: int, delay: int, crash_at: int = 0, *, lurks: bool = False) -> None:
        """Start a process of the task after that many steps, if a damage has not ended it."""
        if task not in self.ended:
            self._starts.append(Start(self._time.step + delay, task, crash_at, lurks))

    def start_due(self) -> None:
        """Start what is due, and let those go on whose pause is over."""
        step = self._time.step
        self.twins.wake(self.all, step, self._seen)
        for process in self.all:
            if process.worker.paused and process.worker.wake_at <= step:
                process.worker.paused = process.log.stalled = False
                self._trace.note(f"{process.name} goes on")
        if not self._starts:
            return
        due = [start for start in self._starts if start.step <= step]
        self._starts = [start for start in self._starts if start.step > step]
        for start in due:
            tasks = (start.task,) if start.lurks else self._plan.together_with(start.task)
            worker = self._start(tasks, self._builds.wiring)
            worker.tasks[0].lurks = start.lurks
            if start.crash_at:
                worker.boundary.arm_crash(start.crash_at)

    def start_refused(self, task: int, wiring: TaskWiring) -> None:
        """Start a process of a task, whose build has a graph that the start must refuse."""
        self._start((task,), lambda _: wiring, refused=True)

    def _start(
        self, tasks: tuple[int, ...], build: Callable[[TaskWiring], TaskWiring], *, refused: bool = False
    ) -> Worker[Process]:
        """Start one process of these tasks. ``build``: gives a task's wiring as the build of the process has it."""
        plan, around = self._plan, self._around
        worker = Worker[Process](around.log, around.ambush, plan.process_of(tasks[0]), self._rand, plan.topology)
        for task in tasks:
            self._started += 1
            wiring = build(self._plan.wirings[task])
            host = self.promote(task) or self.hosts.take(task)
            process = Process(self._around, task, self._started, host, wiring, worker, refused=refused)
            self._around.checker.ended_before[process.nonce] = self._arrivals.over
            self.all.append(process)
            self._trace.note(f"{process.name} starts on host {process.host.number}")
        self._seen["processes of several tasks"] += len(tasks) > 1
        return worker

    def fail_alone(self, process: Process, how: str, delay: int | None) -> None:
        """End a task while the others of its process go on; it starts again there after ``delay`` steps.

        None: another process has it.
        """
        self._trace.note(f"{process.name} {how}, alone")
        self._seen["tasks that end alone"] += 1
        self._count(process)
        self.all.remove(process)
        process.worker.end_alone(process, None if delay is None else self._time.step + delay)
        process.close(self._rand)
        if delay is not None:
            process.host.in_use = True  # until it starts again there
        elif not any(each.task == process.task for each in self.awake()):
            self.restart(process.task, int(self._rand() * 25))

    def start_again(self, worker: Worker[Process]) -> None:
        """Start those tasks of a process again that have ended alone, and are due."""
        for before in worker.due(self._time.step):
            self._started += 1
            again = Process(self._around, before.task, self._started, before.host, before.wiring, worker)
            self._around.checker.ended_before[again.nonce] = self._arrivals.over
            self.all.append(again)
            self._trace.note(f"{again.name} starts on host {again.host.number}, beside others")
            self._seen["tasks that start again beside others"] += 1
            assert worker.loop is not None
            worker.loop.add(again.driver)
            worker.loop.start(again.driver, self._beginning(again))

    def _beginning(self, process: Process) -> Callable[[TaskDriver], None]:
        return lambda _driver: process.start(self._time.now)

    def kill(self, process: Process, how: str, *, restart: bool = True) -> None:
        """End a task's process; it is started again if no other one of its tasks is awake or about to start."""
        if process not in self.all:
            return  # it went with another task
        worker = process.worker
        for each in worker.tasks:
            self._trace.note(f"{each.name} {how}")
            if each.restoring:
                self._seen["crashes in a restore"] += 1
            self._seen["crashes between two slices of many"] += each.overlay.half_sent
            self._seen["drains that a kill takes back"] += each.has_ended and not self._has_ended(each.task)
            if each.overlay.half_applied:
                self._seen["crashes between two chunks of a checkpoint"] += 1
            self._count(each)
            self.all.remove(each)
        self._seen += worker.unacknowledged(self._around.checker.histories)
        worker.log.die()
        for each in worker.tasks:
            each.close(self._rand)
        for waiting in worker.waiting:
            waiting.process.host.in_use = False
        if restart and not self._has_other(self._plan.together_with(process.task)):
            self.restart(process.task, int(self._rand() * 25))

    def end_replaced(self) -> bool:
        """End those that a twin has replaced and which do not know it: idle ones that commit nothing never will."""
        replaced = [process for process in self.all if self._is_replaced(process)]
        for process in replaced:
            self.kill(process, "is replaced and does not know it")
        return bool(replaced)

    def _is_replaced(self, process: Process) -> bool:
        """Tell whether another process has committed more of a running task."""
        commits, history = process.core.commits, self._around.checker.histories[process.task]
        idle = process.core.status is TaskStatus.RUNNING and commits.pending is None
        return idle and (commits.committed is None or commits.committed.checkpoint_id < history.checkpoint_id)

    def _has_ended(self, task: int) -> bool:
        """Tell whether it is committed that all that a task reads has ended."""
        time = self._around.checker.histories[task].time
        return time is not None and time.ended

    def _has_other(self, tasks: tuple[int, ...]) -> bool:
        """Tell whether a process that hosts all of these is awake, or about to start."""
        if any(start.task in tasks and not (start.lurks and len(tasks) > 1) for start in self._starts):
            return True
        return any(p.task == tasks[0] and len(p.worker.tasks) == len(tasks) for p in self.awake())

    def count_all(self) -> None:
        """Add up what all processes have counted: the world is over."""
        for process in self.all:
            self._count(process)

    def _count(self, process: Process) -> None:
        if not process.recorded:
            process.recorded = True
            self._seen += process.counted()

    def end_faults(self) -> None:
        """From here on no process meets with anything; those that are paused go on soon."""
        for process in self.all:
            process.boundary.disarm()
            process.log.lose_ack = process.store.corrupt = False
            process.sink_steps.sink_ms = 0
            process.worker.wake_at = min(process.worker.wake_at, self._time.step + 40)
        self._starts = [Start(start.step, start.task) for start in self._starts]
