"""The kit: feed, let it run, look, break it, look again."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

import msgspec

from grete.api.jobs.job import Job
from grete.api.record import Record
from grete.api.serdes.key import partition_by
from grete.api.store import Store
from grete.api.tasks.task import Task
from grete.api.topics.topic import Output, Topic, encode_record
from grete.closable import Closable
from grete.errors import ConfigError
from grete.execution.sinks.sink_targets import no_sinks, sinks_of
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.replay.history import HostedTask
from grete.settings import Settings
from grete.testing.crash_check import ScriptRun, check_crashes
from grete.testing.determinism_check import check_determinism
from grete.testing.given import Given
from grete.testing.job_host import JobHost
from grete.testing.results import Results, name_of
from grete.testing.script import KitCall

K = TypeVar("K")
V = TypeVar("V")

PLACES_MAX = 200  # crashes of one check: a small job takes about a second


class Kit(Closable):
    """A job in this process, each task as if in a process of its own. Time passes only where a method says so.

    A stage is its Task class or its name. What the task's code raises comes out of ``run`` and its like (TaskError);
    the task is dead then, and started again by the next of these calls.
    """

    def __init__(
        self,
        job: Job,
        *,
        partitions: int | None = None,
        processing_guarantee: Literal["exactly-once", "at-most-once", "at-least-once", "none"] | None = None,
        settings: Settings | None = None,
        discard_sinks: bool = False,
    ) -> None:
        """Make the job's topics. ``partitions`` and ``processing_guarantee`` replace those of the job and the settings.

        Stages with a number of partitions of their own keep it. ``discard_sinks``: what the job sends to files, tables
        and other systems is not written there; ``outputs`` has it all the same.
        """
        self._declared = job
        job = job if partitions is None else job.of(partitions)
        settings = settings or Settings()
        if processing_guarantee is not None:
            settings = msgspec.structs.replace(settings, processing_guarantee=processing_guarantee)
        self.job, self.settings = job, settings
        self.script: list[KitCall] = []  # what was fed, and how time passed
        given = Given(no_sinks if discard_sinks else sinks_of)
        self._host = host = JobHost(job, settings, sinks=given.sinks)
        self._data, self._log, self._tasks = host.history.data, host.history.log, host.tasks
        self._results = Results(host, given)
        self._turns: Counter[str] = Counter()  # records fed without a key

    @property
    def now_ms(self) -> int:
        """The kit's clock, in ms since 1970."""
        return self._host.history.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._host.history.now_ms = now_ms

    def close(self) -> None:
        """Let go of files and connections, as the end of the processes would: nothing more is committed."""
        self.crash_all()

    # --- Feed and run ---

    def feed(
        self,
        topic: Topic[K, V],
        key: K | None,
        value: V | None,
        *,
        timestamp: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Append a record to a topic that the job reads from outside, at ``now_ms`` unless ``timestamp`` (ms) is given.

        The partition is that of the key, or of its first part (Key); without a key, each in turn. To feed bytes
        that the job's serdes refuse, give a Topic of that name with other serdes. Raises ConfigError, SerdeError.
        """
        partitions = self._results.partitions(topic.name, partition, written=False)
        raw_key, raw_value, raw_headers = encode_record(topic, key, value, headers)
        if partition is None and raw_key is None:
            partition = self._turns[topic.name] % len(partitions)
            self._turns[topic.name] += 1
        elif partition is None:
            assert raw_key is not None
            partition = partition_by(topic.key)(raw_key, len(partitions))
        at = self.now_ms if timestamp is None else timestamp
        cell = encode_headers(raw_headers) if raw_headers else None
        self._data.append(TopicPartition(topic.name, partition), raw_key, raw_value, at, cell)
        options = {"timestamp": at, "partition": partition} | ({"headers": headers} if headers else {})
        self.script.append(KitCall("feed", (topic, key, value), options))

    def feed_all(
        self,
        topic: Topic[K, V],
        records: Iterable[tuple[K | None, V | None] | tuple[K | None, V | None, int]],
        *,
        partition: int | None = None,
        disorder_ms: int | None = None,
        seed: int = 0,
    ) -> None:
        """Feed (key, value) or (key, value, timestamp in ms), as ``feed`` does, in the order given.

        With ``disorder_ms`` in the order of their timestamps, but for what ``seed`` shuffles: none comes behind one
        that is later by more than this. Raises ConfigError if there is no timestamp to go by.
        """
        every: list[tuple[Any, ...]] = list(records)
        if disorder_ms is not None:
            if any(len(each) < 3 for each in every):
                raise ConfigError(
                    f"feed_all: disorder_ms = {disorder_ms} needs (key, value, timestamp) for each record"
                )
            draw = random.Random(seed)  # noqa: S311  # a choice that can be repeated is the point
            every.sort(key=lambda each: each[2] + draw.randint(0, disorder_ms))
        for key, value, *timestamp in every:
            self.feed(topic, key, value, timestamp=timestamp[0] if timestamp else None, partition=partition)

    def run(self, *, crashes: int = 0, seed: int = 0) -> None:
        """Run until everything fed is processed and committed; time passes as it must.

        With timers or windows over several input partitions, until all of these are idle
        (docs/explanation/event-time.md), as `grete run` does.

        A task dies ``crashes`` times between two steps, about every third time with its disk: ``seed``
        chooses. Raises AssertionError if the job does not come to rest, or a task keeps a Key of another one.
        """
        self.script.append(KitCall("run"))
        self._host.history.faults.draw(crashes, seed)
        self._host.run()
        self._results.check_places()

    def drain(self, *, crashes: int = 0, seed: int = 0) -> None:
        """Run as `grete run --drain` does: at the end of the inputs fire what waits for event time, then stop.

        ``crashes`` and ``seed`` are for what comes behind the end; give ``run`` others before. Raises as ``run`` does.
        """
        self.script.append(KitCall("drain"))
        self._host.run(waits_for_idle=False)
        self._host.history.faults.draw(crashes, seed)
        self._host.drain()
        self._results.check_places()

    def process(self) -> None:
        """Process what can be processed while time does not pass: none is committed, so a crash rolls it back."""
        self.script.append(KitCall("process"))
        self._host.process()

    def step(self) -> str | None:
        """Let one task take one step, and return its name; None: nothing can be done while time does not pass.

        A step is the least between two crashes: to process a batch of records (one, where the setting batch_bytes_max
        is 1), to send or receive one message, to take a part of a commit. ``process`` takes all steps that there are.
        """
        return task.name if (task := self._host.step()) else None

    def advance(self, ms: int) -> None:
        """Let time pass: checkpoints close and commit, timeouts fire. Event time is another: the records'.

        An input partition that was fed nothing for event_time_idle_ms holds no timer or window back.
        """
        self.script.append(KitCall("advance", (ms,)))
        self._host.advance(ms)

    def stop(self) -> None:
        """Stop gracefully (R6): commit what is processed, close the tasks. What runs next starts them again."""
        self.script.append(KitCall("stop"))
        self._host.stop()

    def play(self, script: Iterable[KitCall]) -> None:
        """Make the calls of a script: of another kit's ``script``, or of one that a property test has drawn."""
        for call in script:
            getattr(self, call.method)(*call.arguments, **call.options)

    # --- Look ---

    def fed(self, topic: Topic[K, V], partition: int | None = None) -> list[Record[K, V]]:
        """Return the records that were fed, by partition. Raises ConfigError if the job does not read the topic."""
        return self._results.of(topic, partition, written=False)

    @overload
    def outputs(self, of: Topic[K, V], partition: int | None = None) -> list[Record[K, V]]: ...

    @overload
    def outputs(self, of: Output[None, V], partition: int | None = None) -> list[V]: ...

    @overload
    def outputs(self, of: Output[K, V], partition: int | None = None) -> list[Record[K, V]]: ...

    def outputs(self, of: Any, partition: int | None = None) -> list[Any]:
        """Return the committed records of a topic so far, as an outside reader gets them, partition by partition.

        Of an Output to files, a table or a service, as in ``Notify.out``: the values of the checkpoints that its sinks
        have taken whole, each once, in the order of each task; ``partition`` is the task's. Raises ConfigError for
        what is neither, and for an internal stream: test its writer in a job of its own.
        """
        if isinstance(of, Output) and not isinstance(of.target, Topic):
            return self._results.given(of, partition)
        return self._results.of(getattr(of, "target", of), partition, written=True)

    def pairs(self, of: Topic[K, V] | Store[K, V], partition: int | None = None) -> list[tuple[K, V]]:
        """Return (key, value) of ``outputs``, of which a dict holds the last value of each key; or those of a store.

        The entries of a store are in key order; their keys may be what no dict can hold. Raises ConfigError.
        """
        if isinstance(of, Topic):
            return [(record.key, record.value) for record in self.outputs(of, partition)]
        return self._results.entries(of, partition, None)

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
        return self._results.state(store, partition, stage)

    def text(self, *wanted: Topic[Any, Any] | Output[Any, Any] | Store[Any, Any]) -> str:
        """Return the committed content of these topics, outputs and stores, to compare; none given: all of the job.

        The records of a key are in their order; keys are sorted, as tasks that work side by side settle no order
        between them. So is what is no topic: of a table with ``key=``, the last row of each. Raises ConfigError.
        """
        return self._results.text(wanted)

    @property
    def steps(self) -> int:
        """Return the number of steps of all tasks, dead ones included."""
        return self._host.history.faults.steps

    @property
    def crashed(self) -> list[str]:
        """The tasks that ``crash_at`` and ``crashes=`` have killed so far, in order."""
        return list(self._host.history.faults.struck)

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

    def crash_at(self, step: int, *, other_host: bool = False) -> None:
        """Let the task die that will take this step, right behind it; the next step of any task is 1.

        Raises ConfigError if that step is not to come.
        """
        if step < 1:
            raise ConfigError(f"crash_at: step {step} is over; the next one is 1")
        self._host.history.faults.plan(self.steps + step, other_host=other_host)

    def crash_all(self, *, other_host: bool = False) -> None:
        """Kill every task at once, as ``crash`` does."""
        for task in self._tasks.values():
            task.crash(other_host=other_host)

    def rollback(self, stage: str | type[Task], partition: int = 0) -> None:
        """Make a living task go back to its last commit (R4): kill one whose uncommitted records it has processed.

        Calls ``process`` before and after. Raises AssertionError if it has nothing uncommitted of another stage.
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

    # --- Check ---

    def check_crashes(self, result: "Callable[[Kit], object] | None" = None, *, at_most: int = PLACES_MAX) -> int:
        """Do all that was done to this kit on new ones, each with a crash behind another step; compare the results.

        Records are processed one by one there, and ``run`` ends each script. Crashes that a test made itself are not
        repeated. Files, tables and services get nothing; what they would get is compared. ``result``: what must not
        change, by default ``text()``: for code whose results depend on its records alone, not on order between tasks.
        Of more steps than ``at_most``, those at equal distances. Returns the number of crashes tried.

        Raises AssertionError: at which crash something else came out, and the difference.
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        script = list(self.script)
        one_by_one = msgspec.structs.replace(self.settings, batch_bytes_max=1, frame_bytes_max=1)

        def play(step: int, other_host: bool) -> ScriptRun:
            with Kit(self.job, settings=one_by_one, discard_sinks=True) as kit:
                if step:
                    kit.crash_at(step, other_host=other_host)
                kit.play(script)
                kit.run()
                return ScriptRun(kit.text() if result is None else result(kit), kit.steps, kit.crashed)

        return check_crashes(play, at_most, self.job)

    def check_determinism(self) -> int:
        """Run, then replay as `grete check-determinism` does; return how many outputs were compared.

        The replays begin where the history does, at later checkpoints, and in another process, where texts have other
        hashes. That process imports the module of the job. Raises AssertionError with the first difference and the
        lines of code to look at; ConfigError for a job without such a stage, or that no module has a name for.
        """
        self.run()
        return check_determinism(self.job, self._declared, self._log, self.settings)

    def _task(self, stage: str | type[Task], partition: int) -> HostedTask:
        return self._tasks[self.job.stage(name_of(stage)).check_partition(partition).name, partition]
