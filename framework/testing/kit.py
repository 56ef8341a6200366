"""The kit: feed, let it run, look, break it, look again."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

import msgspec

from framework.api.graph import stage_name
from framework.api.job import Job
from framework.api.record import Record
from framework.api.store import Store
from framework.api.task import Task
from framework.api.topic import Topic, encode_record
from framework.errors import ConfigError
from framework.execution.decoding import decode_of
from framework.job.topics import create_topics
from framework.logs.memory import MemoryLog, MemoryLogData
from framework.settings import Settings
from framework.state.commits import external_ends
from framework.testing.task_host import Faults, HostedTask
from framework.worker.completion import passed
from framework.worker.progress import CommitProgress
from protocol.frames import decode_headers, encode_headers
from protocol.ids import TopicPartition, split_producer_id
from protocol.partitioner import partition_of

K = TypeVar("K")
V = TypeVar("V")

START_MS = 1_700_000_000_000  # where virtual time begins: a moment in 2023
INTERVALS_MAX = 1_000  # a job that is not at rest after this many checkpoints never will be


class Kit:
    """A job in this process, each task as if in a process of its own. Time passes only where a method says so.

    A stage is given as its Task class or by its name. What the task's code raises comes out of ``run``, ``process``,
    ``advance`` and ``stop`` (TaskError); the task is dead then, and started again by the next of these calls.
    """

    def __init__(
        self,
        job: Job,
        *,
        partitions: int | None = None,
        processing_guarantee: Literal["exactly-once", "at-least-once", "at-most-once"] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Make the job's topics. ``partitions`` and ``processing_guarantee`` replace those of the job and the settings.

        Stages with a number of partitions of their own keep it.
        """
        if partitions is not None:
            job = job.of(partitions)
        settings = settings or Settings()
        if processing_guarantee is not None:
            settings = msgspec.structs.replace(settings, processing_guarantee=processing_guarantee)
        self.job = job
        self.settings = settings
        self.now_ms = START_MS
        self._data = MemoryLogData(lambda: self.now_ms)
        self._log = MemoryLog(self._data)
        create_topics(job, self._log)
        job.count_broadcast(self._log.partitions)
        self._progress = CommitProgress(self._log)
        self._turns: Counter[str] = Counter()  # records fed without a key
        self._faults = Faults(0, 0)
        self._tasks = {
            (stage.name, partition): HostedTask(stage, job.topology(), partition, settings, lambda: self.now_ms)
            for stage, partition in job.tasks()
        }

    # --- Feed and run ---

    def feed(
        self,
        topic: Topic[K, V],
        key: K | None,
        value: V | None,
        *,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Append a record to a topic that the job reads from outside, at ``now_ms`` unless ``timestamp`` (ms) is given.

        The partition is that of the key, as any Kafka producer chooses it; without a key, each in turn. To feed bytes
        that the job's serdes refuse, give a Topic of that name with other serdes. Raises ConfigError, SerdeError.
        """
        count = self._partitions(topic.name, self._external_inputs(), "is not fed from outside")
        raw_key, raw_value, headers = encode_record(topic, key, value, headers)
        if partition is None and raw_key is None:
            partition = self._turns[topic.name] % count
            self._turns[topic.name] += 1
        elif partition is None:
            partition = partition_of(raw_key, count)
        elif not 0 <= partition < count:
            raise ConfigError(f"feed: topic {topic.name} has partitions 0 to {count - 1}, not {partition}")
        at = self.now_ms if timestamp is None else timestamp
        place = TopicPartition(topic.name, partition)
        self._data.append(place, raw_key, raw_value, at, encode_headers(headers) if headers else None)

    def run(self, *, crashes: int = 0, seed: int = 0) -> None:
        """Run until everything fed is processed and committed; time passes as it must.

        With timers or windows over several input partitions, until all of these are idle
        (docs/explanation/event-time.md), as `grete run` does.

        A task dies ``crashes`` times between two steps, about every third time with its disk: ``seed``
        chooses. Raises AssertionError if the job does not come to rest.
        """
        self._faults = Faults(crashes, seed)
        self._run()

    def drain(self, *, crashes: int = 0, seed: int = 0) -> None:
        """Run as `grete run --drain` does: at the end of the inputs fire what waits for event time, then stop.

        ``crashes`` and ``seed`` are for what comes behind the end; give ``run`` others before. Raises as ``run`` does.
        """
        self.run()
        for task in self._tasks.values():
            task.end_inputs()
        self._faults = Faults(crashes, seed)
        self._run(ending=True)
        self.stop()
        for task in self._tasks.values():
            task.ending = False

    def _run(self, *, ending: bool = False) -> None:
        """Run until all is processed and committed, and what comes of it that the inputs are idle, or have ended."""
        idle_in: int | None = None
        for _ in range(self._intervals() * self._steps()):
            self.process()
            if not self._faults.left and self._settled:
                idle_in = self._idle_in(ending=ending) if idle_in is None else idle_in
                if idle_in is not None and all(task.checkpoint_id >= idle_in for task in self._tasks.values()):
                    return
            self.now_ms += self._until_due()
        restless = ", ".join(f"{task.name}: {task.status}" for task in self._tasks.values() if not task.settled)
        raise AssertionError(f"the job is not at rest after {INTERVALS_MAX} checkpoints ({restless})")

    def process(self) -> None:
        """Process the records that can be processed while time does not pass.

        None of them is committed, so a crash will roll them back.
        """
        while sum(task.work(self._data, self._faults) for task in self._tasks.values()):
            pass

    def advance(self, ms: int) -> None:
        """Let time pass: checkpoints close and commit, timeouts fire. Event time is another: the records'.

        An input partition that was fed nothing for the setting event_time_idle_ms holds no timer or window back.
        """
        until = self.now_ms + ms
        self.process()
        while self.now_ms < until:
            self.now_ms = until if self._at_rest else min(until, self.now_ms + self._until_due())
            self.process()

    def stop(self) -> None:
        """Stop gracefully (R6): commit what is processed, close the tasks. What runs next starts them again."""
        self.process()
        for task in self._tasks.values():
            task.stop()
        for _ in range(INTERVALS_MAX):
            while sum(task.wind_up(self._data, self._faults) for task in self._tasks.values()):
                pass
            if all(task.process is None for task in self._tasks.values()):
                return
            self.now_ms += self._until_due()
        raise AssertionError(f"the job does not stop within {INTERVALS_MAX} checkpoints")

    # --- Look ---

    def outputs(self, topic: Topic[K, V]) -> list[Record[K, V]]:
        """Return what an outside reader of the topic has been given so far: committed records, partition by partition.

        Raises ConfigError for an internal stream: test the stage that writes it in a job of its own.
        """
        partitions = self._partitions(topic.name, list(self.job.external_sinks()), "is not written to the outside")
        key_of, value_of = decode_of(topic.key), decode_of(topic.value)
        return [
            Record(
                key=key_of(row.key, row.headers),
                value=value_of(row.value, row.headers),
                timestamp=row.timestamp_ms,
                headers=() if row.headers is None else decode_headers(row.headers),
                topic=topic.name,
                partition=partition,
                offset=row.offset,
            )
            for partition in range(partitions)
            for row in self._data.partition(TopicPartition(topic.name, partition)).rows
        ]

    def pairs(self, topic: Topic[K, V]) -> list[tuple[K, V]]:
        """Return (key, value) of ``outputs``; a dict of it holds the last value of each key.

        Raises ConfigError as ``outputs`` does.
        """
        return [(record.key, record.value) for record in self.outputs(topic)]

    @overload
    def state(
        self, store: Store[K, V], partition: int | None = None, *, stage: str | type[Task] | None = None
    ) -> dict[K, V]: ...

    @overload
    def state(
        self, store: str, partition: int | None = None, *, stage: str | type[Task] | None = None
    ) -> dict[Any, Any]: ...

    def state(
        self, store: Any, partition: int | None = None, *, stage: str | type[Task] | None = None
    ) -> dict[Any, Any]:
        """Return the committed content of a store in key order, of one partition or all.

        ``store`` is the declaration, as in ``CountWords.counts``, or its name; a window's is ``window.panes``, a join's
        ``lefts``, ``rights`` or ``rows``. Raises ConfigError if that is not one store of this job, or without
        ``partition`` if two partitions have the same key.
        """
        name, declared = self._find_store(store, stage)
        partitions = range(self.job.stage(name).partitions) if partition is None else [partition]
        rows: dict[bytes, tuple[int, bytes]] = {}
        for number in partitions:
            for key, value in self._task(name, number).rows(declared):
                other, _ = rows.setdefault(key, (number, value))
                if other != number:
                    raise ConfigError(
                        f"state: key {declared.key.decode(key)!r} of store {declared.name!r} is in partitions {other} "
                        f"and {number}: say which partition"
                    )
        return {declared.key.decode(key): declared.value.decode(value) for key, (_, value) in sorted(rows.items())}

    @property
    def counters(self) -> Counter[str]:
        """The counters of all tasks, dead ones included: commits, rollbacks, restores and others."""
        return sum((task.counters for task in self._tasks.values()), Counter[str]())

    # --- Break ---

    def crash(self, stage: str | type[Task], partition: int = 0, *, other_host: bool = False) -> None:
        """Kill a task: what it has not committed is rolled back. It is started again by what runs next.

        On the same host it finds its store, with ``other_host`` an empty disk: its state comes from the changelog.
        Raises ConfigError if the job has no such task.
        """
        self._task(stage, partition).crash(other_host=other_host)

    def crash_all(self, *, other_host: bool = False) -> None:
        """Kill every task at once, as ``crash`` does."""
        for task in self._tasks.values():
            task.crash(other_host=other_host)

    def rollback(self, stage: str | type[Task], partition: int = 0) -> None:
        """Make a living task go back to its last commit (R4): kill one whose uncommitted records it has processed.

        Calls ``process`` before and after. Raises AssertionError if the task has nothing uncommitted of another stage,
        ConfigError if the job has no such task.
        """
        task = self._task(stage, partition)
        self.process()
        senders = task.senders()
        assert senders, f"{task.name} has no uncommitted records of another stage to give up: feed some, then roll back"
        before = task.counters["rollbacks"]
        ordinal, sender = split_producer_id(senders[0])
        self.crash(self.job.stages[ordinal].name, sender)
        self.process()
        assert task.counters["rollbacks"] == before + 1, f"{task.name} did not roll back"

    def _steps(self) -> int:
        """Return how often time goes on in an interval: in deterministic mode with each progress message."""
        messages = self.settings.checkpoint_interval_ms // self.settings.progress_interval_ms
        return 1 + messages if "deterministic" in self.job.modes else 1

    @property
    def _settled(self) -> bool:
        """Whether all that was fed is processed and committed, and logical time has taken all of it along (D1)."""
        if not all(task.settled for task in self._tasks.values()):
            return False
        if "deterministic" not in self.job.modes:
            return True
        covered_t = {task.name: task.covered_t for task in self._tasks.values()}
        ends = external_ends(self._log, self.job)
        return passed(self._log, self.job, ends, self._progress.last_commit, covered_t)

    @property
    def _at_rest(self) -> bool:
        """Whether only checkpoints without news will close, however much time passes, until there is a new record."""
        waits = bool(self.job.topology().timed) and any(task.idle_in is None for task in self._tasks.values())
        return not waits and self._settled

    @property
    def _waits_for_idle(self) -> bool:
        return len(external_ends(self._log, self.job)) > 1 and bool(self.job.topology().timed)

    def _intervals(self) -> int:
        """Return the number of checkpoints after which a job that is not at rest never will be."""
        own = [each.idle_ms or 0 for stage in self.job.stages for each in stage.inputs.values()]
        idle_ms = max(self.settings.event_time_idle_ms, *own) if self._waits_for_idle else 0
        return INTERVALS_MAX + idle_ms // self.settings.checkpoint_interval_ms

    def _idle_in(self, *, ending: bool) -> int | None:
        """Return a checkpoint that has what comes of it that all inputs are idle, or have ended; None: not yet.

        Where only one partition is read, its last record has brought event time to where it ends.
        """
        if not (ending or self._waits_for_idle):
            return -1
        found = [task.ended_in if ending else task.idle_in for task in self._tasks.values()]
        return None if None in found else max(each for each in found if each is not None)

    # --- Names ---

    def _task(self, stage: str | type[Task], partition: int) -> HostedTask:
        return self._tasks[self.job.stage(_name_of(stage)).check_partition(partition).name, partition]

    def _external_inputs(self) -> list[str]:
        topics = self.job.topology().external_inputs.values()
        return sorted({topic for names in topics for topic in names})

    def _partitions(self, topic: str, known: list[str], refusal: str) -> int:
        count = self._log.partitions(topic)
        if count is None or topic not in known:
            raise ConfigError(
                f"topic {topic!r} {refusal} in job {self.job.name!r}; these are: {', '.join(known) or 'none'}"
            )
        return count

    def _find_store(self, store: object, stage: str | type[Task] | None) -> tuple[str, Store[Any, Any]]:
        stages = self.job.stages if stage is None else [self.job.stage(_name_of(stage))]
        found = [
            (each.name, declared)
            for each in stages
            for declared in each.all_stores()
            if store in (declared, declared.name)
        ]
        if len(found) != 1:
            where = " in several stages: say which" if found else ": is it declared in a stage of this job?"
            raise ConfigError(f"state: store {getattr(store, 'name', store)!r} is found {len(found)} times{where}")
        return found[0]

    def _until_due(self) -> int:
        return max(1, min(self.settings.checkpoint_interval_ms, *(task.due_in_ms() for task in self._tasks.values())))


def _name_of(stage: str | type[Task]) -> str:
    return stage if isinstance(stage, str) else stage_name(stage)
