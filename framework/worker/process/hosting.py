"""The tasks that a worker hosts: they come and go, end alone and start again, while the others take turns."""

import logging
import os
import platform
import time
from collections.abc import Callable, Collection, Sequence

from grete.api.jobs.graph import StageGraph
from grete.api.jobs.job import Job
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError, Fenced, FrameworkError, LogAway
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.joint_progress import JointProgress
from grete.protocol.ids import TopicPartition
from grete.worker.process.hosted_task import SharedParts, WorkerTask
from grete.worker.process.observed_checkpoints import ObservedCheckpoints
from grete.worker.process.task_ends import TaskEnds
from grete.worker.process.task_loop import TaskLoop

FETCHES_MAX = 4  # snapshots that are fetched at a time: more would share the same network and disk
START_AGAIN_MS = 5  # between two looks whether a task can start again: the log may have to answer its sends first

logger = logging.getLogger("grete")


class Moves:
    """The tasks on their way, by name: they come, or go.

    ``coming``: to start as soon as they can. ``filling``: their stores take snapshots, and they take no turns yet.
    ``leaving``: → when one is given up, if it has not stopped by then, in ms.
    """

    def __init__(self) -> None:
        self.coming: list[str] = []
        self.filling: dict[str, TaskDriver] = {}
        self.leaving: dict[str, float] = {}

    @property
    def any(self) -> bool:
        """Whether a partition is still to come, to go or to be ready."""
        return bool(self.coming or self.filling or self.leaving)


class Hosting:
    """The tasks of one process: those that are there, to come or to go. ``step`` once a round of the loop."""

    def __init__(
        self, partitions: Sequence[int], shared: SharedParts, *, stage: str | None = None, fenced: Collection[str] = ()
    ) -> None:
        """Open the stores of the tasks of ``partitions``, of all stages or of one, but for the ``fenced``, by name.

        Raises ConfigError for a partition or stage that the job has not.
        """
        self._shared, self._stage = shared, stage
        self._moves = Moves()
        self._draining = self._stopping = False
        self.failed: FrameworkError | None = None  # of a task that could not stop as it was asked to
        self.arriving: Callable[[TaskWiring], None] = lambda _wiring: None  # called before a task is opened later
        self.moved = False  # a task has come or gone since somebody looked
        self.ends = TaskEnds(shared.settings, shared.mono_ms)
        hosted = (WorkerTask(graph, each, shared) for graph, each in hosted_by(shared.job, partitions, stage))
        self.tasks = {each.name: each for each in hosted if each.name not in fenced}
        self.drivers: list[TaskDriver] = []  # without what has ended alone
        for each in self.tasks.values():
            self._open(each)
        begins = [driver for driver in self.drivers if driver.wiring.name not in self._moves.filling]
        checkpoints = ObservedCheckpoints(shared.job.topology())
        self.loop = TaskLoop(begins, shared.log, shared.mono_ms, checkpoints, shared.joint)
        self._share()

    def begin(self) -> None:
        """Let the first tasks begin."""
        for driver in self.drivers:
            if driver.wiring.name not in self._moves.filling:
                self.loop.start(driver, _begin)

    def assign(self, partitions: Sequence[int], again: Collection[int] = ()) -> None:
        """Host the tasks of these partitions from now on; ``again``: those that start again though they were fenced.

        Raises ConfigError for a partition that the job has not.
        """
        hosted = hosted_by(self._shared.job, partitions, self._stage)
        wanted = {f"{graph.name}-{each}": (graph, each) for graph, each in hosted}
        there = {driver.wiring.name: driver for driver in self.drivers}
        for name in [name for name in self.tasks if name not in wanted]:
            if name not in there:
                self._forget(name)
            elif name not in self._moves.leaving:
                self._moves.leaving[name] = self._shared.mono_ms() + self._shared.settings.shutdown_timeout_ms
                there[name].stop()
        self._moves.coming = [name for name in self._moves.coming if name in wanted]
        for name, (graph, partition) in wanted.items():
            if self.ends.is_fenced(name) and partition in again:
                self._forget(name)
            if name not in self._moves.coming and (name not in self.tasks or name in self._moves.leaving):
                self._moves.coming.append(name)
            if name not in self.tasks:
                self.tasks[name] = WorkerTask(graph, partition, self._shared)

    @property
    def changing(self) -> bool:
        """Whether a task is to come, to go or to start again."""
        return self._moves.any or self.ends.waiting

    @property
    def over(self) -> bool:
        """Whether all tasks have ended as they were asked to."""
        waits = self._moves.coming or self._moves.filling or self.ends.waiting
        return self.loop.over and (self._stopping or not waits)

    @property
    def joint(self) -> JointProgress:
        """The progress that its tasks announce together."""
        return self._shared.joint

    @property
    def due_in_ms(self) -> float:
        """The ms until ``step`` has something to do, as far as is known."""
        return START_AGAIN_MS if self._moves.any else max(START_AGAIN_MS, self.ends.due_in_ms)

    def step(self, tell: Callable[[], object]) -> None:
        """Take out the tasks that have ended or stopped, and open at most one that is to come or to start again.

        ``tell`` is called when one has ended by an error, or has stopped. Raises that of the last task that was there:
        then the process ends, and its supervisor waits.
        """
        for driver, error in self._ended():
            self._end(driver, error)
            tell()
        leaving = self._moves.leaving
        for driver in [each for each in self.drivers if each.wiring.name in leaving] if leaving else ():
            here = driver.wiring.name not in self._moves.filling
            if driver.exit is not None or not here or self._shared.mono_ms() >= leaving[driver.wiring.name]:
                tell()  # another process may have it from here on: to let go of its store takes time
                self._leave(driver)
        if self._stopping:
            return
        for fetching in list(self._moves.filling)[:FETCHES_MAX]:
            if self.tasks[fetching].filled:
                self._join(self._moves.filling.pop(fetching))
        self._moves.coming += self.ends.due(self.loop.leaves)
        ready = (name for name in self._moves.coming if name not in self._moves.leaving and not self.loop.leaves(name))
        if (name := next(ready, None)) is not None:
            self._moves.coming.remove(name)
            self._start(self.tasks[name])

    def stop(self) -> None:
        """Let all tasks stop (R6); what was to come does not any more."""
        self._stopping = True
        self._moves.coming.clear()
        for name in self._moves.filling:
            self.tasks[name].stop_filling()
        for driver in self.drivers:
            driver.stop()

    def drain(self) -> None:
        """Take the inputs from outside for ended, also those of tasks that are yet to come (E7)."""
        self._draining = True
        for driver in self.drivers:
            driver.end_inputs()

    def close(self) -> None:
        """Release the stores."""
        for task in self.tasks.values():
            task.close()

    def _start(self, task: WorkerTask) -> None:
        if task.life < 0:
            self.arriving(task.wiring)  # who had it may have run other code
        driver = self._open(task)
        self._share()
        self.moved = True
        if task.name not in self._moves.filling:
            self._join(driver)

    def _open(self, task: WorkerTask) -> TaskDriver:
        driver = task.open()
        self.drivers.append(driver)
        if not task.filled:
            self._moves.filling[task.name] = driver
        return driver

    def _join(self, driver: TaskDriver) -> None:
        """Let a task begin whose store is as it stays."""
        self.loop.add(driver)
        self.loop.start(driver, _begin)
        if self._draining:
            driver.end_inputs()

    def _take_out(self, driver: TaskDriver) -> None:
        if self._moves.filling.pop(driver.wiring.name, None) is None:
            self.loop.remove(driver)

    def _ended(self) -> list[tuple[TaskDriver, FrameworkError]]:
        """Return the tasks that have ended, and by what: of a partition that another process has taken, all.

        That one claims all of them, but a task that waits for the others would not notice.
        """
        ended = sorted(self.loop.ended, key=lambda each: not isinstance(each[1], Fenced))
        self.loop.ended.clear()
        for driver, error in ended[:]:
            if isinstance(error, Fenced):
                known = [each for each, _ in ended]
                for other in [each for each in self.drivers if _partition(each) == _partition(driver)]:
                    if other not in known:
                        self._take_out(other)
                        ended.insert(0, (other, error))
        return ended

    def _end(self, driver: TaskDriver, error: FrameworkError) -> None:
        """Take out a task that has ended by an error of its own."""
        name = driver.wiring.name
        self.drivers.remove(driver)
        others = (
            self.drivers or self._moves.coming or self.ends.halted or (isinstance(error, Fenced) and self.ends.waiting)
        )
        self.loop.turn_of = driver
        if others and name not in self._moves.leaving:
            self.ends.note(driver, error)
        self.tasks[name].give_up(driver, error, self._in_use())
        if not others:
            raise error
        if self._stopping and not isinstance(error, Fenced):
            self.failed = error
        if name in self._moves.leaving:
            self._gone(name, error)
        self.loop.turn_of = None

    def _leave(self, driver: TaskDriver) -> None:
        """Take out a task that is not wanted here any more, and has stopped, or has not in time."""
        late = driver.exit is None and driver.wiring.name not in self._moves.filling
        self.drivers.remove(driver)
        self._take_out(driver)
        self.tasks[driver.wiring.name].give_up(driver, None, self._in_use())
        self._gone(driver.wiring.name, LogAway("it did not stop in time") if late else None)

    def _gone(self, name: str, error: FrameworkError | None) -> None:
        del self._moves.leaving[name]
        self.moved = True
        extra = {"task": name} | ({} if error is None else {"error": str(error)})
        logger.log(logging.INFO if error is None else logging.WARNING, "task left", extra=extra)
        if name not in self._moves.coming:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self.ends.forget(name)
        self.tasks.pop(name).end()

    def _in_use(self) -> set[TopicPartition]:
        return {
            partition for each in self.drivers for partition in (*each.parts.inputs.partitions, each.wiring.changelog)
        }

    def _share(self) -> None:
        """Tell the log which partitions from outside several tasks read: the embedded one reads from anywhere."""
        counts: dict[TopicPartition, int] = {}
        for driver in self.drivers:
            for partition in driver.wiring.external:
                counts[partition] = counts.get(partition, 0) + 1
        share = getattr(self._shared.log, "share", lambda _partitions: None)
        share([partition for partition, count in counts.items() if count > 1])


def _partition(driver: TaskDriver) -> int:
    return driver.wiring.changelog.partition


def _begin(driver: TaskDriver) -> None:
    host = platform.node()[:200]
    driver.start(nonce=os.urandom(16), host=host, pid=os.getpid(), wall_ms=int(time.time() * 1000))


def hosted_by(job: Job, partitions: Sequence[int], stage: str | None) -> list[tuple[StageGraph, int]]:
    """Return (stage, partition) of each task that a worker of these partitions hosts. Raises ConfigError."""
    return [(graph, partition) for partition in partitions for graph in stages_of(job, partition, stage)]


def stages_of(job: Job, partition: int, stage: str | None) -> list[StageGraph]:
    """Return the stages whose tasks a worker of a partition hosts: all that have it, or the one that is named.

    Raises ConfigError: there is no such partition or stage.
    """
    if stage is not None:
        return [job.stage(stage).check_partition(partition)]
    if not 0 <= partition < job.workers:
        raise ConfigError(
            f"job {job.name!r} has partitions 0 to {job.workers - 1}, not {partition}: choose one of these"
        )
    return [each for each in job.stages if partition < each.partitions]
