"""Builds one task from core, overlay, user code and driver: the same for a worker and for the test kit."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import fields

from grete.api.jobs.graph import StageGraph
from grete.api.tasks.context import Context, wall_clock_us
from grete.core.aligned.task import TaskCore
from grete.core.deterministic.task import DeterministicCore
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Topology
from grete.core.limits import Limits
from grete.errors import ConfigError
from grete.execution.calls.clocked import ClockedCalls
from grete.execution.calls.ports import Caller
from grete.execution.deterministic.mode import DeterministicMode
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.deterministic.processor import LogicalProcessor
from grete.execution.engine.aligned_mode import AlignedMode
from grete.execution.engine.driver import TaskDriver
from grete.execution.engine.joint_progress import JointProgress
from grete.execution.engine.task_io import TaskIO
from grete.execution.engine.task_parts import COVERED_TOKEN, TaskParts
from grete.execution.inputs.early_frames import SpilledFrames
from grete.execution.job_task import JobTask
from grete.execution.limits import progress_pace_ms
from grete.execution.records.outputs import Outputs
from grete.execution.records.topic_names import NamesInMemory, TopicNames
from grete.execution.records.trace_context import NoTracing
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import MakeSinks, no_sinks, sinks_of
from grete.execution.task_code.ports import CommitTracing, Runner, SpillStore, TaskTracing
from grete.execution.task_code.processor import CheckKeys, Processor
from grete.execution.task_code.record_times import input_times
from grete.execution.timing.reserved_stores import OUTBOX
from grete.ports import Log, StateStore
from grete.protocol.changelog_position import decode_changelog_position
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.stores.overlay.overlay import Overlay


def limits_of(settings: Settings) -> Limits:
    """Return the settings that the core needs."""
    return Limits(**{each.name: getattr(settings, each.name) for each in fields(Limits)})


def store_names(graph: StageGraph) -> dict[int, str]:
    """Return id → name of all stores of a stage's tasks, as a StateStore is opened with them."""
    return {store_id: name for name, store_id in graph.store_ids().items()}


def writes_outside(graph: StageGraph, topology: Topology) -> bool:
    """Tell whether a stage's tasks write topics outside of the job."""
    inside = {stream.user_topic for stream in topology.streams_out_of(graph.ordinal)}
    written = graph.topics_written()
    return bool(graph.dead_letters() or graph.patterns()) or any(
        topic.public or topic.name not in inside for topic in written
    )


def _counts(graph: StageGraph, log: Log) -> Callable[[str], int | None]:
    """Return a function: topic → partitions that a task writes to, as pinned, whatever the topic has now."""
    return lambda topic: graph.pinned_counts.get(topic) or log.partitions(topic)


def _connect(
    log: Log, owner: int, changelog: TopicPartition, changelog_position: bytes | None, *, transactions: bool
) -> None:
    """Let the log connect its producer of outputs: on Kafka the first outputs would wait half a second for it."""
    if transactions:
        log.transactional(
            changelog, -1 if changelog_position is None else decode_changelog_position(changelog_position).offset
        )
    else:
        log.produce(owner, COVERED_TOKEN, ())


def check_stage(graph: StageGraph, topology: Topology, settings: Settings) -> None:
    """Raise ConfigError for a stage that cannot keep the processing guarantee."""
    guarantee = settings.processing_guarantee
    if graph.mode == "deterministic" and guarantee != "exactly-once":
        raise ConfigError(
            f"stage {graph.name!r} is deterministic, which is exactly once: drop the setting processing_guarantee = "
            f"{guarantee}, or the mode",
            stage=graph.name,
            setting="processing_guarantee",
        )
    if (graph.goes_by_time or graph.timers) and guarantee == "none":
        raise ConfigError(
            f"stage {graph.name!r} has timers, a window, an input with deduplicate or a store with ttl_ms: what a "
            "crash takes back of these would be done a second time, so a timer could fire twice. Drop the setting "
            "processing_guarantee = none, or these",
            stage=graph.name,
            setting="processing_guarantee",
        )
    if guarantee == "at-most-once" and (why := _reads_in_parts(graph, topology)):
        raise ConfigError(
            f"stage {graph.name!r} {why}. Read the topic in a first stage of its own, which sends its records on, or "
            "drop the setting processing_guarantee = at-most-once",
            stage=graph.name,
            setting="processing_guarantee",
        )


def _reads_in_parts(graph: StageGraph, topology: Topology) -> str:
    """Return the reason why a crash could not skip a record as a whole; empty: it can."""
    topics = topology.externals_of(graph.ordinal)
    if whole := topology.broadcast.get(graph.ordinal):
        return f"reads all of topic {min(whole)} in each task, and a crash would skip a record in one task alone"
    for other in topology.stages if topics else ():
        both = {*topics} & {*topology.externals_of(other.ordinal)}
        if both and other.ordinal != graph.ordinal:
            return f"reads topic {min(both)}, as {other.name!r} does, and a crash would skip a record in one alone"
    if topics and topology.streams_into(graph.ordinal):
        return (
            f"reads topic {topics[0]} beside what other stages send: when it rolls back with them, what it has read "
            "from outside would be skipped without a failure of its own"
        )
    return ""


def _overlay(graph: StageGraph, store: StateStore, settings: Settings) -> Overlay:
    uncommitted_bytes, cache_bytes = settings.uncommitted_state_bytes_max, settings.read_cache_bytes_max
    return Overlay(
        store,
        list(store_names(graph)),
        uncommitted_state_bytes_max=uncommitted_bytes,
        read_cache_bytes_max=cache_bytes,
        expiring=graph.expiring_ids(),
    )


def _tracing(
    graph: StageGraph, topology: Topology, wiring: TaskWiring, settings: Settings, *, again: bool
) -> tuple[TaskTracing, CommitTracing | None]:
    """Return the tracing of records and commits; ``again``: it tells no spans, as history only runs again.

    Nothing of it is imported with tracing off. Raises ConfigError without the extra.
    """
    if settings.tracing == "off":
        return NoTracing(), None
    from grete.execution.engine.tracing import CommitSpans, NoSpans, RecordTracing, TellsSpans

    spans: TellsSpans = NoSpans()
    if not again:
        try:
            from grete.execution.engine.spans import Spans
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("opentelemetry"):
                raise
            raise ConfigError(
                "setting tracing = on needs the extra otel: pip install 'grete[otel]', or leave tracing off",
                setting="tracing",
            ) from error
        spans = Spans(topology.job, graph.name, wiring.changelog.partition)
    commits = CommitSpans(topology, wiring, settings.traced_per_million, spans)
    return RecordTracing(topology, graph.ordinal, wiring, settings, spans), commits


def aligned_driver(owner: int, core: TaskCore, runner: Runner, io: TaskIO) -> TaskDriver:
    """Return the driver of a task in aligned mode, at least once or without a guarantee."""
    parts, early = TaskParts(owner, core, runner, io), SpilledFrames(io.spill)
    return TaskDriver(parts, AlignedMode(parts, core, early), store=io.store, early=early)


def deterministic_driver(owner: int, core: DeterministicCore, runner: LogicalProcessor, io: TaskIO) -> TaskDriver:
    """Return the driver of a task in deterministic mode."""
    parts, early = TaskParts(owner, core, runner, io), SpilledFrames(io.spill)
    return TaskDriver(parts, DeterministicMode(parts, core, runner), store=io.store, early=early)


def assemble(
    graph: StageGraph,
    topology: Topology,
    partition: int,
    *,
    owner: int,
    log: Log,
    store: StateStore,
    spill: SpillStore,
    settings: Settings,
    mono_ms: Callable[[], float],
    wall_us: Callable[[], int] = wall_clock_us,
    executor: Executor | None = None,
    sinks: MakeSinks = sinks_of,
    check_keys: CheckKeys | None = None,
    caller: Caller | None = None,
    gathers: bool = False,
    joint: JointProgress | None = None,
    names: TopicNames | None = None,
) -> TaskDriver:
    """Return the driver of task (graph, partition) over an open store; ``owner`` marks its deliveries.

    ``wall_us``: the wall clock. ``executor`` runs what may take long: by default at once, so that nothing happens
    beside the driver. ``sinks`` makes the sinks of its files and tables: ``no_sinks`` where history is only replayed.
    ``check_keys`` sees the keys of external inputs before they are processed. ``caller`` makes the calls of an async
    process: by default at the pace of ``mono_ms``. ``gathers``: outputs to the tasks behind may wait for more.
    ``names`` knows the topics that records name; by default topics of this log, which no other process has.
    ``joint`` announces the progress of a deterministic task, with that of others, if its streams have many partitions.
    """
    check_stage(graph, topology, settings)
    overlay = _overlay(graph, store, settings)
    wiring, aligned = wire(topology, graph.ordinal, partition), settings.aligned
    at_once = graph.mode == "deterministic" and settings.output_delivery == "sequenced"
    outside = writes_outside(graph, topology)
    releases = outside and not at_once
    if outside:
        _connect(log, owner, wiring.changelog, store.changelog_position(), transactions=aligned and releases)
    logical = LogicalOutputs(topology.job, wiring, releases=releases) if graph.mode == "deterministic" else None
    names = NamesInMemory(log) if names is None else names
    outputs = Outputs(graph, topology, settings, _counts(graph, log), mode=logical, names=names)
    times = input_times(graph, wall_us)
    tracing, commit_spans = _tracing(graph, topology, wiring, settings, again=sinks is no_sinks)
    clocks = mono_ms, times, graph.priorities(), wall_us
    pace_ms = 0 if joint is None else progress_pace_ms(len(wiring.outputs), settings.progress_interval_ms)
    io = TaskIO(log, store, overlay, spill, settings, *clocks, commit_spans, gathers, joint if pace_ms else None)
    caller = ClockedCalls(mono_ms) if caller is None else caller
    task = JobTask(graph, topology, partition)
    early_us = logical.now_us if logical is not None and settings.sink_delivery == "early" else None
    outbox = Outbox(task.owner, overlay.store(OUTBOX), settings, executor, sinks, early_us)
    if logical is not None:
        code = LogicalProcessor(task, overlay, outputs, outbox, logical=logical, caller=caller)
        code.check_keys, code.instance.tracing = check_keys, tracing
        # what files and tables of any stage have got ahead of its commit does not go with a log that loses its power
        durable = settings.sink_delivery == "early"
        core = DeterministicCore(wiring, limits_of(settings), releases=releases, durable=durable, pace_ms=pace_ms)
        return deterministic_driver(owner, core, code, io)
    context = Context(wall_us)
    runner = Processor(task, overlay, outputs, outbox, context=context, caller=caller)
    runner.check_keys, runner.instance.tracing = check_keys, tracing
    return aligned_driver(owner, TaskCore(wiring, limits_of(settings), aligned=aligned), runner, io)
