"""A task as its worker hosts it: its store, its driver, and how both are given up while the process goes on."""

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from traceback import clear_frames

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.graph.task_topology import wire
from grete.errors import Fenced, FrameworkError, StoreCorrupted
from grete.execution.build import assemble
from grete.execution.calls.shared import shared_calls
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.joint_progress import JointProgress
from grete.execution.records.topic_names import TopicNames
from grete.execution.sinks.outbox_executor import ThreadExecutor
from grete.job.directory import JobDirectory
from grete.job.key_check import JobKeys
from grete.ports import Log
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from grete.stores.spill import FileSpill
from grete.stores.store_directory import wipe_directory
from grete.worker.process.store_filling import StoreFilling
from grete.worker.process.task_store import open_task_store


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The shared resources of a process's tasks. ``keys`` checks the keys of external inputs; None: no check."""

    job: Job
    log: Log
    job_directory: JobDirectory
    settings: Settings
    memory: RocksMemory
    mono_ms: Callable[[], float]
    keys: JobKeys | None
    joint: JointProgress
    names: TopicNames | None = None
    owners: Iterator[int] = field(default_factory=itertools.count)  # one for each life of a task: see WorkerTask.life
    fetching: set[Path] = field(default_factory=set)  # directories of stores whose snapshot a thread still fetches


class WorkerTask:
    """Task ``partition`` of a stage: ``open`` it for each of its lives, and ``give_up`` each that ends alone."""

    def __init__(self, graph: StageGraph, partition: int, shared: SharedParts) -> None:
        self.name = f"{graph.name}-{partition}"
        self.wiring = wire(shared.job.topology(), graph.ordinal, partition)
        self.directory = shared.job_directory.state(self.name)
        self.life = -1  # by which the log knows its sends: answers to the one before may still come
        self._graph, self._partition, self._shared = graph, partition, shared
        self._executor = ThreadExecutor()  # of all lives: a sink's step under way at an end comes before others
        self._store: RocksStore | None = None
        self._spill: FileSpill | None = None
        self._filling: StoreFilling | None = None

    def store_names(self) -> dict[int, str]:
        """Return the names of its stores by their ids."""
        return {number: name for name, number in self._graph.store_ids().items()}

    def open(self) -> TaskDriver:
        """Open the store, and return a new driver. Raises ConfigError, TransientError."""
        if self.life >= 0:
            self.leave()
        shared, graph = self._shared, self._graph
        self.life = next(shared.owners)
        self._store, taker = open_task_store(
            shared.job, graph, self._partition, shared.job_directory, shared.log, shared.memory
        )
        self._filling = StoreFilling(taker, shared.settings.liveness_timeout_ms, shared.mono_ms, shared.fetching)
        self._filling.begin(shared.settings.snapshot_url, self._store, self.directory)
        self._spill = FileSpill(self.directory.with_name(f"{self.directory.name}.early"))
        return assemble(
            graph,
            shared.job.topology(),
            self._partition,
            owner=self.life,
            log=shared.log,
            store=self._store,
            spill=self._spill,
            settings=shared.settings,
            mono_ms=shared.mono_ms,
            executor=self._executor,
            check_keys=None if shared.keys is None else shared.keys.check_of(graph, self._partition),
            caller=shared_calls() if graph.awaits else None,
            gathers=True,
            joint=shared.joint,
            names=shared.names,
        )

    def give_up(self, driver: TaskDriver, error: FrameworkError | None, in_use: Collection[TopicPartition]) -> None:
        """Let go of all that the task held, as the end of its process would; what it has sent may still arrive.

        ``error``: that has ended it, None: it was to go. ``in_use``: what other tasks read. A store that is damaged is
        wiped: the changelog is the truth.
        """
        self.stop_filling()
        if error is not None:
            _let_go(error)
        in_flight = driver.parts.runner.in_flight
        if in_flight is not None:
            in_flight.clear()
        if (outbox := driver.parts.runner.outbox) is not None:
            self._executor.submit(outbox.abandon)
        self.close()
        if self._spill is not None:
            self._spill.close()
        if isinstance(error, StoreCorrupted):
            wipe_directory(self.directory)
        for partition in {*driver.parts.inputs.partitions, self.wiring.changelog}.difference(in_use):
            self._shared.log.leave(partition)
        if isinstance(error, Fenced):
            self.leave()

    @property
    def filled(self) -> bool:
        """Whether the store is as the task begins with it: no snapshot is on its way. Raises TransientError."""
        return self._filling is None or self._filling.over()

    def stop_filling(self) -> None:
        """Begin with the store as it is."""
        if self._filling is not None:
            self._filling.stop()

    def leave(self) -> None:
        """Give up what the client of the log has for the last life alone: all of that is answered, or of no use."""
        give_up = getattr(self._shared.log, "give_up", None)  # the embedded log has nothing
        if give_up is not None:
            give_up(self.life, self.wiring.changelog)

    def end(self) -> None:
        """Let go of all that is left: the task does not come back, or as another one."""
        self.leave()
        self._executor.end()

    def close(self) -> None:
        """Release the store. A second close does nothing."""
        if self._store is not None:
            self._store.close()


def _let_go(error: BaseException | None) -> None:
    """Forget what the calls that an error went through held: a store that one of them reads would stay open."""
    known = set[int]()  # causes may go in a circle
    while error is not None and id(error) not in known:
        known.add(id(error))
        clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
