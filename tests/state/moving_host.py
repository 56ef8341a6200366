"""A job in memory whose state moves to other numbers of partitions: its log keeps metadata, and its topics grow."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self, cast

from grete.api.jobs.job import Job
from grete.api.serdes.key import partition_by
from grete.api.tasks.task import Task
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.ports import ExternalRecord, JobLog, LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import contents, segments, snapshots
from grete.state.write.fork import fork
from grete.state.write.rescale import rescale
from grete.testing.job_host import JobHost

Fed = tuple[bytes, bytes, int]  # key, value, timestamp
Sent = Counter[tuple[bytes | None, bytes | None, int]]  # key, value, timestamp
SETTINGS = Settings(checkpoint_interval_ms=100)


class MovableLog(MemoryLog):
    """A grete.ports.JobLog as far as a rescale and a fork need it, and its metadata."""

    def __init__(self, data: MemoryLogData, metadata: dict[str, bytes]) -> None:
        super().__init__(data)
        self._metadata = metadata

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False, grow: bool = False) -> None:
        """As of JobLog."""
        if grow and (self.partitions(topic) or partitions) < partitions:
            self.data.partition_counts[topic] = partitions
        super().create_topic(topic, partitions, plain=plain)

    def read_metadata(self, _job: str) -> "MovableLog":
        """As of JobLog."""
        return self

    open_metadata = read_metadata

    def meta_get(self, key: str) -> bytes | None:
        """As of JobMetadata."""
        return self._metadata.get(key)

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """As of JobMetadata."""
        return sorted(item for item in self._metadata.items() if item[0].startswith(prefix))

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """As of JobMetadata."""
        assert sync or not records
        self._metadata.update({key: value for key, value in meta.items() if value is not None})
        return -1


class ReadJob:
    """Committed state and outputs of a job, read from its log."""

    def __init__(self, job: Job, log: JobLog) -> None:
        self.job, self.log = job, log

    def sent(self, topic: str) -> Sent:
        """Return the records that were sent there."""
        return Counter((row.key, row.value, row.timestamp_ms) for row in self.rows(topic))

    def rows(self, topic: str) -> list[LogRow]:
        """Return the records of a topic, in the order of time."""
        rows = [row for number in range(self.log.partitions(topic) or 0) for row in self.rows_in(topic, number)]
        return sorted(rows, key=lambda row: row.timestamp_ms)

    def rows_in(self, topic: str, number: int) -> list[LogRow]:
        """Return the records of one partition."""
        place = TopicPartition(topic, number)
        return list(self.log.read(place, self.log.bounds(place)[0], 1 << 40))

    def state(self, partition: int, stage: int = 0) -> dict[tuple[int, bytes], bytes]:
        """Return the state that a task has committed: store, key → value."""
        number = list(self.job.tasks()).index((self.job.stages[stage], partition))
        stores = frozenset(self.job.stages[stage].store_ids().values())
        found = contents(segments(self.log, snapshots(self.log, self.job)[number]), stores)
        return {
            (store, key): value
            for store, entries in found.items()
            for key, (value, _) in entries.items()
            if value is not None
        }


class MovableJob(ReadJob):
    """A job and its tasks. ``moved`` gives the same with other partitions; then this one is over."""

    def __init__(self, job: Job, settings: Settings = SETTINGS, before: "MovableJob | None" = None) -> None:
        """``before``: the job that has the log and its time; None: the job begins in a log of its own."""
        self._settings = settings
        self._metadata: dict[str, bytes] = {} if before is None else before._metadata

        def connect(data: MemoryLogData) -> MovableLog:
            return MovableLog(data if before is None else before.host.history.data, self._metadata)

        self.host = host = JobHost(job, settings, connect=cast("type[MemoryLog]", connect))
        if before is not None:
            host.history.now_ms, host.history.data = before.host.history.now_ms, before.host.history.data
            host.history.data.clock = lambda: host.history.now_ms
        super().__init__(job, cast("JobLog", connect(host.history.data)))

    def feed(self, topic: str, records: Sequence[Fed]) -> Self:
        """Write records, by their keys."""
        count = self.job.topology().stages[0].partitions
        place = partition_by(next(each.key for each in self.job.stages[0].topics_read() if each.name == topic))
        for key, value, at in records:
            self.host.history.data.append(TopicPartition(topic, place(key, count)), key, value, at, None)
        return self

    def run(self, *, crashes: int = 0, seed: int = 0) -> Self:
        """Process all that was fed, through crashes, and stop."""
        self.host.history.faults.draw(crashes, seed)
        self.host.run()
        self.host.stop()
        return self

    def drain(self) -> Self:
        """Let the inputs end, and what waits for a later time be done."""
        self.host.drain()
        return self

    def moved(self, partitions: int, *, assume_keyed: bool = True) -> "MovableJob":
        """Return the job with more partitions, or a fork of it: with fewer, or of a deterministic job."""
        if partitions > self.job.partitions and self.job.modes == "aligned":
            rescale(self.log, self.job, partitions, self._settings, own_topics=True, assume_keyed=assume_keyed)
            return MovableJob(self.job.of(partitions), self._settings, self)
        name, mode = f"{self.job.name}-{partitions}", self.job.stages[0].mode
        second = MovableJob(Job(name, self.tasks, partitions=partitions, mode=mode), self._settings)
        second.host.history.now_ms = self.host.history.now_ms
        state = snapshots(self.log, self.job)
        fork(
            self.log,
            self.job,
            state,
            second.log,
            second.job,
            self._settings,
            copy=True,
            assume_keyed=assume_keyed,
        )
        return second

    @property
    def tasks(self) -> list[type[Task]]:
        """The classes of its stages."""
        return [stage.task for stage in self.job.stages]
