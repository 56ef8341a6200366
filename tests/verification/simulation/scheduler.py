"""The seeded scheduler: processes tick, the log applies, time passes, faults happen; one thread, virtual time."""

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

from framework.core.deterministic.task import DeterministicCore
from framework.core.task_topology import TaskWiring
from framework.errors import Fenced, FrameworkError, Halted, OffsetOutOfRange, StoreCorrupted, TransientError
from framework.execution.driver import TaskDriver
from framework.ports import ExternalRecord, LogRow
from framework.stores.memory import MemoryDisk
from protocol.ids import TopicPartition, split_producer_id
from tests.verification.simulation.arrivals import Arrivals
from tests.verification.simulation.behaviour import behaviour_of
from tests.verification.simulation.boundary import Ambush, Crashed
from tests.verification.simulation.builds import Builds, check_refused, is_refusal
from tests.verification.simulation.disk import Hosts, copy_of
from tests.verification.simulation.fault_plan import DAMAGES, FAULTY, LOGICAL_DAMAGES, REVEALING, Fault
from tests.verification.simulation.faults import FAULTS, WAITING, own_rand
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.logical_checks import LogicalChecker
from tests.verification.simulation.oracle import Recorder, Violation
from tests.verification.simulation.plan import Plan
from tests.verification.simulation.process import Process, Surroundings
from tests.verification.simulation.trace import Trace
from tests.verification.simulation.twins import Twins
from tests.verification.simulation.worker import Worker

REST = 100  # times the steps, at most, until all is committed: without room for early records it is read again for each
SETTLE = 60  # steps for what is late
RESTARTED = 0.2  # of the worlds are killed and started once more when all is done
EPOCH_MS = 1_000_000
TOLD = 0.2  # of the turns of a deterministic task it is told which time others have observed


class Simulation:
    """The world of one seed. ``run`` raises Violation. ``tell`` takes a line for each event and action of each core."""

    def __init__(self, plan: Plan, tell: Callable[[str], None] | None = None, *, checked: bool = True) -> None:
        self.plan = plan
        self.now = EPOCH_MS
        self.step = 0
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []  # those that happened, in words
        self.happened: list[int] = []  # their numbers
        self.hits = 0  # faults that hit something
        self.ambush = Ambush(self._hit)
        self.damaged = False  # something broke that the protocol relies on: to halt is right from now on
        self._ended: set[int] = set()  # tasks that a damage has ended
        self._must_halt: set[int] = set()  # tasks that cannot overlook a damage
        self.trace = Trace()
        self.rand = random.Random(f"run {plan.seed}").random
        self.log = SharedLog(lambda: self.now, self.rand, behaviour_of(plan))
        self.recorder = Recorder()
        make = LogicalChecker if plan.deterministic else Checker
        self.checker = make(plan, self.log, self.recorder)
        self.log.observer = self
        self._around = Surroundings(
            plan,
            self.log,
            self.checker,
            self.recorder,
            lambda: self.now,
            lambda: int(self.rand() * (1 << 32)),
            self.ambush,
            tell=tell,
            checked=checked,
        )
        self.log.hit = self._hit
        self._create_topics()
        self._arrivals = Arrivals(plan, self.log, self.rand, self.seen)
        self.hosts = Hosts(plan.wirings, self.rand)
        self._processes: list[Process] = []
        self._number = 0
        # step, task, crash at this crossing, lurks
        self._restarts: list[tuple[int, int, int, bool]] = [
            (0, task, 0, False) for task in plan.wirings if task == plan.together_with(task)[0]
        ]
        self._idle = 0
        self._late = 0.0
        self._twins = Twins()
        self._faults = deque(plan.faults)
        self._builds = Builds(plan)

    def _create_topics(self) -> None:
        for partition in self.plan.partitions():
            self.log.add(partition, self.plan.external_start if partition in self.plan.inputs else 0)

    def run(self) -> None:
        """Run until everything is committed and the world is at rest."""
        while self.step <= self.plan.steps * FAULTY:  # the last fault included
            self._one_step()
        self._end_faults()
        if self.damaged:
            self._come_to_an_end()
            return
        for _ in range(SETTLE):  # zombies go on, and what is late arrives
            self._one_step()
        self._come_to_rest()
        if self.rand() < RESTARTED:
            for process in list(self._processes):
                self.kill(process, "killed at the end")
            self._come_to_rest()
        self.checker.finish()
        for process in self._processes:
            self._count(process)

    def _come_to_rest(self) -> None:
        """Run until everything is committed, and each task has closed one more checkpoint."""
        histories, limit = self.checker.histories.values(), self.step + self.plan.steps * REST
        before = [history.checkpoint_id for history in histories]
        while not self._complete() or any(h.checkpoint_id <= v for h, v in zip(histories, before, strict=True)):
            for _ in range(20):
                self._one_step()
            if self.step > limit:
                stuck = {p.name: (p.core.status.name, p.core.frozen) for p in self._processes}
                missing = self.checker.missing
                raise Violation("liveness", f"{len(missing)} outputs are missing: {sorted(missing)[:3]}; {stuck}")

    def _come_to_an_end(self) -> None:
        """After a damage nothing needs to be complete; what is not must have been noticed."""
        limit = self.step + self.plan.steps * REST
        while not self._complete() and not self._ended and self.step < limit:
            self._one_step()
        complete = self._complete()
        for _ in range(SETTLE):
            self._one_step()
        if not self._must_halt <= self._ended:
            raise Violation("unnoticed", f"tasks {sorted(self._must_halt - self._ended)} go on behind a damage")
        self.seen["damages that no task needed to notice"] += complete and not self._ended
        if not (complete or self._ended or self.seen["exit 1 by OffsetOutOfRange"]):
            raise Violation("liveness", "something was lost, and no task halts")

    def _one_step(self) -> None:
        self.step += 1
        if self.now >= self.log.away_until:
            self._arrivals.feed(self.step)
        self._start_due()
        if wrong := self._builds.due(self.step, () if self.damaged else self.checker.histories.values()):
            self._started(wrong[0], lambda _: wrong[1], refused=True)
        while self._faults and self._faults[0].at * self.plan.steps <= self.step:
            self._fault(self._faults.popleft())
        busy, awake = False, self.awake()
        if awake:
            busy = self._turn(awake[int(self.rand() * len(awake))].worker)
        for _ in range(int(self.rand() * 8)):
            busy = self.log.pump() or busy
        if self.log.repeats and self.rand() < 0.03:
            self.log.repeat(int(self.rand() * len(self.log.repeats)))
        self._pass_time(busy, len(awake))

    def _pass_time(self, busy: bool, awake: int) -> None:
        interval = self.plan.settings.checkpoint_interval_ms
        self._late += self.rand() * interval * self.plan.pace / (3 + 3 * awake)
        self._idle = 0 if busy else self._idle + 1
        if self._idle > awake:
            self._idle, self._late = 0, self._late + interval / 2
        self.now += int(self._late)
        for coordinator in self.log.coordinators.values():
            coordinator.pass_time(self.now)
        self.log.trim_due()
        self._late -= int(self._late)

    @property
    def processes(self) -> list[Process]:
        """Return all processes, those that are paused included."""
        return list(self._processes)

    def awake(self) -> list[Process]:
        """Return the processes that are not paused."""
        return [process for process in self._processes if not process.paused]

    def _turn(self, worker: Worker[Process]) -> bool:
        """Let a process do a few things; True if it did any."""
        try:
            if not worker.started:
                worker.start(self.now)
                return True
            if worker.stop_by and self.now > worker.stop_by:
                self.kill(worker.tasks[0], "stop timed out")
                return True
            for process in worker.tasks:
                self._tell(process.driver)
            worker.turn()
            for process in worker.tasks:
                self.seen["rollbacks asked for between two slices of many"] += (
                    process.overlay.half_sent and process.rolls_back
                )
                if process.lurks and process.about_to_claim:
                    self._twins.lurk(process, self.step)
                check_refused(process)
            if worker.over:
                self.seen["graceful stops"] += 1
                self.kill(worker.tasks[0], "exit 0")
        except Crashed:
            self.seen[f"crash {worker.boundary.where}"] += 1
            self.kill(worker.tasks[0], f"crashed {worker.boundary.where}")
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it ends the process
            self._failed(worker, worker.whose(error), error)
        return worker.busy

    def _failed(self, worker: Worker[Process], process: Process, error: Exception) -> None:
        """End a process by an error of one of its tasks, or raise Violation: it is one that must not be."""
        self.seen["tasks that end by the error of another"] += len(worker.tasks) - 1
        match error:
            case Fenced():
                self.seen["fenced"] += 1
                self.checker.fenced(process.task, process.core.generation, process.nonce, str(error))
                self.kill(process, "exit 3")
            case TransientError() | OffsetOutOfRange() | StoreCorrupted():
                self.seen[f"exit 1 by {type(error).__name__}"] += 1
                for each in worker.tasks if isinstance(error, StoreCorrupted) else ():
                    each.host.replace(MemoryDisk())  # as a worker does: the changelog is the truth
                self.kill(process, f"exit 1: {error}")
            case FrameworkError():
                self._halt(process, error)
            case _:
                raise Violation("error", f"{process.name}: {error!r}") from error

    def _halt(self, process: Process, error: FrameworkError) -> None:
        """End a process that was right to refuse its graph, or to halt; else that is a violation."""
        if not ((refused := is_refusal(process, error)) or (self.damaged and isinstance(error, Halted))):
            raise Violation("halted", f"{process.name}: {error}") from error
        self.seen["starts of another graph that were refused" if refused else "halts after a damage"] += 1
        if not refused:
            self._ended.add(process.task)
        self.kill(process, f"exit 4: {error}", restart=refused)

    def _tell(self, driver: TaskDriver) -> None:
        """At times, tell a task which time others have observed, or a later one: nothing relies on its being true."""
        if isinstance(driver.core, DeterministicCore) and self.rand() < TOLD:
            drivers = (process.driver for process in self._processes)
            observed = max(each.mode.observed for each in drivers if isinstance(each.core, DeterministicCore))
            driver.mode.observe(observed + int(10_000_000 * self.rand() ** 20))

    def _complete(self) -> bool:
        if self.checker.missing or not self._arrivals.over:
            return False
        return (
            self.checker.all_at_end()
            if self.plan.aligned or self.plan.deterministic
            else self.checker.nothing_missing()
        )

    def restart(self, task: int, delay: int, crash_at: int = 0, *, lurks: bool = False) -> None:
        """Start a process of the task after that many steps, if a damage has not ended it."""
        if task in self._ended:
            return
        self._restarts.append((self.step + delay, task, crash_at, lurks))

    def _start_due(self) -> None:
        self._twins.wake(self._processes, self.step, self.seen)
        for process in self._processes:
            if process.paused and process.worker.wake_at <= self.step:
                process.worker.paused = process.log.stalled = False
                self.trace.note(self.step, self.now, f"{process.name} goes on")
        if not self._restarts:
            return
        due = [entry for entry in self._restarts if entry[0] <= self.step]
        self._restarts = [entry for entry in self._restarts if entry[0] > self.step]
        for _, task, crash_at, lurks in due:
            self._started(task, self._builds.wiring, crash_at, lurks=lurks)

    def _started(
        self,
        task: int,
        wiring: Callable[[TaskWiring], TaskWiring],
        crash_at: int = 0,
        *,
        refused: bool = False,
        lurks: bool = False,
    ) -> None:
        """Start a process of a task, and of those that it hosts together with it. ``wiring``: as its build has it."""
        hosted = (task,) if refused or lurks else self.plan.together_with(task)
        worker = Worker[Process](self.log, self.ambush, split_producer_id(task)[1], self.rand)
        for each in hosted:
            self._number += 1
            wired = wiring(self.plan.wirings[each])
            process = Process(self._around, each, self._number, self.hosts.take(each), wired, worker, refused=refused)
            self.checker.ended_before[process.nonce] = self._arrivals.over
            process.lurks = lurks
            self._processes.append(process)
            self.trace.note(self.step, self.now, f"{process.name} starts on host {process.host.number}")
        self.seen["processes of several tasks"] += len(hosted) > 1
        if crash_at:
            worker.boundary.arm_crash(crash_at)

    def kill(self, process: Process, how: str, *, restart: bool = True) -> None:
        """End a task's process; it is started again if no other one of its tasks is awake or about to start."""
        if process not in self._processes:
            return  # it went with another task
        worker = process.worker
        for each in worker.tasks:
            self.trace.note(self.step, self.now, f"{each.name} {how}")
            if each.restoring:
                self.seen["crashes in a restore"] += 1
            self.seen["crashes between two slices of many"] += each.overlay.half_sent
            if each.overlay.half_applied:
                self.seen["crashes between two chunks of a checkpoint"] += 1
            self._count(each)
            self._processes.remove(each)
        self.seen += worker.unacknowledged(self.checker.histories)
        worker.log.die()
        for each in worker.tasks:
            each.close(self.rand)
        if restart and not self._has_other(self.plan.together_with(process.task)):
            self.restart(process.task, int(self.rand() * 25))

    def _has_other(self, tasks: tuple[int, ...]) -> bool:
        """Tell whether a process that hosts all of these is awake, or about to start."""
        if any(task in tasks and not (lurks and len(tasks) > 1) for _, task, _, lurks in self._restarts):
            return True
        return any(p.task == tasks[0] and len(p.worker.tasks) == len(tasks) for p in self.awake())

    def _count(self, process: Process) -> None:
        if not process.recorded:
            process.recorded = True
            self.seen += process.counted()

    def _hit(self) -> None:
        self.hits += 1

    def _fault(self, fault: Fault) -> None:
        awake, rand = self.awake(), own_rand(fault.draw)
        if not awake or (self.damaged and (self.checker.cut or fault.kind not in REVEALING)):
            return
        target = awake[int(rand() * len(awake))]
        what = FAULTS[fault.kind](self, target, rand)
        if not what:
            return
        if target.host.disk.changelog_position is not None and rand() < 0.5:
            target.host.backup = copy_of(target.host.disk)  # may come back with a later fault
        self.damaged = self.checker.damaged = self.damaged or fault.kind in {*DAMAGES, *LOGICAL_DAMAGES}
        if fault.kind not in WAITING:
            self._hit()
        text = f"{fault.number}. {fault.kind} at step {self.step}: {what}"
        self.seen[f"fault: {fault.kind}"] += 1
        self.faults.append(text)
        self.happened.append(fault.number)
        self.trace.note(self.step, self.now, f"FAULT {text}")

    def change_outputs(self, task: int) -> None:
        """Let the code of a task make other outputs than it did, in processes that start from now on."""
        self._around.changed.add(task)

    def must_halt(self, task: int) -> None:
        """Note that a damage hit what a task must make again: it halts, or the world was not watched over."""
        self._must_halt.add(task)

    def drop_queues(self, task: int) -> None:
        """Lose what dead processes of a task have sent and the log has not applied."""
        self.log.drop_queues(self.plan.wirings[task].changelog)

    def _end_faults(self) -> None:
        """From here on nothing goes wrong any more; zombies go on soon."""
        self.log.end_faults()
        self.ambush.count = 0
        for process in self._processes:
            process.boundary.disarm()
            process.log.lose_ack = process.store.corrupt = False
            process.sink_steps.sink_ms = 0
            process.worker.wake_at = min(process.worker.wake_at, self.step + 40)
        self._restarts = [(step, task, 0, False) for step, task, _, _ in self._restarts]

    # --- what the log reports -----------------------------------------------------------------------------------------

    def appended(self, partition: TopicPartition, offset: int, value: bytes, outputs: Sequence[ExternalRecord]) -> None:
        """Trace and check an internal message that is now in the log."""
        self.trace.message(self.step, self.now, partition, offset, value)
        self.checker.appended(partition, offset, value, outputs)

    def produced(self, record: ExternalRecord, offset: int, sender: object, *, late: bool) -> None:
        """Trace and check a plain record that is now in the log."""
        self.trace.note(self.step, self.now, f"{record.partition} {record.value!r}")
        self.checker.produced(record, offset, sender, late=late)

    def unmade(self, partition: TopicPartition, rows: Sequence[LogRow]) -> None:
        """Trace and forget messages that a power loss has taken back; who feeds the job sends his again."""
        self.trace.note(self.step, self.now, f"{partition} loses {len(rows)} messages")
        if partition in self.plan.inputs:
            self._arrivals.again(self.step, partition, rows)
        else:
            self.checker.unmade(partition, rows)

    def trimmed(self, partition: TopicPartition, before: int) -> None:
        """Trace and check a trim that is about to happen."""
        self.trace.note(self.step, self.now, f"{partition} is trimmed before {before}")
        self.checker.trimmed(partition, before)
