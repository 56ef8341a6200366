"""The seeded scheduler: processes tick, the log applies, time passes, faults happen; one thread, virtual time."""

import random
import sys
from collections import Counter, deque
from collections.abc import Callable

from grete.core.deterministic.task import DeterministicCore
from grete.errors import Fenced, FrameworkError, Halted, OffsetOutOfRange, StoreCorrupted, TransientError
from grete.execution.engine.driver import TaskDriver
from grete.logs.partition_reader import READABLE_S_MAX
from grete.stores.memory import MemoryDisk
from tests.verification.simulation.arrivals import Arrivals
from tests.verification.simulation.behaviour import behaviour_of
from tests.verification.simulation.boundary import Ambush, Crashed, FailsAlone, TurnWithoutEnd
from tests.verification.simulation.builds import Builds, check_refused, is_refusal
from tests.verification.simulation.disk import copy_of
from tests.verification.simulation.drain_checks import all_ended, all_read, check_drained
from tests.verification.simulation.end_checks import AsksForTheEnd
from tests.verification.simulation.fault_plan import DAMAGES, DRAIN, EMPTIED, FAULTY, LOGICAL_DAMAGES, REVEALING, Fault
from tests.verification.simulation.faults import FAULTS, WAITING, own_rand
from tests.verification.simulation.invariants import Checker
from tests.verification.simulation.log import SharedLog
from tests.verification.simulation.logical_checks import LogicalChecker
from tests.verification.simulation.loss_checks import checker_of
from tests.verification.simulation.oracle import Recorder, Violation
from tests.verification.simulation.plan import NEVER_IDLE_MS, Plan
from tests.verification.simulation.population import Population
from tests.verification.simulation.process import Process, Surroundings
from tests.verification.simulation.reports import Reports
from tests.verification.simulation.standbys import Standbys
from tests.verification.simulation.trace import Trace, WorldTime
from tests.verification.simulation.worker import Worker

REST = 100  # times the steps, at most, until all is committed: without room for early records it is read again for each
SETTLE = 60  # steps for what is late
RESTARTED = 0.2  # of the worlds are killed and started once more when all is done
TOLD_ENDS = 0.3  # of the turns of a process of a drained job it is told so
TOLD = 0.2  # of the turns of a deterministic task it is told which time others have observed


class Simulation:
    """The world of one seed. ``run`` raises Violation. ``tell`` takes a line for each event and action of each core."""

    rest = REST

    def __init__(self, plan: Plan, tell: Callable[[str], None] | None = None, *, checked: bool = True) -> None:
        self.plan = plan
        self.time = WorldTime()
        self.seen: Counter[str] = Counter()
        self.faults: list[str] = []  # those that happened, in words
        self.happened: list[int] = []  # their numbers
        self.hits = 0  # faults that hit something
        self.ambush = Ambush(self._hit)
        self.damaged = False  # something broke that the protocol relies on: to halt is right from now on
        self.must_halt: set[int] = set()  # tasks that cannot overlook a damage
        self.trace = Trace(self.time)
        self.rand = random.Random(f"run {plan.seed}").random
        self.log = SharedLog(lambda: self.time.now, self.rand, behaviour_of(plan))
        recorder = Recorder()
        make = checker_of(plan) if plan.settings.loses else LogicalChecker if plan.deterministic else Checker
        self.checker = make(plan, self.log, recorder)
        self.around = Surroundings(
            plan,
            self.log,
            self.checker,
            recorder,
            lambda: self.time.now,
            lambda: int(self.rand() * (1 << 32)),
            self.ambush,
            tell=tell,
            checked=checked,
        )
        self.log.hit = self._hit
        self._create_topics()
        self._arrivals = Arrivals(plan, self.log, self.rand, self.seen)
        self.log.observer = Reports(plan, self.trace, self.checker, self._arrivals)
        self._builds = Builds(plan)
        world = self.time, self.trace, self.rand, self.seen
        self.population = Population(self.around, self._builds, self._arrivals, *world)
        self.standbys = Standbys(self.around, self.population.hosts, self.time, self.trace, self.seen)
        self.population.promote = self.standbys.promote
        self._asks = AsksForTheEnd(plan.seed, self.log, self.checker.histories, self.seen)
        self._idle = 0
        self._late = 0.0
        self._faults = deque(plan.faults)
        self._faults_from = 0  # the step from which their times count

    def _create_topics(self) -> None:
        for partition in self.plan.partitions():
            self.log.add(partition, self.plan.external_start if partition in self.plan.inputs else 0)

    def run(self) -> None:
        """Run until everything is committed and the world is at rest."""
        while self.time.step <= self.plan.steps * FAULTY:  # the last fault included
            self._one_step()
        self._end_faults()
        if self.damaged:
            self._come_to_an_end()
            return
        for _ in range(SETTLE):  # zombies go on, and what is late arrives
            self._one_step()
        self._come_to_rest()
        if self.plan.drained:
            self._drain()
        if self.rand() < RESTARTED:
            for process in list(self.population.all):
                self.population.kill(process, "killed at the end")
            self._come_to_rest()
        self.checker.finish()
        self.standbys.finish()
        self.population.count_all()

    def _drain(self) -> None:
        """Let all inputs end, with some faults meanwhile, until nothing waits for a later time (E7)."""
        histories = self.checker.histories.values()
        self.seen["drains that close windows or intervals"] += any(history.waits for history in histories)
        self.log.inputs_end = True
        self.log.repeats.clear()
        self._faults, self._faults_from = deque(self.plan.drain_faults), self.time.step
        while self.time.step <= self._faults_from + self.plan.steps * DRAIN:
            self._one_step()
        self._end_faults()
        for _ in range(SETTLE):
            self._one_step()
        self._come_to_rest()
        check_drained(histories)

    def _come_to_rest(self) -> None:
        """Run until everything is committed, and each task has closed one more checkpoint, if idle ones do.

        While outputs come, tasks have more time: with little room for early records, one that is far behind in a
        stream of several producers reads what lies between them again for each frame. So they have while one that is
        behind sends a large checkpoint, a message for each key.
        """
        histories, limit = self.checker.histories.values(), self.time.step + self.plan.steps * self.rest
        idle = self.plan.settings.idle_checkpoint_interval_ms != NEVER_IDLE_MS
        before = [history.checkpoint_id if idle else -1 for history in histories]
        missing, unsent = len(self.checker.missing), sys.maxsize
        while not self._complete() or any(h.checkpoint_id <= v for h, v in zip(histories, before, strict=True)):
            for _ in range(20):
                self._one_step()
            if self.time.step > limit and len(self.checker.missing) < missing:
                missing, limit = len(self.checker.missing), self.time.step + self.plan.steps * self.rest
            if self.time.step > limit and 0 < (now := self._unsent()) < unsent:
                unsent, limit = now, self.time.step + self.plan.steps * self.rest
            if self.time.step > limit and not idle and self.population.end_replaced():
                limit = self.time.step + self.plan.steps * self.rest
            if self.time.step > limit:
                stuck = {p.name: (p.core.status.name, p.core.frozen) for p in self.population.all}
                first = sorted(self.checker.missing)[:3]
                raise Violation("liveness", f"{len(self.checker.missing)} outputs are missing: {first}; {stuck}")

    def _unsent(self) -> int:
        """Return the number of writes of a frozen checkpoint that the tasks furthest behind are still to send."""
        histories = self.checker.histories
        last = min(history.checkpoint_id for history in histories.values())
        last_ones = (each for each in self.population.all if histories[each.task].checkpoint_id == last)
        return sum(each.overlay.frozen.unsent_count for each in last_ones)

    def _come_to_an_end(self) -> None:
        """After a damage nothing needs to be complete; what is not must have been noticed.

        A task that reads what the log has acknowledged and lost halts when its reader has given up, so time leaps once.
        One that cannot overlook the damage is waited for: it may be killed before it reads, while another halts.
        """
        ended, limit, leapt = self.population.ended, self.time.step + self.plan.steps * self.rest, False
        while not (self.must_halt <= ended and (ended or self._complete())) and (self.time.step < limit or not leapt):
            if self.time.step >= limit:
                self.time.now += int(READABLE_S_MAX * 1_000)
                limit, leapt = limit + self.plan.steps * self.rest, True
            self._one_step()
        complete = self._complete()
        for _ in range(SETTLE):
            self._one_step()
        if not self.must_halt <= ended:
            raise Violation("unnoticed", f"tasks {sorted(self.must_halt - ended)} go on behind a damage")
        self.seen["damages that no task needed to notice"] += complete and not ended
        if not (complete or ended or self.seen["exit 1 by OffsetOutOfRange"]):
            raise Violation("liveness", "something was lost, and no task halts")

    def _one_step(self) -> None:
        self.time.step += 1
        if self.time.now >= self.log.away_until:
            self._arrivals.feed(self.time.step)
        self.population.start_due()
        if wrong := self._builds.due(self.time.step, () if self.damaged else self.checker.histories.values()):
            self.population.start_refused(*wrong)
        while self._faults and self._faults[0].at * self.plan.steps <= self.time.step - self._faults_from:
            self._fault(self._faults.popleft())
        busy, awake, tasks = False, self.population.awake(), 1
        if awake:
            worker = awake[int(self.rand() * len(awake))].worker
            tasks = len(worker.tasks)
            busy = self._turn(worker)
        self.standbys.step()
        for _ in range(int(self.rand() * 8) * tasks):  # each has had a turn: the log keeps up with what they send
            if not self.log.queues:
                break
            busy = self.log.pump() or busy
        if self.log.repeats and self.rand() < 0.03:
            self.log.repeat(int(self.rand() * len(self.log.repeats)))
        self._pass_time(busy, len(awake))
        if self.plan.unkind.strangers:
            self._asks.step()

    def _pass_time(self, busy: bool, awake: int) -> None:
        interval = self.plan.settings.checkpoint_interval_ms
        self._late += self.rand() * interval * self.plan.pace / (3 + 3 * awake)
        self._idle = 0 if busy else self._idle + 1
        if self._idle > awake:
            self._idle, self._late = 0, self._late + interval / 2
        self.time.now += int(self._late)
        for coordinator in self.log.coordinators.values():
            coordinator.pass_time(self.time.now)
        self.log.trim_due()
        self.log.end_transactions()
        self._late -= int(self._late)

    def _turn(self, worker: Worker[Process]) -> bool:
        """Let a process do a few things; True if it did any."""
        worker.boundary.begin_turn()
        try:
            if not worker.started:
                worker.start(self.time.now)
                return True
            if worker.stop_by and self.time.now > worker.stop_by:
                self.population.kill(worker.tasks[0], "stop timed out")
                return True
            for process in worker.tasks:
                self._tell(process.driver)
            if self.log.inputs_end and self.rand() < TOLD_ENDS:
                for process in worker.tasks:
                    process.driver.end_inputs()
            self.population.start_again(worker)
            worker.turn()
            self._take_ended(worker)
            for process in worker.tasks:
                if process.overlay.half_sent and process.rolls_back:
                    self.seen["rollbacks asked for between two slices of many"] += 1
                if process.lurks and process.about_to_claim:
                    self.population.twins.lurk(process, self.time.step)
                if process.refused:
                    check_refused(process)
            if worker.over:
                self.seen["graceful stops"] += 1
                self.population.kill(worker.tasks[0], "exit 0")
        except Crashed:
            self.seen[f"crash {worker.boundary.where}"] += 1
            self.population.kill(worker.tasks[0], f"crashed {worker.boundary.where}")
        except TurnWithoutEnd as error:
            raise Violation("liveness", str(error)) from error
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it ends the process
            self._failed(worker, worker.whose(error), error)
        return worker.busy

    def _take_ended(self, worker: Worker[Process]) -> None:
        """Take out the tasks that an error of their own has ended: the others go on, if there are some."""
        ended = [] if worker.loop is None else worker.loop.ended
        while ended:
            driver, error = ended.pop(0)
            process = next(each for each in worker.tasks if each.driver is driver)
            if len(worker.tasks) == 1 or not isinstance(error, Fenced | StoreCorrupted):
                self._failed(worker, process, error)
                return
            if isinstance(error, Fenced):
                self.seen["fenced"] += 1
                self.checker.fenced(process.task, process.core.generation, process.nonce, str(error))
                self.population.fail_alone(process, "is fenced", None)
                continue
            if not (isinstance(error, FailsAlone) and not error.damaged):
                process.host.replace(MemoryDisk())  # as a worker does: the changelog is the truth
            self.population.fail_alone(process, f"fails: {error}", int(self.rand() * 25))

    def _failed(self, worker: Worker[Process], process: Process, error: Exception) -> None:
        """End a process by an error of one of its tasks, or raise Violation: it is one that must not be."""
        self.seen["tasks that end by the error of another"] += len(worker.tasks) - 1
        match error:
            case Fenced():
                self.seen["fenced"] += 1
                self.checker.fenced(process.task, process.core.generation, process.nonce, str(error))
                self.population.kill(process, "exit 3")
            case TransientError() | OffsetOutOfRange() | StoreCorrupted():
                self.seen[f"exit 1 by {type(error).__name__}"] += 1
                for each in worker.tasks if isinstance(error, StoreCorrupted) else ():
                    each.host.replace(MemoryDisk())  # as a worker does: the changelog is the truth
                self.population.kill(process, f"exit 1: {error}")
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
            self.population.ended.add(process.task)
        self.population.kill(process, f"exit 4: {error}", restart=refused)

    def _tell(self, driver: TaskDriver) -> None:
        """At times, tell a task which time others have observed, or a later one: nothing relies on its being true."""
        if isinstance(driver.core, DeterministicCore) and self.rand() < TOLD:
            drivers = (process.driver for process in self.population.all)
            observed = max(each.mode.observed for each in drivers if isinstance(each.core, DeterministicCore))
            driver.mode.observe(observed + int(10_000_000 * self.rand() ** 20))

    def _complete(self) -> bool:
        if self.checker.missing or not self._arrivals.over:
            return False
        if self.log.inputs_end:
            drained = {process.task for process in self.population.all if process.is_drained}
            if not all_ended(self.checker.histories.values(), drained):
                return False
        if self.plan.aligned or self.plan.deterministic:
            return self.checker.all_at_end()
        read = not self.plan.drained or all_read(self.checker.histories.values(), self.log)
        return read and self.checker.nothing_missing()

    def _hit(self) -> None:
        self.hits += 1

    def _fault(self, fault: Fault) -> None:
        awake, rand = self.population.awake(), own_rand(fault.draw)
        if not awake or (self.damaged and (self.checker.cut or fault.kind not in REVEALING)):
            return
        target = awake[int(rand() * len(awake))]
        what = FAULTS[fault.kind](self, target, rand)
        if not what:
            return
        if target.host.disk.changelog_position is not None and rand() < 0.5:
            target.host.backup = copy_of(target.host.disk)  # may come back with a later fault
        self.damaged = self.checker.damaged = self.damaged or fault.kind in {*DAMAGES, *LOGICAL_DAMAGES, EMPTIED}
        if fault.kind not in WAITING:
            self._hit()
        text = f"{fault.number}. {fault.kind} at step {self.time.step}: {what}"
        self.seen[f"fault: {fault.kind}"] += 1
        self.faults.append(text)
        self.happened.append(fault.number)
        self.trace.note(f"FAULT {text}")

    def _end_faults(self) -> None:
        """From here on nothing goes wrong any more; zombies go on soon."""
        self.log.end_faults()
        self.ambush.count = 0
        self.standbys.quiet = True
        self.population.end_faults()
