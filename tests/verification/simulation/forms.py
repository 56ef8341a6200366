"""Forms that the job of a world may have on top: event time, tables, early sinks, what tasks do with records."""

import random
from dataclasses import replace

from grete.core.graph.task_topology import wire
from grete.protocol.ids import TopicPartition, split_producer_id
from tests.verification.simulation.fault_plan import draw_drain_faults
from tests.verification.simulation.feeds import as_tasks_see, expected_of, rows_of, table_of
from tests.verification.simulation.plan import NEVER_IDLE_MS, Cut, Plan, with_settings
from tests.verification.simulation.unkind import HELD_MS, MINUTES_MS, STRANGER_MS_MAX
from tests.verification.simulation.window_kinds import TUMBLING, WINDOWS

KEYS_MANY = 150
WITHOUT_HELD = 35_000_000  # seeds below are as they were: no transaction in an input is open for half an hour


def with_early_sinks(plan: Plan) -> Plan:
    """Return the same job with files instead of topics, which get outputs ahead of commits (D5).

    Of deterministic tasks only, and but for some stages.
    """
    r = random.Random(f"early sinks {plan.seed}")
    written = sorted((plan.out_partitions.keys() & plan.topology.deterministic) - plan.letters)
    early = {stage for stage in written if r.random() < 0.7}
    left = {stage: count for stage, count in plan.out_partitions.items() if stage not in early}
    return replace(with_settings(plan, sink_delivery="early"), files=plan.files | early, out_partitions=left)


def with_grouped(plan: Plan, cut: Cut) -> Plan:
    """Return the same job with topics from outside of more partitions than tasks, which each read several (A2f)."""
    r, topology = random.Random(f"grouped {plan.seed}"), plan.topology
    tasks = {topic: topology.stages[stage].partitions for stage, (topic, *_) in topology.external_inputs.items()}
    counts = {topic: tasks[topic] * r.choice((1, 2, 2, 3)) for topic in sorted(tasks)}
    rows = {
        TopicPartition(topic, number): rows_of(r, int(topic.split(".")[1]), number)[: cut.records]
        for topic, count in counts.items()
        for number in range(tasks[topic], count)
    }
    stages = tuple(
        replace(stage, counts={topic: counts[topic] for topic in topology.externals_of(stage.ordinal)})
        for stage in topology.stages
    )
    topology = replace(topology, stages=stages)
    edges = tuple((stream.producer, stream.consumer) for stream in topology.streams)
    return replace(
        plan,
        topology=topology,
        wirings={task: wire(topology, *split_producer_id(task)) for task in plan.wirings},
        inputs={**plan.inputs, **rows},
        expected=plan.expected | expected_of(edges, rows, {*plan.out_partitions, *plan.files}),
    )


def with_table(plan: Plan) -> Plan:
    """Return the same job with a table from outside beside a stage's inputs (A2c, A2d)."""
    topology, rows = table_of(plan.seed, plan.topology)
    priority = random.Random(f"priority of a table {plan.seed}").choice((1, -1, 0, 0))
    edges = tuple((stream.producer, stream.consumer) for stream in topology.streams)
    return replace(
        plan,
        topology=topology,
        wirings={task: wire(topology, *split_producer_id(task)) for task in plan.wirings},
        inputs={**plan.inputs, **rows},
        priorities={partition.topic: priority for partition in rows if priority},
        expected=plan.expected | expected_of(edges, as_tasks_see(topology, rows), {*plan.out_partitions, *plan.files}),
    )


def with_broadcast(plan: Plan) -> Plan:
    """Return the same job with a stage each task of which gets all that others send to it (A2d)."""
    streams = plan.topology.streams
    consumers = sorted({stream.consumer for stream in streams if stream.partitions > 1})
    if not consumers:
        return plan
    chosen = random.Random(f"broadcast {plan.seed}").choice(consumers)
    topology = replace(
        plan.topology,
        streams=tuple(replace(stream, broadcast=stream.consumer == chosen) for stream in streams),
    )
    wirings = {task: wire(topology, *split_producer_id(task)) for task in plan.wirings}
    return replace(plan, topology=topology, wirings=wirings)


def with_many_keys(plan: Plan) -> Plan:
    """Return the same job with checkpoints that change hundreds of keys, in slices of a few, and with a hot key."""
    knobs = replace(plan.knobs, chunk_keys=5, data_bytes=1 << 18)
    return plan if plan.tight_batch else replace(plan, wide=True, keys=KEYS_MANY, knobs=knobs)


def with_workers(plan: Plan) -> Plan:
    """Return the same job with the tasks of one number, of all stages, in one process, as a worker hosts them."""
    return replace(plan, together=not plan.damaged)


def with_packed(plan: Plan) -> Plan:
    """Return the same job with the tasks of several numbers in one process, as ``grete up --processes`` hosts them."""
    return replace(plan, packed=random.Random(f"packed {plan.seed}").choice((1, 2)))


def with_rest(plan: Plan) -> Plan:
    """Return the same job in such workers, whose idle sources close no checkpoint unless others do (A1)."""
    return with_settings(with_workers(plan), idle_checkpoint_interval_ms=NEVER_IDLE_MS)


def with_strangers(plan: Plan) -> Plan:
    """Return the same job with inputs to which others write in transactions; the embedded log has none (A2c)."""
    if plan.compare_and_append or plan.damaged:
        return plan
    r, interval_ms = random.Random(f"strangers {plan.seed}"), plan.settings.checkpoint_interval_ms
    held = plan.seed >= WITHOUT_HELD and interval_ms >= MINUTES_MS
    open_ms = HELD_MS if held else min(r.choice((2, 10, 30)) * interval_ms, STRANGER_MS_MAX)
    return replace(plan, unkind=replace(plan.unkind, strangers=r.choice((0.05, 0.2)), stranger_ms=open_ms))


def with_standbys(plan: Plan) -> Plan:
    """Return the same job with a standby of each task; not where the log itself loses what it has shown."""
    return replace(plan, standbys=not plan.damaged)


def with_event_time(plan: Plan) -> Plan:
    """Return the same job with event time in the tasks that set timers: all of them, or the last stage's (E1)."""
    if not plan.timers:
        return plan
    r = random.Random(f"event time {plan.seed}")
    stages = [stage.ordinal for stage in plan.topology.stages]
    timed = frozenset(stages[-1:] if r.random() < 0.2 else stages)
    topology = replace(plan.topology, timed=timed)
    wirings = {task: wire(topology, *split_producer_id(task)) for task in plan.wirings}
    interval = plan.settings.checkpoint_interval_ms
    idle_ms = r.choice((2 * interval, 10 * interval, NEVER_IDLE_MS, NEVER_IDLE_MS))
    plan = with_settings(plan, event_time_idle_ms=idle_ms)
    return replace(plan, topology=topology, wirings=wirings, disorder=r.choice((0, 0, 9)))


def with_windows(plan: Plan) -> Plan:
    """Return the same job with windows of another kind than tumbling ones in the tasks that set timers."""
    r = random.Random(f"windows {plan.seed}")
    return replace(plan, window=r.choice([name for name in WINDOWS if name != TUMBLING]))


def with_drain(plan: Plan) -> Plan:
    """Return the same job with an end of all inputs once they are processed, if something goes by event time (E7)."""
    may = plan.timers and not plan.damaged
    return replace(plan, drained=True, drain_faults=draw_drain_faults(plan.seed)) if may else plan


def with_expiry(plan: Plan) -> Plan:
    """Return the same job with a store whose entries expire in the tasks that set timers."""
    return replace(plan, expires=True)


def with_wall_timers(plan: Plan) -> Plan:
    """Return the same job with wall-clock timers in the tasks that set timers."""
    return replace(plan, wall=True)


def with_joins(plan: Plan) -> Plan:
    """Return the same job with a join in the tasks that set timers."""
    return replace(plan, joins=True)


def with_calls(plan: Plan) -> Plan:
    """Return the same job with stages that make calls: of those with no batches, and nothing that goes by time."""
    r, topology = random.Random(f"calls {plan.seed}"), plan.topology
    may = {stage.ordinal for stage in topology.stages} - topology.timed - plan.batches
    return plan if plan.tight_batch else replace(plan, calls=frozenset(s for s in sorted(may) if r.random() < 0.7))


def with_bursts(plan: Plan) -> Plan:
    """Return the same job with deterministic tasks of many timers in place of those with windows; some make calls."""
    r, topology = random.Random(f"bursts {plan.seed}"), plan.topology
    bursts = (topology.timed & topology.deterministic) - plan.batches
    calls = frozenset(s for s in sorted(bursts) if r.random() < 0.5 and not plan.tight_batch)
    letters, once = plan.letters - bursts, plan.once - bursts
    return replace(plan, bursts=bursts, calls=plan.calls | calls, letters=letters, once=once)


def with_forms(plan: Plan) -> Plan:
    """Return the same job with stages that use the forms which an input and its task may have."""
    r, topology = random.Random(f"forms {plan.seed}"), plan.topology
    stages = [stage.ordinal for stage in topology.stages]
    batches = frozenset(s for s in stages if r.random() < 0.3) - topology.deterministic
    once = frozenset(s for s in stages if r.random() < 0.5 and s in topology.timed and s in topology.external_inputs)
    letters = frozenset(s for s in stages if r.random() < 0.3 and s in plan.out_partitions) - once
    return replace(plan, letters=letters, batches=batches, once=once)


def with_numbers(plan: Plan) -> Plan:
    """Return the same job with inputs that come out of order, too, where they bring some records twice.

    Half of the stages that drop repeats know them by their numbers.
    """
    r = random.Random(f"numbers {plan.seed}")
    return replace(
        plan, numbered=frozenset(s for s in sorted(plan.once) if r.random() < 0.5), reordered=r.random() < 0.7
    )
