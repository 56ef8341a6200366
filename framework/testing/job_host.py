"""All tasks of a job over one log and one clock in memory: they work, time passes, they come to rest."""

from collections.abc import Iterator

from grete.api.jobs.job import Job
from grete.execution.job_task import JobTask
from grete.execution.sinks.sink_targets import MakeSinks, sinks_of
from grete.job.topics import create_topics
from grete.logs.memory import MemoryLog
from grete.replay.history import HostedTask, MemoryHistory
from grete.settings import Settings
from grete.state.read.checkpoints.commits import external_ends
from grete.worker.supervisor.completion import have_committed, idle_in, passed
from grete.worker.supervisor.progress import CommitProgress

START_MS = 1_700_000_000_000  # where virtual time begins: a moment in 2023
INTERVALS_MAX = 1_000  # a job that is not at rest after this many checkpoints never will be


class JobHost:
    """The tasks of a job, as if each in a process of its own. Time passes only in ``run``, ``advance`` and ``stop``."""

    def __init__(
        self, job: Job, settings: Settings, *, connect: type[MemoryLog] = MemoryLog, sinks: MakeSinks = sinks_of
    ) -> None:
        """Make the job's topics; start nothing."""
        self.job, self.settings = job, settings
        self.history = history = MemoryHistory(START_MS, connect)
        create_topics(job, history.log)
        job.count_broadcast(history.log.partitions)
        self.tasks = {
            (stage.name, partition): HostedTask(JobTask(stage, job.topology(), partition), settings, history, sinks)
            for stage, partition in job.tasks()
        }
        self._progress = CommitProgress(history.log)
        self._working: Iterator[HostedTask] = iter(())

    # --- Work ---

    def step(self) -> HostedTask | None:
        """Let a task take one step, in the order of ``process``. Return it; None: nothing is to do at this time."""
        task = next(self._working, None)
        return next(self._all_working(), None) if task is None else task

    def process(self) -> None:
        """Let all tasks work until none has anything to do while time does not pass."""
        for working in (self._working, self._all_working()):
            for _ in working:
                pass

    def _all_working(self) -> Iterator[HostedTask]:
        self._working = self.history.work(tuple(self.tasks.values()))
        return self._working

    def run(self, *, ending: bool = False, waits_for_idle: bool = True) -> None:
        """Run until all is processed and committed, and what comes of it that the inputs are idle, or have ended.

        Not ``waits_for_idle``: they are about to end, and an input that has nothing more holds time back until then.
        Raises AssertionError if the job does not come to rest.
        """
        idle, inputs, tasks = None, len(external_ends(self.history.log, self.job)), tuple(self.tasks.values())

        def is_through() -> bool:
            nonlocal idle
            if self.history.faults.left or not self._has_committed_all:
                return False
            if idle is None:
                idle = idle_in(self.job, inputs, tasks, ending=ending, waits_for_idle=waits_for_idle)
            return idle is not None and have_committed(tasks, idle)

        self.process()  # what is left of a round that ``step`` began
        steps_max = self._intervals() * self._steps_of_time()
        if not self.history.run(tasks, is_through, step_ms=self._until_due, steps_max=steps_max):
            restless = ", ".join(f"{task.name}: {task.status}" for task in tasks if not task.has_committed_all)
            raise AssertionError(f"the job is not at rest after {INTERVALS_MAX} checkpoints ({restless})")

    def advance(self, ms: int) -> None:
        """Let time pass, in one step while the job is at rest."""
        until = self.history.now_ms + ms
        self.process()
        while self.history.now_ms < until:
            step = min(task.wall_timer_in_ms for task in self.tasks.values()) if self._at_rest else self._until_due()
            self.history.now_ms = min(until, self.history.now_ms + max(1, step))
            self.process()

    def drain(self) -> None:
        """Let the inputs end, run until what came of that is committed, and stop."""
        for task in self.tasks.values():
            task.end_inputs()
        self.run(ending=True)
        self.stop()
        for task in self.tasks.values():
            task.ending = False

    def stop(self) -> None:
        """Stop all tasks gracefully (R6). Raises AssertionError if one does not stop."""
        self.process()
        for task in self.tasks.values():
            task.stop()
        for _ in range(INTERVALS_MAX):
            while sum(1 for task in self.tasks.values() for _ in task.wind_up()):
                pass
            if all(task.process is None for task in self.tasks.values()):
                return
            self.history.now_ms += self._until_due()
        raise AssertionError(f"the job does not stop within {INTERVALS_MAX} checkpoints")

    # --- Rest ---

    @property
    def _has_committed_all(self) -> bool:
        """Whether all that was fed is processed and committed, and logical time has taken all of it along (D1)."""
        if not all(task.has_committed_all for task in self.tasks.values()):
            return False
        if "deterministic" not in self.job.modes:
            return True
        covered_t = {task.name: task.covered_t for task in self.tasks.values()}
        ends = external_ends(self.history.log, self.job)
        return passed(self.history.log, self.job, ends, self._progress.last_commit, covered_t)

    @property
    def _at_rest(self) -> bool:
        """Whether only checkpoints without news will close, however much time passes, until there is a new record."""
        waits = bool(self.job.topology().timed) and any(task.idle_in is None for task in self.tasks.values())
        return not waits and self._has_committed_all

    @property
    def _waits_for_idle(self) -> bool:
        return len(external_ends(self.history.log, self.job)) > 1 and bool(self.job.topology().timed)

    def _intervals(self) -> int:
        """Return the number of checkpoints after which a job that is not at rest never will be."""
        own = [each.idle_ms or 0 for stage in self.job.stages for each in stage.inputs.values()]
        idle_ms = max(self.settings.event_time_idle_ms, *own) if self._waits_for_idle else 0
        return INTERVALS_MAX + idle_ms // self.settings.checkpoint_interval_ms

    def _steps_of_time(self) -> int:
        """Return the number of steps of time in an interval: in deterministic mode with each progress message."""
        messages = self.settings.checkpoint_interval_ms // self.settings.progress_interval_ms
        return 1 + messages if "deterministic" in self.job.modes else 1

    def _until_due(self) -> int:
        return max(1, min(self.settings.checkpoint_interval_ms, *(task.due_in_ms() for task in self.tasks.values())))
