"""Tasks in memory, each as if in a process of its own: what a crash takes and what it leaves."""

import random
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from grete.api.jobs.graph import StageGraph
from grete.api.store import Store
from grete.core.graph.topology import Topology
from grete.execution.build import assemble, store_names
from grete.execution.calls.ports import Caller
from grete.execution.engine.driver import TaskDriver
from grete.execution.sinks.sink_targets import MakeSinks, sinks_of
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.execution.timing.timers import NEVER
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.settings import Settings
from grete.state.read.live_entries import unexpired_of
from grete.stores.memory import MemoryDisk, MemoryStore
from grete.stores.spill import MemorySpill

ODDS = 40  # steps of a task per crash: few enough that a task seldom gets through a whole checkpoint


class Faults:
    """Crashes still to come: at moments that a seed chooses, or behind a step of a number."""

    def __init__(self) -> None:
        """No crash will come until one is asked for."""
        self.steps = 0  # taken by all tasks so far
        self.left = 0  # crashes at moments of the seed's choice
        self.struck: list[str] = []  # the tasks that were crashed
        self._random = random.Random(0)  # noqa: S311  # a choice that can be repeated is the point
        self._planned: dict[int, bool] = {}  # number of a step → whether the crash behind it takes the disk

    def draw(self, crashes: int, seed: int) -> None:
        """Let the seed choose the moments of this many crashes."""
        self.left = crashes
        self._random = random.Random(seed)  # noqa: S311  # a choice that can be repeated is the point

    def plan(self, step: int, *, other_host: bool) -> None:
        """Crash behind this step."""
        self._planned[step] = other_host

    def strike(self, task: "HostedTask", *, step: bool = True) -> bool:
        """Crash the task now if that is its turn; return whether it was. Not a ``step``: it had nothing to do."""
        self.steps += step
        other_host = self._planned.pop(self.steps, None) if step else None
        if other_host is None:
            if self.left == 0 or self._random.randrange(ODDS):
                return False
            self.left -= 1
            other_host = self._random.randrange(3) == 0
        self.struck.append(task.name)
        task.crash(other_host=other_host)
        return True


@dataclass(slots=True)
class TaskProcess:
    """The part of a task that a crash destroys."""

    driver: TaskDriver
    log: MemoryLog


@dataclass(slots=True)
class HostedTask:
    """One task: its place in the job, its disk, and while it lives its process."""

    graph: StageGraph
    topology: Topology
    partition: int
    settings: Settings
    clock: Callable[[], int]
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    hosts: int = 1
    starts: int = 0
    process: TaskProcess | None = None
    ended: Counter[str] = field(default_factory=Counter)  # counters of processes that are gone
    connect: Callable[[MemoryLogData], MemoryLog] = MemoryLog
    sinks: MakeSinks = sinks_of
    caller: Caller | None = None  # who makes the calls; None: calls at the pace of the clock
    ending: bool = False  # the job is drained

    @property
    def name(self) -> str:
        """Stage and partition."""
        return f"{self.graph.name}-{self.partition}"

    @property
    def status(self) -> str:
        """Return the status, for messages."""
        return "dead" if self.process is None else self.process.driver.core.status.name.lower()

    @property
    def counters(self) -> Counter[str]:
        """Return the counters of all processes of this task, added up."""
        if self.process is None:
            return self.ended
        return self.ended + self.process.driver.counters + self.process.driver.core.seen

    @property
    def checkpoint_id(self) -> int:
        """The last checkpoint that was committed, or left out since nothing was new; -1: none."""
        core = None if self.process is None else self.process.driver.core
        if core is None or core.commits.committed is None:
            return -1
        return core.idleness.closed(core.commits.committed.checkpoint_id)

    @property
    def covered_t(self) -> int:
        """The logical time up to which the last commit has everything; 0: not known."""
        return 0 if self.process is None else self.process.driver.core.covered_t

    @property
    def idle_in(self) -> int | None:
        """See the driver's."""
        return None if self.process is None else self.process.driver.idle_in

    @property
    def ended_in(self) -> int | None:
        """See the driver's."""
        return None if self.process is None else self.process.driver.ended_in

    @property
    def settled(self) -> bool:
        """Whether all that it was given is processed and committed. Only of a task that has nothing to do."""
        if self.process is None or not self.process.driver.running:
            return False
        outbox = self.process.driver.outbox
        if not self.process.driver.mode.settled or (outbox is not None and not outbox.settled):
            return False
        if self.process.driver.event_time.has_news:
            return False
        core, log = self.process.driver.core, self.process.log
        if core.commits.committed is None or core.commits.pending is not None:
            return False
        if core.inputs.holds_input:
            return False
        external = {(entry.topic, entry.partition): entry.offset for entry in core.commits.committed.external}
        return all(
            external.get(place) == offset == log.bounds(place)[1] for place, offset in core.external.position.items()
        )

    def start(self, data: MemoryLogData) -> TaskProcess:
        """Start a process over what is on the disk."""
        settings, clock, log = self.settings, self.clock, self.connect(data)
        driver = assemble(
            self.graph,
            self.topology,
            self.partition,
            owner=0,
            log=log,
            store=MemoryStore(store_names(self.graph), self.disk),
            spill=MemorySpill(),
            settings=settings,
            mono_ms=lambda: float(clock()),
            wall_us=lambda: clock() * 1_000,
            sinks=self.sinks,
            caller=self.caller,
        )
        if driver.outbox is not None:  # a host that is dropped lets go of its sinks, as the end of a process does
            weakref.finalize(driver, driver.outbox.abandon)
        if self.ending:
            driver.end_inputs()
        self.process = TaskProcess(driver, log)
        self.starts += 1
        nonce = b"%16d" % self.starts  # different at each start of the task: that is what it is for
        driver.start(nonce=nonce, host=f"host-{self.hosts}", pid=self.starts, wall_ms=clock())
        return self.process

    def crash(self, *, other_host: bool = False) -> None:
        """End the process between two steps; with ``other_host`` the next one finds an empty disk."""
        self.ended = self.counters
        if self.process is not None:
            self.process.driver.abandon()
        self.process = None
        if other_host:
            self.disk = MemoryDisk()
            self.hosts += 1

    def work(self, data: MemoryLogData, faults: Faults) -> Iterator[None]:
        """Do all that there is to do now, or crash on the way: a step for each item."""
        process = self.process or self.start(data)
        idle = True
        try:
            while process is self.process and process.driver.tick():
                idle = False
                crashed = faults.strike(self)
                yield
                if crashed:
                    return
            if process is not self.process:  # crashed from outside, between two steps
                return
            deliveries = process.log.poll()
            for delivery in deliveries:
                process.driver.delivered(delivery)
            if deliveries:
                faults.strike(self)
                yield
            elif idle and faults.strike(self, step=False):  # it does next to nothing, and may die all the same
                yield
        except Exception:
            self.crash()
            raise

    def end_inputs(self) -> None:
        """Let the inputs end, for this process and those after it (E7)."""
        self.ending = True
        if self.process is not None:
            self.process.driver.end_inputs()

    def stop(self) -> None:
        """Ask for a graceful stop."""
        if self.process is not None:
            self.process.driver.stop()

    def wind_up(self, data: MemoryLogData, faults: Faults) -> Iterator[None]:
        """Do as ``work`` does, but start nothing; once the process has ended well, let it go."""
        process = self.process
        if process is None:
            return
        yield from self.work(data, faults)
        if process.driver.exit is not None:
            self.crash()

    def due_in_ms(self) -> int:
        """Return in how many ms there may be something to do."""
        return 0 if self.process is None else int(self.process.driver.due_in_ms())

    @property
    def wall_timer_in_ms(self) -> int:
        """In how many ms a wall-clock timer is due."""
        return NEVER if self.process is None else int(self.process.driver.parts.wall_timer_in_ms)

    def senders(self) -> Sequence[int]:
        """Return the producer ids of aligned tasks with records that are processed and not committed here."""
        return [] if self.process is None else self.process.driver.core.inputs.rollback_causes()

    def rows(self, store: Store[Any, Any]) -> Iterator[tuple[bytes, bytes]]:
        """Return (key, value) of what a store has on disk: only what is committed gets there (A9)."""
        ids = self.graph.store_ids()
        disk = MemoryStore({store_id: name for name, store_id in ids.items()}, self.disk)
        return unexpired_of(store, disk.scan(ids[store.name], b"", None), disk.get(META, STREAM_TIME))


def work_all(tasks: Collection[HostedTask], data: MemoryLogData, faults: Faults) -> Iterator[HostedTask]:
    """Let all tasks work in turn until none can while time does not pass. Yield whose step it was."""
    busy = True
    while busy:
        busy = False
        for task in tasks:
            for _ in task.work(data, faults):
                busy = True
                yield task
