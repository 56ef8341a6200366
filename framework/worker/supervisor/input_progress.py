"""Progress of a job's inputs: its workers' reports against the log's content when this run began."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping

from grete.core.supervision.supervised_worker import Life, SupervisedWorker
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskReport, TaskState


class InputProgress:
    """Counts offsets and records of the external inputs. What other machines commit is not seen."""

    def __init__(self, positions: Mapping[TopicPartition, dict[str, int]], tasks: Collection[str]) -> None:
        """Begin at ``positions``, of each external partition by the tasks that read it; ``tasks``: all of the job."""
        self.committed = {partition: min(of.values()) for partition, of in positions.items()}
        self.checkpoint_ids = dict.fromkeys(tasks, -1)  # as the workers last said
        self._positions = positions
        self._first, self._through = dict(self.committed), dict(self.committed)
        # external partition → (checkpoint id, offset, records until there since this run began)s, not through yet
        self._pending: dict[TopicPartition, deque[tuple[int, int, int]]] = {p: deque() for p in positions}
        self._records_through = Counter[TopicPartition]()
        self._holes: dict[TopicPartition, dict[tuple[str, Life], int]] = {p: {} for p in positions}
        self._here: frozenset[str] = frozenset(tasks)
        self._arriving: set[str] = set()  # tasks that have come here, and have not said yet from where they go on

    def host(self, tasks: Iterable[str]) -> None:
        """Count these tasks from now on: what others have committed elsewhere meanwhile is no record of this run."""
        here = frozenset(tasks)
        self._arriving = (self._arriving | (here - self._here)) & here
        self._here = here

    def take(self, workers: Iterable[SupervisedWorker]) -> None:
        """Take what the workers said last."""
        for worker in workers:
            for name, task in worker.reports.tasks.items():
                self.checkpoint_ids[name] = max(self.checkpoint_ids[name], task.checkpoint_id)
                if name in self._arriving:
                    self._arrive(name, task)
                for read in task.inputs:
                    partition = TopicPartition(read.topic, read.partition)
                    if partition not in self._positions:
                        continue  # of a broadcast topic that has got more since this run began
                    if read.offset > self._positions[partition][name]:
                        self._positions[partition][name] = read.offset
                        self._holes[partition][name, worker.life_of(task)] = read.holes
                    if name not in self._arriving:
                        self._advance(partition, task.checkpoint_id)

    def _arrive(self, name: str, task: TaskReport) -> None:
        """Begin where a task has begun here, once it says where: its first status may tell of a commit behind that."""
        for begin in task.began:
            partition = TopicPartition(begin.topic, begin.partition)
            if partition not in self._positions:
                continue
            self._positions[partition][name] = max(self._positions[partition][name], begin.offset)
            least = self._least(partition)
            if least > self.committed[partition]:
                self._first[partition] += least - self.committed[partition]
                self._through[partition] = self.committed[partition] = least
                self._pending[partition].clear()
                self._records_through[partition] = self._records(partition)
        if task.began or task.status is TaskState.RUNNING:
            self._arriving.discard(name)

    def _least(self, partition: TopicPartition) -> int:
        of = self._positions[partition]
        return min([of[task] for task in of if task in self._here] or of.values())

    def _advance(self, partition: TopicPartition, checkpoint_id: int) -> None:
        least = self._least(partition)
        if least > self.committed[partition]:
            self.committed[partition] = least
            self._pending[partition].append((checkpoint_id, least, self._records(partition)))

    def through(self) -> dict[TopicPartition, int]:
        """Return the inputs' progress through all stages: in checkpoints that every task here committed."""
        checkpoint_id = min((self.checkpoint_ids[name] for name in self._here), default=-1)
        for partition, pending in self._pending.items():
            while pending and pending[0][0] <= checkpoint_id:
                _, self._through[partition], self._records_through[partition] = pending.popleft()
        return self._through

    def records_through(self, ends: Mapping[TopicPartition, int]) -> tuple[int, int]:
        """Return the number of records through all stages since this run began, and the number it is to take."""
        through, done = self.through(), sum(self._records_through.values())
        read = [p for p, of in self._positions.items() if not self._here.isdisjoint(of)]
        return done, done + sum(max(0, ends[p] - through[p]) for p in read if p in ends)

    def records_committed(self) -> int:
        """Return the number of records committed since this run began."""
        return sum(map(self._records, self.committed))

    def _records(self, partition: TopicPartition) -> int:
        """Return the same of one partition: offsets, without those at which a task has found no record."""
        by_task = dict.fromkeys(self._positions[partition], 0)
        for (name, _), count in self._holes[partition].items():
            by_task[name] += count
        return self.committed[partition] - self._first[partition] - min(by_task.values())  # of the last, as above
