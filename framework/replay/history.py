"""The engine of recorded input: tasks run over a log and a clock in memory, each as if in a process of its own.

The test kit, its checks by crashes, ``grete check-determinism`` and a run of an incident use it. The core, the driver
and the task's code are those of a worker.
"""

import random
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from grete.api.store import Store
from grete.execution.build import assemble, store_names
from grete.execution.calls.ports import Caller
from grete.execution.engine.driver import TaskDriver
from grete.execution.job_task import JobTask
from grete.execution.records.topic_names import NamesInMemory
from grete.execution.sinks.sink_targets import MakeSinks, sinks_of
from grete.execution.timing.reserved_stores import META, STREAM_TIME
from grete.execution.timing.timers import NEVER
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import LogRow
from grete.protocol.changelog import InputDecision
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.protocol.notes import CallsNote, IdleNote
from grete.replay.recorded import State
from grete.replay.seeded import changelog_of, decided_after
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


class UntrimmedLog(MemoryLog):
    """Keeps what was read and sent, to be compared."""

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Do nothing."""


class MemoryHistory:
    """Recorded input in a log in memory, the clock, and the crashes to come. Tasks run over it.

    Time passes only in ``run``, and where ``now_ms`` is set.
    """

    def __init__(self, now_ms: int, connect: Callable[[MemoryLogData], MemoryLog] = MemoryLog) -> None:
        """Begin with an empty log. ``connect`` makes the connection of each process."""
        self.now_ms, self.connect = now_ms, connect
        self.data = MemoryLogData(lambda: self.now_ms)
        self.log = connect(self.data)
        self.faults = Faults()
        self.names = NamesInMemory(self.log)  # of all tasks, whose processes it outlives

    def put(self, partition: TopicPartition, start: int, rows: list[LogRow]) -> None:
        """Let a partition hold these rows, and no others."""
        into = self.data.partition(partition)
        into.start, into.rows, into.fence = start, rows, -1

    def begin_at(
        self,
        changelog: TopicPartition,
        commit: Commit,
        state: State,
        since: Iterable[InputDecision | IdleNote | CallsNote],
    ) -> None:
        """Let a changelog hold the state of a commit, and the decisions and results since: its task goes on there."""
        self.put(changelog, 0, [])
        for value in (*changelog_of(commit, state), *decided_after(since)):
            self.data.append(changelog, None, value, None, None)

    def work(self, tasks: Collection["HostedTask"]) -> Iterator["HostedTask"]:
        """Let tasks work in turn until none can while time does not pass. Yield whose step it was."""
        busy = True
        while busy:
            busy = False
            for task in tasks:
                for _ in task.work():
                    busy = True
                    yield task

    def run(
        self,
        tasks: Collection["HostedTask"],
        is_through: Callable[[], bool],
        *,
        step_ms: Callable[[], int],
        steps_max: int,
    ) -> bool:
        """Let tasks work, and time pass, until they are through; return False if that takes too many steps of time."""
        for _ in range(steps_max):
            for _ in self.work(tasks):
                pass
            if is_through():
                return True
            self.now_ms += step_ms()
        return False


@dataclass(slots=True)
class HostedTask:
    """One task: its place in the job, its disk, and while it lives its process."""

    job_task: JobTask
    settings: Settings
    history: MemoryHistory
    sinks: MakeSinks = sinks_of
    caller: Caller | None = None  # who makes the calls; None: calls at the pace of the clock
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    hosts: int = 1
    starts: int = 0
    process: TaskProcess | None = None
    ended: Counter[str] = field(default_factory=Counter)  # counters of processes that are gone
    ending: bool = False  # the job is drained

    @property
    def name(self) -> str:
        """Stage and partition."""
        return f"{self.job_task.stage.name}-{self.job_task.partition}"

    @property
    def status(self) -> str:
        """Return the status, for messages."""
        return "dead" if self.process is None else self.process.driver.core.status.name.lower()

    @property
    def counters(self) -> Counter[str]:
        """Return the counters of all processes of this task, added up."""
        if self.process is None:
            return self.ended
        return self.ended + self.process.driver.parts.counters + self.process.driver.core.seen

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
    def has_committed_all(self) -> bool:
        """Whether all that it was given is processed and committed. Only of a task that has nothing to do."""
        if self.process is None or not self.process.driver.running:
            return False
        outbox = self.process.driver.parts.runner.outbox
        if not self.process.driver.mode.settled or (outbox is not None and not outbox.settled):
            return False
        if self.process.driver.parts.inputs.event_time.has_news:
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

    def start(self) -> TaskProcess:
        """Start a process over what is on the disk."""
        history, (stage, topology, partition) = self.history, self.job_task
        log = history.connect(history.data)
        driver = assemble(
            stage,
            topology,
            partition,
            owner=0,
            log=log,
            store=MemoryStore(store_names(stage), self.disk),
            spill=MemorySpill(),
            settings=self.settings,
            mono_ms=lambda: float(history.now_ms),
            wall_us=lambda: history.now_ms * 1_000,
            sinks=self.sinks,
            caller=self.caller,
            names=history.names,
        )
        outbox = driver.parts.runner.outbox
        if outbox is not None:  # a host that is dropped lets go of its sinks, as the end of a process does
            weakref.finalize(driver, outbox.abandon)
        if self.ending:
            driver.end_inputs()
        self.process = TaskProcess(driver, log)
        self.starts += 1
        nonce = b"%16d" % self.starts  # different at each start of the task: that is what it is for
        driver.start(nonce=nonce, host=f"host-{self.hosts}", pid=self.starts, wall_ms=history.now_ms)
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

    def work(self) -> Iterator[None]:
        """Do all that there is to do now, or crash on the way: a step for each item."""
        process, faults = self.process or self.start(), self.history.faults
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

    def wind_up(self) -> Iterator[None]:
        """Do as ``work`` does, but start nothing; once the process has ended well, let it go."""
        process = self.process
        if process is None:
            return
        yield from self.work()
        if process.driver.exit is not None:
            self.crash()

    def due_in_ms(self) -> int:
        """Return in how many ms there may be something to do."""
        return 0 if self.process is None else int(self.process.driver.due_in_ms())

    @property
    def wall_timer_in_ms(self) -> int:
        """The ms until a wall-clock timer is due."""
        return NEVER if self.process is None else int(self.process.driver.parts.wall_timer_in_ms)

    def senders(self) -> Sequence[int]:
        """Return the producer ids of aligned tasks with records that are processed and not committed here."""
        return [] if self.process is None else self.process.driver.core.inputs.rollback_causes()

    def rows(self, store: Store[Any, Any]) -> Iterator[tuple[bytes, bytes]]:
        """Return (key, value) of what a store has on disk: only what is committed gets there (A9)."""
        ids = self.job_task.stage.store_ids()
        disk = MemoryStore({store_id: name for name, store_id in ids.items()}, self.disk)
        return unexpired_of(store, disk.scan(ids[store.name], b"", None), disk.get(META, STREAM_TIME))
