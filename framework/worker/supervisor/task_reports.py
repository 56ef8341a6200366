"""Reports of a run's tasks, for a person: what they wait for, restore and have dropped."""

from collections.abc import Iterable, Mapping

from msgspec.structs import asdict

from grete.core.supervision.supervised_worker import Life, SupervisedWorker
from grete.protocol.report import TaskState


class TaskReports:
    """By task, as the workers said last.

    ``troubles``: why its sink does not take what it should. ``waits``: for which other tasks it waits, if for long.
    ``failures``: the error of what it last dropped as failed. ``restores``: how many messages of its changelog it has
    read, of how many. ``dropped``: by reason and task, the records since the run began; a task that is started again
    counts from 0, and what its predecessor has said stays.
    """

    def __init__(self) -> None:
        """Nothing is said yet."""
        self.changes = -1  # of the supervisor, when they were last taken
        self.troubles: dict[str, str] = {}
        self.waits: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.restores: dict[str, tuple[int, int]] = {}
        self.dropped: dict[str, dict[str, int]] = {}
        self._of_lives: dict[tuple[str, Life], Mapping[str, int]] = {}  # task, its life → records by reason

    def take(self, workers: Iterable[SupervisedWorker]) -> None:
        """Take what the workers said last."""
        self.troubles, self.waits, self.failures, self.restores = {}, {}, {}, {}
        for worker in workers:
            for name, task in worker.reports.tasks.items():
                for said, by_task in (
                    (task.sink_trouble, self.troubles),
                    (task.waits, self.waits),
                    (task.last_failure, self.failures),
                ):
                    if said:
                        by_task[name] = said
                restore = task.restore
                if task.status is TaskState.STARTING and 0 < restore.done < restore.total:
                    self.restores[name] = restore.done, restore.total
                self._drop(name, worker.life_of(task), asdict(task.dropped))

    def _drop(self, name: str, life: Life, dropped: Mapping[str, int]) -> None:
        before = self._of_lives.get((name, life), {})
        if dropped != before:
            self._of_lives[name, life] = dropped
            for reason, count in dropped.items():
                by_task = self.dropped.setdefault(reason, {})
                by_task[name] = by_task.get(name, 0) + count - before.get(reason, 0)
