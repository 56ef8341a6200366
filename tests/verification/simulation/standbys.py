"""The standbys of a simulated world: the real one over the simulated log, on hosts that a task may start on (R7).

They crash, sleep, and come back on their own store, on an older copy of it or on an empty one. A process of the task
that starts may take a standby's store: it must find there what a restore gives.
"""

import random
from collections import Counter
from collections.abc import Sequence

from grete.core.lifecycle import StandbyPhase
from grete.errors import TransientError
from grete.execution.build import store_names
from grete.execution.changelog.standby import StandbyTask
from grete.ports import Write
from grete.protocol.changelog_position import decode_changelog_position
from grete.stores.memory import MemoryDisk
from tests.verification.simulation.boundary import Ambush, Boundary, Crashed
from tests.verification.simulation.connection import SimLog
from tests.verification.simulation.disk import Host, Hosts, SimStore, copy_of
from tests.verification.simulation.oracle import Violation
from tests.verification.simulation.process import Surroundings
from tests.verification.simulation.stage_codes import stage_code
from tests.verification.simulation.store_checks import check_standby
from tests.verification.simulation.trace import Trace, WorldTime
from tests.verification.simulation.usercode import stage_graph

OF_NO_TASK = -1  # the number under which standbys look into the log: they are none of a task's processes
PROMOTED = 0.6  # of the starts of a task that has a standby take its store
CRASHES, SLEEPS = 0.02, 0.004  # of its turns
STALE = 0.15  # of the restarts find an older store, or none
TURNS_MAX = 20_000  # of a standby that is left alone, until it has all, and for each message of its changelog some:
TURNS_EACH = 4  # read alone, judged, and applied or its commit, with its position
AWAY_MS = 50  # between two of its looks


class SimStandby:
    """A standby in a process of its own, on a host."""

    def __init__(self, around: Surroundings, task: int, host: Host, seen: Counter[str]) -> None:
        self.host = host
        self.boundary = Boundary(Ambush(lambda: None))
        self.log = SimLog(around.log, self.boundary, OF_NO_TASK)
        self.log.tasks = (OF_NO_TASK,)
        self._around, self._task, self._seen = around, task, seen
        stores = store_names(stage_graph(stage_code(around.plan, task)))
        self.store = SimStore(stores, host, self.boundary, self._written)
        batch_bytes_max = around.plan.settings.batch_bytes_max
        wiring = around.plan.wirings[task]
        self.standby = StandbyTask(wiring, self.log, self.store, batch_bytes_max=batch_bytes_max, mono_ms=around.now)
        host.in_use = True

    def _written(self, writes: Sequence[Write], changelog_position: bytes | None) -> None:
        self._seen["changelog positions of standbys"] += 1
        check_standby(self._around.checker.histories[self._task], self.host.disk, writes, changelog_position)

    def tick(self) -> bool:
        """Do the next thing."""
        self.boundary.begin_turn()
        more = self.standby.tick()
        if self.standby.phase is StandbyPhase.STOPPED:
            raise Violation("standby", self.standby.trouble)
        return more

    def end(self, rand: random.Random) -> None:
        """The process is gone, with what it had loaded and not flushed."""
        self.store.crash(rand.random)
        self.host.in_use = False
        for what in ("wipes", "standbys overtaken by a trim"):
            self._seen[what if what != "wipes" else "wipes of standbys"] += self.standby.counters[what]


class Standbys:
    """One of each task of a world that has standbys. They draw by themselves: all else goes on as without them."""

    def __init__(self, around: Surroundings, hosts: Hosts, time: WorldTime, trace: Trace, seen: Counter[str]) -> None:
        self._around, self._hosts, self._time, self._trace, self._seen = around, hosts, time, trace, seen
        self._rand = random.Random(f"standbys {around.plan.seed}")
        self._pace = self._rand.choice((1.0, 0.4, 0.05))  # turns in a step: a slow one is overtaken by trims
        self._running: dict[int, SimStandby] = {}
        self._due = dict.fromkeys(
            around.plan.wirings if around.plan.standbys else (), 0
        )  # task → step of its next turn
        self.quiet = False  # nothing goes wrong any more

    def step(self) -> None:
        """Let the standby of some task do a few things, or start."""
        if not self._due or self._rand.random() >= self._pace:
            return
        task = self._rand.choice(list(self._due))
        if self._due[task] > self._time.step:
            return
        if task not in self._running:
            self._start(task)
            return
        standby, r = self._running[task], self._rand.random()
        if not self.quiet and r < CRASHES:
            standby.boundary.arm_crash(1 + self._rand.randrange(12))
        elif not self.quiet and r < CRASHES + SLEEPS:
            self._due[task] = self._time.step + self._rand.randrange(400)
        try:
            for _ in range(1 + self._rand.randrange(12)):
                if not standby.tick():
                    return
        except Crashed:
            self._seen["crashes of standbys"] += 1
            self.kill(task, f"crashed {standby.boundary.where}")
        except TransientError as error:
            self.kill(task, f"exit 1: {error}")

    def _start(self, task: int) -> None:
        host = self._hosts.take(task)
        if not self.quiet and self._rand.random() < STALE:
            old = host.backup
            host.replace(MemoryDisk() if old is None or self._rand.random() < 0.3 else copy_of(old))
        self._running[task] = SimStandby(self._around, task, host, self._seen)
        self._trace.note(f"standby of {self._around.plan.wirings[task].name} starts on host {host.number}")

    def kill(self, task: int, how: str) -> Host | None:
        """End the standby of a task, if it has one; another one starts later. Return its host."""
        standby = self._running.pop(task, None)
        if standby is None:
            return None
        self._trace.note(f"standby of {self._around.plan.wirings[task].name} {how}")
        standby.end(self._rand)
        if standby.host.disk.changelog_position is not None and self._rand.random() < 0.3:
            standby.host.backup = copy_of(standby.host.disk)
        self._due[task] = self._time.step + self._rand.randrange(60)
        return standby.host

    def kill_all(self) -> None:
        """All machines lose their power."""
        for task in list(self._running):
            self.kill(task, "lost its power")

    def promote(self, task: int) -> Host | None:
        """Return the host of a standby whose store a process of the task takes now, at times; None: of no standby."""
        if task not in self._running or self._rand.random() >= PROMOTED:
            return None
        host = self.kill(task, "is promoted")
        assert host is not None
        position, history = host.disk.changelog_position, self._around.checker.histories[task]
        self._seen["promoted standbys"] += position is not None
        if position is not None and decode_changelog_position(position).checkpoint_id == history.checkpoint_id:
            self._seen["promoted standbys that had all that was committed"] += 1
        return host

    def finish(self) -> None:
        """Let each standby have all that is committed: no crash may have left one that cannot go on."""
        for task in self._due:
            if task not in self._running:
                self._start(task)
            standby, history = self._running[task], self._around.checker.histories[task]
            standby.boundary.disarm()
            for _ in range(TURNS_MAX + TURNS_EACH * self._around.log.partition(history.wiring.changelog).end):
                if not standby.tick():
                    self._time.now += AWAY_MS
                    if standby.standby.progress.checkpoint_id == history.checkpoint_id:
                        break
            else:
                raise Violation(
                    "standby",
                    f"{history.wiring.name} has committed {history.checkpoint_id}, its standby does not get beyond "
                    f"{standby.standby.progress}",
                )
            self._seen["standbys that have all at the end"] += 1
        for task in list(self._running):
            self.kill(task, "ends")
