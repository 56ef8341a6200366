"""Replays a stretch of a deterministic job's history in memory, and compares the outputs with those in the log (D3).

The same driver, core and code run over a log in memory. Its changelogs hold the state of one commit of each task, and
of each source the input decisions that follow: no choice is left, and every output must equal the one in the log.
The replay only reads what belongs to the job: it holds the log by its ``LogReader`` half, which has no method that
writes, and what the tasks send to files and tables is dropped (``no_sinks``).
"""

from typing import NamedTuple

from msgspec.structs import replace

from grete.api.jobs.job import Job
from grete.core.deterministic.logical_watermarks import step_at
from grete.core.graph.task_topology import TaskWiring, wire
from grete.errors import ConfigError, FrameworkError
from grete.execution.job_task import JobTask
from grete.execution.sinks.sink_targets import no_sinks
from grete.job.topics import create_topics
from grete.ports import Log, LogReader
from grete.protocol.changelog import InputDecision
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.replay.follows import follows
from grete.replay.history import HostedTask, MemoryHistory, UntrimmedLog
from grete.replay.recorded import MadeOutput, MadeOutputs, decided_rows, made_in_streams, made_outside, state_at
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.recorded_task import RecordedTask, recorded_task

STEPS_MAX = 20_000  # of time passing without end: 100 s of progress messages


class Difference(NamedTuple):
    """The first output that came out otherwise. ``before``: as the log holds it, ``now``: as it was made, if it was."""

    partition: TopicPartition
    producer: str
    seq: int
    before: MadeOutput
    now: MadeOutput | None


class ReplayResult(NamedTuple):
    """The result of a replay. ``halted``: the reason if it did not reach its end.

    ``restarts``: later checkpoints with records before and behind them: another replay may begin there.
    """

    records: int  # taken in by sources
    compared: int  # outputs that the log holds and that were made again
    difference: Difference | None
    halted: str | None
    restarts: tuple[int, ...] = ()


def replay(job: Job, log: LogReader, settings: Settings, since: int = 0) -> ReplayResult:
    """Replay the history of a job, from the commits of its sources at checkpoint ``since`` or the first ones after it.

    Raises ConfigError if the log does not hold enough of it.
    """
    for stage, topics in job.topology().broadcast.items():
        if topics and stage in job.topology().deterministic:
            raise ConfigError(
                f"stage {job.stages[stage].name} reads all of topic {min(topics)} in each task (broadcast=True), which "
                "a replay cannot do yet: check a job in which that topic has its own stage, which sends it on",
                topic=min(topics),
            )
    wirings = _in_order(job)
    recorded_tasks = {wiring.producer: recorded_task(log, wiring.changelog) for wiring in wirings}
    begins = _begins(wirings, recorded_tasks, since)
    made = _made(job, wirings, log)
    times = [decision.last_t for recorded in recorded_tasks.values() for decision in recorded.decisions]
    times += [each.t for outputs in made for by_seq in outputs.values() for each in by_seq.values()]  # a timer's: later
    history = MemoryHistory(1 + max(times, default=0) // 1_000, UntrimmedLog)
    _create_topics(job, log, history.log)
    records = 0
    for wiring in wirings:
        begin, decisions = begins[wiring.producer], recorded_tasks[wiring.producer].decisions
        decisions = [decision for decision in decisions if decision.first_t > _last_t(begin)]
        state = state_at(log, wiring.changelog, begin.checkpoint_id)
        decided = [*decisions, *recorded_tasks[wiring.producer].calls]
        history.begin_at(wiring.changelog, _from_start(begin), state, decided)
        for partition in wiring.external:
            rows = decided_rows(log, partition, decisions)
            external = {TopicPartition(e.topic, e.partition): e.offset for e in begin.external}
            history.put(partition, rows[0].offset if rows else external.get(partition, 0), rows)
            records += len(rows)
    halted = _run(job, settings, history, records)
    found = _compare(job, made, _made(job, wirings, history.log), records, halted)
    return found._replace(restarts=_restarts(wirings, recorded_tasks, begins))


def _create_topics(job: Job, log: LogReader, memory: Log) -> None:
    """Create the topics of the replay. An output topic has as many partitions as in ``log``, not as the job."""
    for topic in job.external_sinks():
        memory.create_topic(topic, log.partitions(topic) or job.count_of(topic), plain=True)
    topology = job.topology()
    read = {topic for stage in job.stages for topic in topology.externals_of(stage.ordinal)}
    create_topics(job, memory, fed=read)  # what is there stays


def _in_order(job: Job) -> list[TaskWiring]:
    """Return the wirings of the deterministic tasks, producers before their consumers."""
    topology = job.topology()
    ordinals: list[int] = []
    left = [stage for stage in job.stages if stage.mode == "deterministic"]
    if not left:
        raise ConfigError(f"job {job.name!r} has no deterministic stage: there is nothing to check")
    while left:
        ready = [s for s in left if all(up.producer in ordinals for up in topology.streams_into(s.ordinal))]
        ordinals += [stage.ordinal for stage in ready]
        left = [stage for stage in left if stage not in ready]
    return [wire(topology, ordinal, p) for ordinal in ordinals for p in range(job.stages[ordinal].partitions)]


def _begins(wirings: list[TaskWiring], recorded_tasks: dict[int, RecordedTask], since: int) -> dict[int, Commit]:
    """Return a commit of each task such that its producers, from theirs on, make all that it has not included."""
    begins: dict[int, Commit] = {}
    for wiring in wirings:
        for commit in recorded_tasks[wiring.producer].commits:
            if commit.checkpoint_id >= since and follows(commit, begins, timed=wiring.keeps_time):
                begins[wiring.producer] = commit
                break
        else:
            raise ConfigError(
                f"{wiring.name}: its changelog holds no commit to begin with: nothing is committed yet, or too little "
                "is kept (setting changelog_retention_ms), or --since is too late",
                task=wiring.name,
                setting="changelog_retention_ms",
            )
    return begins


def _restarts(
    wirings: list[TaskWiring], recorded_tasks: dict[int, RecordedTask], begins: dict[int, Commit]
) -> tuple[int, ...]:
    """Return the checkpoints after ``begins`` that a replay of some records may begin from."""
    sources = [recorded_tasks[wiring.producer] for wiring in wirings if not wiring.channels]
    first = max(begins[wiring.producer].checkpoint_id for wiring in wirings if not wiring.channels)
    later = {commit.checkpoint_id for source in sources for commit in source.commits if commit.checkpoint_id > first}
    records = _records_after(wirings, recorded_tasks, begins)
    found = []
    for checkpoint_id in sorted(later):
        try:
            restart = _begins(wirings, recorded_tasks, checkpoint_id)
        except ConfigError:  # it is too late for one of the tasks
            break
        if 0 < _records_after(wirings, recorded_tasks, restart) < records:
            found.append(checkpoint_id)
    return tuple(found)


def _records_after(
    wirings: list[TaskWiring], recorded_tasks: dict[int, RecordedTask], begins: dict[int, Commit]
) -> int:
    return sum(
        decision.records
        for wiring in wirings
        for decision in recorded_tasks[wiring.producer].decisions
        if isinstance(decision, InputDecision) and decision.first_t > _last_t(begins[wiring.producer])
    )


def _last_t(begin: Commit) -> int:
    """Return the logical time up to which a commit includes the decisions of its source."""
    return -1 if begin.deterministic is None else begin.deterministic.last_t


def _from_start(begin: Commit) -> Commit:
    """Return a commit whose task reads streams that its producers write again, from their first message on."""
    inputs = (
        replace(e, resume=0, channels=tuple(replace(c, recovery_offset=0, generation=0) for c in e.channels))
        for e in begin.inputs
    )
    return replace(begin, inputs=tuple(inputs))


def _run(job: Job, settings: Settings, history: MemoryHistory, records: int) -> str | None:
    """Let all tasks run until what was decided has gone through; return why that failed."""
    tasks = [
        HostedTask(JobTask(stage, job.topology(), partition), settings, history, no_sinks)
        for stage, partition in job.tasks()
        if stage.mode == "deterministic"
    ]
    last_t = step_at(history.now_ms * 1_000)

    def is_through() -> bool:
        replayed = sum(task.counters["replayed records"] for task in tasks)
        return replayed >= records and all(_is_through(task, last_t) for task in tasks)

    try:
        if history.run(tasks, is_through, step_ms=lambda: settings.progress_interval_ms, steps_max=STEPS_MAX):
            return None
    except FrameworkError as error:
        return str(error)
    return "time does not pass: the job does not come to its end"


def _is_through(task: HostedTask, last_t: int) -> bool:
    driver = None if task.process is None else task.process.driver
    if driver is None or not driver.running:
        return False
    if driver.wiring.channels:
        return driver.core.reached_t >= last_t and not driver.core.inputs.holds_input
    return driver.mode.settled


def _task_name(job: Job, producer: int | str) -> str:
    if isinstance(producer, str):
        return producer.rpartition("/")[2]
    stage, number = split_producer_id(producer)
    return f"{job.stages[stage].name}-{number}"


def _made(job: Job, wirings: list[TaskWiring], log: LogReader) -> list[MadeOutputs]:
    """Return the records of deterministic tasks, by where they are read: in streams, then outside."""
    readers = [wiring for wiring in wirings if wiring.channels]
    readers += [wiring for wiring in all_wirings(job) if wiring.logical]
    streams = [made_in_streams(log, wiring) for wiring in readers]
    return [*streams, *(made_outside(log, topic) for topic in job.external_sinks())]


def _compare(
    job: Job, real: list[MadeOutputs], again: list[MadeOutputs], records: int, halted: str | None
) -> ReplayResult:
    """Compare both logs, record by record; the first difference is that of the least logical time."""
    compared = 0
    differences: list[tuple[int, int, Difference]] = []
    for place, (before, now) in enumerate(zip(real, again, strict=True)):
        for (partition, producer), made in before.items():
            remade = now.get((partition, producer), {})
            first = min(remade, default=1)
            reach = max((each.t for each in remade.values()), default=-1)
            name = _task_name(job, producer)
            for seq, was in made.items():
                if seq < first:
                    continue
                found = remade.get(seq)
                compared += found is not None
                if found != was and (found is not None or was.t <= reach):
                    differences.append((was.t, place, Difference(partition, name, seq, was, found)))
    difference = min(differences, key=lambda each: each[:2])[2] if differences else None
    return ReplayResult(records, compared, difference, halted)
