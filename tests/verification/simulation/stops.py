"""A world in which nothing goes wrong, and then all processes are asked to stop (R6).

python -m tests.verification.simulation.stops FIRST BEHIND     # seeds, each in all its worlds
"""

import random
import sys
from collections.abc import Callable
from dataclasses import replace

from grete.core.lifecycle import TaskStatus
from tests.verification.simulation.fault_plan import FAULTY
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.plan import WORLDS, Plan, World
from tests.verification.simulation.run import small_world
from tests.verification.simulation.scheduler import REST, Simulation
from tests.verification.simulation.world import make_plan

HALVES_MAX = 6  # of an interval, in which no process had anything to do: a stop waits for no more than three intervals
GAP_STEPS_MAX = 40  # between two processes that are asked: signals and turns of a loaded machine are not at one time


class StoppedWorld(Simulation):
    """Records come, all tasks run, then each process is asked to stop, in any order. Each must end soon."""

    halves_max = HALVES_MAX

    def __init__(self, plan: Plan, tell: Callable[[str], None] | None = None) -> None:
        unkind = replace(plan.unkind, late_ms=0)  # a log that shows late what it has takes its own time
        quiet = replace(plan, faults=(), drained=False, unkind=unkind)
        super().__init__(quiet, tell)
        self._own = random.Random(f"stop {plan.seed}")
        self._halves = 0  # of an interval for which all have waited, since the last was asked

    def run(self) -> None:
        """Run for a while, stop all, start all again, and run to the end. Raises Violation."""
        while not self._all_run():
            self._one_step()
        self._end_faults()  # sinks are quick, too
        until = self.time.step + self._own.random() * FAULTY * self.plan.steps
        while self.time.step < until:
            self._one_step()
        self._stop_all()
        for task in self.plan.wirings:
            if task == self.plan.together_with(task)[0]:
                self.population.restart(task, 0)
        self._come_to_rest()
        self.checker.finish()
        self.population.count_all()

    def _all_run(self) -> bool:
        running = {process.task for process in self.population.all if process.core.status is TaskStatus.RUNNING}
        return running == set(self.plan.wirings)

    def _stop_all(self) -> None:
        workers = list(dict.fromkeys(process.worker for process in self.population.all))
        self._own.shuffle(workers)
        restart, self.population.restart = self.population.restart, lambda *_, **__: None
        for worker in workers:
            worker.stop(1 << 62)
            for _ in range(int(self._own.random() * GAP_STEPS_MAX)):
                self._one_step()
        self._halves, limit = 0, self.time.step + self.plan.steps * REST
        while self.population.all:
            self._one_step()
            if self._halves > self.halves_max or self.time.step > limit:
                stuck = {p.name: (p.core.status.name, p.core.frozen) for p in self.population.all}
                raise Violation("liveness", f"asked to stop, and all alive, these go on: {stuck}")
        self.population.restart = restart

    def _pass_time(self, busy: bool, awake: int) -> None:
        self._halves += not busy and self._idle >= awake
        super()._pass_time(busy, awake)


def run_stopped(seed: int, world: World) -> StoppedWorld:
    """Run a world of a seed, stopped once. Raises Violation."""
    plan = make_plan(seed, world=world)
    with small_world(plan.knobs):
        stopped = StoppedWorld(plan)
        stopped.run()
    return stopped


def _main() -> int:
    failed = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        for world in WORLDS:
            try:
                run_stopped(seed, world)
            except Violation as error:
                failed += 1
                print(f"seed {seed}, {world}: {error}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(1, _main()))
