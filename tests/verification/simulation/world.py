"""The world of a seed: a random job, random settings, random inputs and a random load of faults."""

import random
from dataclasses import replace
from typing import Literal

import msgspec

from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology, stream_topic
from grete.execution.build import limits_of
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from tests.verification.simulation.fault_plan import (
    DAMAGED,
    DAMAGES,
    LOGICAL_DAMAGES,
    draw_faults,
    with_hours,
    with_unkind,
)
from tests.verification.simulation.feeds import expected_of, rows_of
from tests.verification.simulation.forms import (
    with_broadcast,
    with_bursts,
    with_calls,
    with_drain,
    with_early_sinks,
    with_event_time,
    with_expiry,
    with_forms,
    with_grouped,
    with_joins,
    with_many_keys,
    with_numbers,
    with_packed,
    with_rest,
    with_standbys,
    with_strangers,
    with_table,
    with_wall_timers,
    with_windows,
    with_workers,
)
from tests.verification.simulation.plan import (
    JOB,
    WHOLE,
    Cut,
    Knobs,
    Plan,
    World,
    with_settings,
)
from tests.verification.simulation.shapes import SHAPES
from tests.verification.simulation.unkind import MINUTES_MS, draw_unkind, minutes_apart

ROOMY = 1 << 20
TIGHT_BYTES = 3000  # of a write batch: twice what a batch of 200 bytes makes dirty
# below, no seed draws a table, a broadcast stream, minutes or disorder by itself: known mutants die in these worlds
WITHOUT_TABLES = 300
WITHOUT_JOINS = 10_000_000  # likewise; so the seeds that are known to find mutants have none
WITHOUT_EXPIRY = 20_000_000  # likewise
WITHOUT_CALLS = 30_000_000  # likewise
WITHOUT_WALL = 30_000_000  # likewise, of wall-clock timers
WITHOUT_DRAIN = 30_200_000  # likewise
WITHOUT_PACKED = 30_300_000  # likewise, of processes that have the tasks of several numbers
WITHOUT_STANDBYS = 30_400_000  # likewise
WITHOUT_REST = 33_000_000  # likewise, of sources that close no checkpoint unless others do
WITHOUT_GATHERED = 36_000_000  # likewise, of outputs that wait for more
WITHOUT_STRANGERS = 33_100_000  # likewise, of transactions that others have open in inputs
BURSTS = range(36_000_000, 1_000_000_000)  # draw tasks of many timers; known seeds of before lie on both sides
GROUPED = range(80_000_000, 1_000_000_000)  # draw topics of more partitions than tasks; known seeds lie on both sides
JOINT = range(81_000_000, 1_000_000_000)  # may announce progress together
WITHOUT_EARLY = 300  # likewise: in deterministic tasks no files get outputs ahead of commits


def _deterministic(plan: Plan) -> Plan:
    """Return the same job in deterministic mode: sources alone read from the outside, outputs go to topics alone."""
    r = random.Random(f"deterministic {plan.seed}")
    topology = plan.topology
    sources = {s for s in topology.external_inputs if topology.is_source(s)}
    external = {s: topology.external_inputs[s] for s in sorted(sources)}
    topology = replace(topology, external_inputs=external)
    longer = plan.shape.endswith("diamond") and r.random() < 0.6
    if longer:  # where two records of one time meet, somebody has to listen
        topology = _longer(topology, 2)
    topology = replace(topology, deterministic=frozenset(range(len(topology.stages))))
    settings = msgspec.structs.replace(
        plan.settings,
        output_delivery=_output_delivery(plan),
        early_memory_bytes_max=r.choice((0, 150, 1000, ROOMY, ROOMY)),
        progress_interval_ms=r.choice((5, 10, 40)),
        time_lease_ms=r.choice((10, 60, 200)),
    )
    shape = f"{plan.shape}, and on" if longer else plan.shape
    plan = _remade(replace(plan, shape=shape, settings=settings, aligned=False), topology, r, files=frozenset())
    if random.Random(f"damaged {plan.seed}").random() >= DAMAGED:
        return plan
    faults = draw_faults(plan.seed, len(plan.faults), damaged=True, damages=(*LOGICAL_DAMAGES, *DAMAGES))
    return replace(plan, faults=faults, damaged=True)


def _mixed(plan: Plan) -> Plan:
    """Return the same job with its first stages in deterministic mode, and aligned ones behind them (A2b)."""
    r = random.Random(f"mixed {plan.seed}")
    topology = plan.topology if plan.topology.streams else _longer(plan.topology, r.choice((1, 2, 3)))
    first = _first_stages(topology, r)
    external = {s: t for s, t in topology.external_inputs.items() if s not in first or topology.is_source(s)}
    topology = replace(topology, external_inputs=external, deterministic=first)
    settings = msgspec.structs.replace(
        plan.settings,
        output_delivery=_output_delivery(plan),
        progress_interval_ms=r.choice((5, 10, 40)),
        time_lease_ms=r.choice((10, 60, 200)),
    )
    shape = f"{plan.shape}, {''.join(topology.stages[s].name for s in sorted(first))} deterministic"
    return _remade(replace(plan, shape=shape, settings=settings, aligned=True), topology, r, files=plan.files - first)


def _output_delivery(plan: Plan) -> Literal["transactional", "sequenced"]:
    return "sequenced" if random.Random(f"release {plan.seed}").random() < 0.4 else "transactional"


def _first_stages(topology: Topology, r: random.Random) -> frozenset[int]:
    """Return stages that read of stages only each other, and of which another reads."""
    producers = {s.ordinal: {stream.producer for stream in topology.streams_into(s.ordinal)} for s in topology.stages}
    first = set[int]()
    for stage, reads in producers.items():
        if reads <= first and r.random() < 0.6:
            first.add(stage)
    if any(stream.producer in first and stream.consumer not in first for stream in topology.streams):
        return frozenset(first)
    left, first = [r.choice(topology.streams).producer], set()
    while left:
        first.add(left[-1])
        left += producers[left.pop()]
    return frozenset(first)


def _remade(plan: Plan, topology: Topology, r: random.Random, *, files: frozenset[int]) -> Plan:
    """Return the plan with another topology that has deterministic stages, and what follows from that."""
    inputs = {p: rows for p, rows in plan.inputs.items() if int(p.topic.split(".")[1]) in topology.external_inputs}
    edges = tuple((stream.producer, stream.consumer) for stream in topology.streams)
    added = [len(topology.stages) - 1] if len(topology.stages) > len(plan.topology.stages) else []
    writes = {*plan.out_partitions, *plan.files, *added}
    settings = msgspec.structs.replace(
        plan.settings,
        processing_guarantee="exactly-once",
        uncommitted_state_bytes_max=1 << 24,
        downstream_lag_messages_max=1000,
    )
    return replace(
        plan,
        topology=topology,
        wirings={
            w.producer: w for s in topology.stages for p in range(s.partitions) for w in (wire(topology, s.ordinal, p),)
        },
        out_partitions={s: plan.out_partitions.get(s, r.choice((1, 2))) for s in sorted(writes - files)},
        settings=settings,
        limits=limits_of(settings),
        inputs=inputs,
        expected=expected_of(edges, inputs, writes),
        faults=draw_faults(plan.seed, r.randint(6, 18), damaged=False),
        files=files,
        timers=r.random() < 0.5,
        damaged=False,
        tight_batch=False,
    )


def _longer(topology: Topology, partitions: int) -> Topology:
    """Return the job with one more stage behind its last one."""
    ordinal = len(topology.stages)
    last, stage = topology.stages[-1], Stage("abcde"[ordinal], ordinal, partitions)
    stream = Stream(stream_topic(JOB, last.name, "x", stage.name), last.ordinal, ordinal, partitions, f"x{ordinal}")
    return replace(topology, stages=(*topology.stages, stage), streams=(*topology.streams, stream))


def make_plan(seed: int, cut: Cut = WHOLE, world: World = "aligned") -> Plan:
    """Return a world of a seed, cut down as asked but for its faults; the same one in every process."""
    plan = _make_plan(seed, cut)
    idle = random.Random(f"idle {seed}").choice((1, 1, 3, 8))
    plan = with_settings(plan, idle_checkpoint_interval_ms=idle * plan.settings.checkpoint_interval_ms)
    plan = plan if world == "aligned" else _deterministic(plan) if world == "deterministic" else _mixed(plan)
    plan = with_forms(with_event_time(plan))
    plan = with_numbers(plan) if seed >= WITHOUT_TABLES else plan
    has_windows = seed >= WITHOUT_TABLES and random.Random(f"kinds of windows {seed}").random() < 0.4
    plan = with_windows(plan) if has_windows else plan
    has_joins = seed >= WITHOUT_JOINS and random.Random(f"with joins {seed}").random() < 0.25
    plan = with_joins(plan) if has_joins else plan
    has_expiry = seed >= WITHOUT_EXPIRY and random.Random(f"with expiry {seed}").random() < 0.4
    plan = with_expiry(plan) if has_expiry else plan
    has_wall = seed >= WITHOUT_WALL and random.Random(f"with wall-clock timers {seed}").random() < 0.4
    plan = with_wall_timers(plan) if has_wall else plan
    interval_ms = plan.settings.checkpoint_interval_ms
    unkind = draw_unkind(seed, world, interval_ms, compare_and_append=plan.compare_and_append)
    plan = replace(plan, unkind=unkind, faults=with_unkind(seed, plan.faults))
    if interval_ms >= MINUTES_MS:
        plan = replace(plan, faults=with_hours(seed, plan.faults))
    has_broadcast = seed >= WITHOUT_TABLES and random.Random(f"broadcast stream {seed}").random() < 0.15
    plan = with_broadcast(plan) if has_broadcast else plan
    has_many_keys = seed >= WITHOUT_TABLES and random.Random(f"many keys {seed}").random() < 0.08
    plan = with_many_keys(plan) if has_many_keys else plan
    has_workers = seed >= WITHOUT_TABLES and random.Random(f"workers {seed}").random() < 0.3
    plan = with_workers(plan) if has_workers else plan
    if seed in GROUPED and random.Random(f"with groups {seed}").random() < 0.5:
        plan = with_grouped(plan, cut)
    has_table = seed >= WITHOUT_TABLES and not plan.damaged and random.Random(f"table {seed}").random() < 0.25
    plan = with_table(plan) if has_table and cut == WHOLE else plan
    has_packed = seed >= WITHOUT_PACKED and not has_table and random.Random(f"is packed {seed}").random() < 0.5
    plan = with_packed(plan) if has_packed and has_workers else plan
    has_rest = (
        seed >= WITHOUT_REST and has_workers and world == "aligned" and random.Random(f"rests {seed}").random() < 0.5
    )
    plan = with_rest(plan) if has_rest else plan
    has_calls = seed >= WITHOUT_CALLS and random.Random(f"with calls {seed}").random() < 0.3
    plan = with_calls(plan) if has_calls else plan
    if seed in BURSTS and random.Random(f"with bursts {seed}").random() < 0.4:
        plan = with_bursts(plan)
    if seed >= WITHOUT_DRAIN and random.Random(f"drain {seed}").random() < 0.6:
        plan = with_drain(plan)
    if seed >= WITHOUT_STANDBYS and random.Random(f"standbys of {seed}").random() < 0.3:
        plan = with_standbys(plan)
    if seed >= WITHOUT_STRANGERS and random.Random(f"strangers of {seed}").random() < 0.4:
        plan = with_strangers(plan)
    if seed >= WITHOUT_GATHERED and random.Random(f"gathers {seed}").random() < 0.6:
        plan = replace(plan, gathers=True)
    if seed in JOINT and random.Random(f"joint {seed}").random() < 0.6:
        plan = replace(plan, joint=plan.deterministic and plan.together)
    has_early = seed >= WITHOUT_EARLY and random.Random(f"early {seed}").random() < 0.4
    return with_early_sinks(plan) if has_early else plan


def _make_plan(seed: int, cut: Cut) -> Plan:
    r = random.Random(seed)
    shape, stages, edges, _ = r.choices(SHAPES, weights=[entry[3] for entry in SHAPES])[0]
    aligned = r.random() < 0.88
    tight_batch = r.random() < 0.15
    keys = r.choice((4, 10)) if tight_batch else r.choice((1, 4, 12, 40))
    counts = [r.choice((1, 1, 2, 2, 3, 4)) if stages < 4 else r.choice((1, 1, 2)) for _ in range(stages)]
    if cut.tasks is not None:
        counts = [min(count, cut.tasks) for count in counts]
    reads = {s for s in range(stages) if all(consumer != s for _, consumer in edges) or r.random() < 0.2}
    writes = {s for s in range(stages) if all(producer != s for producer, _ in edges) or r.random() < 0.12}
    topology = Topology(
        JOB,
        tuple(Stage("abcd"[s], s, counts[s]) for s in range(stages)),
        tuple(Stream(stream_topic(JOB, "abcd"[p], "x", "abcd"[c]), p, c, counts[c], f"x{c}") for p, c in edges),
        {s: (f"in.{s}",) for s in sorted(reads)},
    )
    inputs = {TopicPartition(f"in.{s}", p): rows_of(r, s, p) for s in sorted(reads) for p in range(counts[s])}
    if cut.records is not None:
        inputs = {partition: rows[: cut.records] for partition, rows in inputs.items()}
    settings = _settings(r, aligned=aligned, tight_batch=tight_batch, keys=keys)
    settings = minutes_apart(seed, settings) if seed >= WITHOUT_TABLES else settings
    of_itself = random.Random(f"more {seed}")
    damaged = aligned and of_itself.random() < DAMAGED
    files = frozenset(s for s in sorted(writes) if of_itself.random() < 0.35 and not tight_batch)
    out_partitions = {s: r.choice((1, 2)) for s in sorted(writes) if s not in files}
    return Plan(
        seed=seed,
        shape=shape,
        topology=topology,
        wirings={w.producer: w for s in range(stages) for p in range(counts[s]) for w in (wire(topology, s, p),)},
        out_partitions=out_partitions,
        settings=settings,
        limits=limits_of(settings),
        knobs=Knobs(
            r.choice((1, 2, 5)),
            r.choice((0.03, 0.06, 0.2, 8.0)),
            r.choice((1, 40, 1 << 16)),
            r.choice((1, 60, 1 << 18)),
            r.choice((1, 6, 64)),
            (0, 500, 1 << 19)[seed % 3],
            5 if tight_batch else 1_000,
        ),
        aligned=aligned,
        compare_and_append=r.random() < 0.4,
        inputs=inputs,
        expected=expected_of(edges, inputs, writes),
        keys=keys,
        steps=r.randint(500, 900),
        faults=draw_faults(seed, r.randint(6, 18), damaged=damaged),
        repeat_rate=r.choice((0, 0, 0.01, 0.05)),
        reluctance=tuple(r.choice((0.0, 0.0, 0.5, 0.9)) for _ in range(7)),
        pace=r.choice((0.25, 0.5, 1.0)),
        external_start=r.choice((0, 0, 7)),
        files=files,
        timers=of_itself.random() < 0.35 and not tight_batch,  # they may grow beyond a tight write batch
        disorder=0,
        damaged=damaged,
        tight_batch=tight_batch,
    )


def _settings(r: random.Random, *, aligned: bool, tight_batch: bool, keys: int) -> Settings:
    batch = r.choice((1, 200, 200)) if tight_batch else r.choice((1, 200, 200, 1000))
    # two stores: all keys of a task that closes by its alignment fit, those of a source do not
    batch_bytes = max(TIGHT_BYTES, keys * 2 * 150) if tight_batch else 1 << 24
    interval = r.choice((20, 50, 100))
    return Settings(
        processing_guarantee="exactly-once" if aligned else "at-least-once",
        checkpoint_interval_ms=interval,
        batch_bytes_max=batch,
        early_memory_bytes_max=r.choice((0, 150, 400, ROOMY)),
        early_bytes_max=r.choice((0, 150, 500, 1500, ROOMY, ROOMY)),
        uncommitted_state_bytes_max=batch_bytes,
        sink_buffer_bytes_max=r.choice((100, ROOMY)),
        unacked_bytes_max=r.choice((300, ROOMY)),
        send_timeout_ms=interval * 12,
        downstream_lag_messages_max=r.choice((30, 1000)),
        read_cache_bytes_max=r.choice((1, 600, ROOMY)),
        changelog_retention_ms=r.choice((0, 0, 0, 8 * interval, 1 << 40)),
    )
