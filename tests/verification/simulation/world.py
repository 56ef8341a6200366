"""The world of a seed: a random job, random settings, random inputs and a random load of faults. Plain data."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from framework.core.limits import Limits
from framework.core.task_topology import TaskWiring, wire
from framework.core.topology import Stage, Stream, Topology, stream_topic
from framework.settings import Settings
from protocol.ids import TopicPartition, split_producer_id
from tests.verification.simulation.fault_plan import (
    DAMAGED,
    DAMAGES,
    LOGICAL_DAMAGES,
    Fault,
    draw_faults,
    with_hours,
    with_unkind,
)
from tests.verification.simulation.feeds import Rows, as_tasks_see, expected_of, rows_of, table_of
from tests.verification.simulation.shapes import SHAPES
from tests.verification.simulation.unkind import KIND, MINUTES_MS, Unkind, draw_unkind, minutes_apart

World = Literal["aligned", "deterministic", "mixed"]
WORLDS: tuple[World, ...] = ("aligned", "deterministic", "mixed")  # of each seed; in the first some run at least once

JOB = "j"
ROOMY = 1 << 20
TIGHT_BYTES = 3000  # of a write batch: twice what a batch of 200 bytes makes dirty
NEVER_IDLE_MS = 1 << 40
WITHOUT_TABLES = 300  # below, no seed draws a table or minutes by itself: known mutants die in these worlds
WITHOUT_EARLY = 300  # likewise: in deterministic tasks no files get outputs ahead of commits
SOURCE_KEYS = 3  # times as many keys in a source where layers are tight


@dataclass(frozen=True, slots=True)
class Knobs:
    """Sizes that production fixes and that a small world must make smaller, or nothing would ever be split."""

    chunk_keys: int  # of one write of a frozen write batch to the store (A7)
    rewrite_share: float  # bytes rewritten for each byte appended (K2); a commit has some hundreds, a row about 20
    rewrite_idle_bytes: int
    data_bytes: int  # of one data message
    tail: int  # messages looked at by a bootstrap (R1)
    part_bytes: int  # dirty above which a deterministic task sends a part of its checkpoint ahead (D5)


@dataclass(frozen=True, slots=True)
class Cut:
    """What is left of a seed's world, to make a failure smaller. None: all of it."""

    faults: tuple[int, ...] | None = None  # numbers of the faults that happen
    records: int | None = None  # of each external partition, the first that many
    tasks: int | None = None  # of a stage, at most

    def options(self) -> str:
        """Return the options of the command line that ask for it."""
        words = [] if self.faults is None else [f"--faults {','.join(map(str, self.faults)) or 'none'}"]
        words += [] if self.records is None else [f"--records {self.records}"]
        words += [] if self.tasks is None else [f"--tasks {self.tasks}"]
        return "".join(f" {word}" for word in words)

    def of(self, plan: "Plan") -> "Plan":
        """Return the world with the faults that are left."""
        if self.faults is None:
            return plan
        return replace(plan, faults=tuple(fault for fault in plan.faults if fault.number in self.faults))


WHOLE = Cut()


@dataclass(frozen=True, slots=True)
class Plan:
    """A world before anything has happened in it."""

    seed: int
    shape: str
    topology: Topology
    wirings: Mapping[int, TaskWiring]  # by producer id
    out_partitions: Mapping[int, int]  # stage that writes an external topic -> its partitions
    settings: Settings
    limits: Limits
    knobs: Knobs
    aligned: bool
    compare_and_append: bool  # the log refuses what a higher generation has fenced off; else only C3 protects
    inputs: Mapping[TopicPartition, Rows]
    expected: frozenset[bytes]  # what each record must leave in external topics: ident;path, once each
    keys: int
    steps: int
    faults: tuple[Fault, ...]  # in the order in which they happen
    repeat_rate: float  # of internal messages that an at-least-once log repeats
    reluctance: tuple[float, ...]  # of partitions, in turn: some answer late
    files: frozenset[int]  # stages that write files through an outbox instead of a topic (S2)
    timers: bool  # the tasks set timers
    damaged: bool  # something breaks that the protocol relies on: to halt is right, to corrupt is not
    external_start: int  # offset of the first record that external topics still hold
    disorder: int  # ms by which timestamps in an external partition may be out of order, in worlds with timers
    pace: float  # of time: below 1 checkpoints are fewer and hold more
    tight_layer: bool
    unkind: Unkind = KIND
    letters: frozenset[int] = frozenset()  # stages that fail on some records, which go to their external topic
    batches: frozenset[int] = frozenset()  # stages that take batches
    once: frozenset[int] = frozenset()  # stages whose external inputs bring some records twice, and that drop them

    @property
    def deterministic(self) -> bool:
        """Whether stages of it are deterministic: all, or the first ones."""
        return bool(self.topology.deterministic)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions of the log: inputs, changelogs, streams and external outputs."""
        partitions = [*self.inputs, *(w.changelog for w in self.wirings.values())]
        partitions += [p for w in self.wirings.values() for _, p in w.channels]
        partitions += [
            TopicPartition(out_topic(s), p) for s, count in self.out_partitions.items() for p in range(count)
        ]
        return list(dict.fromkeys(partitions))

    def is_aligned(self, task: int) -> bool:
        """Tell whether a task commits by markers: neither deterministic nor at least once."""
        return self.aligned and not self.wirings[task].deterministic

    def in_transactions(self, task: int) -> bool:
        """Tell whether a task writes its changelog in transactions, with what leaves the job (S1)."""
        if not self.unkind.transactions or split_producer_id(task)[0] not in self.out_partitions:
            return False
        releases = self.wirings[task].deterministic and self.settings.output_delivery == "transactional"
        return releases or self.is_aligned(task)


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
        limits=_limits(settings),
        inputs=inputs,
        expected=expected_of(edges, inputs, writes),
        faults=draw_faults(plan.seed, r.randint(6, 18), damaged=False),
        files=files,
        timers=r.random() < 0.5,
        damaged=False,
        tight_layer=False,
    )


def _longer(topology: Topology, partitions: int) -> Topology:
    """Return the job with one more stage behind its last one."""
    ordinal = len(topology.stages)
    last, stage = topology.stages[-1], Stage("abcde"[ordinal], ordinal, partitions)
    stream = Stream(stream_topic(JOB, last.name, "x", stage.name), last.ordinal, ordinal, partitions, f"x{ordinal}")
    return replace(topology, stages=(*topology.stages, stage), streams=(*topology.streams, stream))


def with_settings(plan: Plan, **changes: int | str) -> Plan:
    """Return the world with other settings."""
    settings = msgspec.structs.replace(plan.settings, **changes)
    return replace(plan, settings=settings, limits=_limits(settings))


def _limits(settings: Settings) -> Limits:
    return Limits(**{name: getattr(settings, name) for name in Limits.__slots__})


def out_topic(stage: int) -> str:
    """Return the external topic that a stage writes."""
    return f"out.{stage}"


def make_plan(seed: int, cut: Cut = WHOLE, world: World = "aligned") -> Plan:
    """Return a world of a seed, cut down as asked but for its faults; the same one in every process."""
    plan = _make_plan(seed, cut)
    idle = random.Random(f"idle {seed}").choice((1, 1, 3, 8))
    plan = with_settings(plan, idle_checkpoint_interval_ms=idle * plan.settings.checkpoint_interval_ms)
    plan = _timed(plan if world == "aligned" else _deterministic(plan) if world == "deterministic" else _mixed(plan))
    plan = _with_forms(plan)
    interval_ms = plan.settings.checkpoint_interval_ms
    unkind = draw_unkind(seed, world, interval_ms, compare_and_append=plan.compare_and_append)
    plan = replace(plan, unkind=unkind, faults=with_unkind(seed, plan.faults))
    if interval_ms >= MINUTES_MS:
        plan = replace(plan, faults=with_hours(seed, plan.faults))
    has_table = seed >= WITHOUT_TABLES and not plan.damaged and random.Random(f"table {seed}").random() < 0.25
    plan = with_table(plan) if has_table and cut is WHOLE else plan
    has_early = seed >= WITHOUT_EARLY and random.Random(f"early {seed}").random() < 0.4
    return with_early_sinks(plan) if has_early else plan


def with_early_sinks(plan: Plan) -> Plan:
    """Return the same job with files instead of topics, which get outputs ahead of commits (D5).

    Of deterministic tasks only, and but for some stages.
    """
    r = random.Random(f"early sinks {plan.seed}")
    written = sorted((plan.out_partitions.keys() & plan.topology.deterministic) - plan.letters)
    early = {stage for stage in written if r.random() < 0.7}
    left = {stage: count for stage, count in plan.out_partitions.items() if stage not in early}
    return replace(with_settings(plan, sink_delivery="early"), files=plan.files | early, out_partitions=left)


def with_table(plan: Plan) -> Plan:
    """Return the same job with a table from outside beside a stage's inputs (A2c, A2d)."""
    topology, rows = table_of(plan.seed, plan.topology)
    edges = tuple((stream.producer, stream.consumer) for stream in topology.streams)
    return replace(
        plan,
        topology=topology,
        wirings={task: wire(topology, *split_producer_id(task)) for task in plan.wirings},
        inputs={**plan.inputs, **rows},
        expected=plan.expected | expected_of(edges, as_tasks_see(topology, rows), {*plan.out_partitions, *plan.files}),
    )


def _timed(plan: Plan) -> Plan:
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


def _with_forms(plan: Plan) -> Plan:
    """Return the same job with stages that use the forms which an input and its task may have."""
    r, topology = random.Random(f"forms {plan.seed}"), plan.topology
    stages = [stage.ordinal for stage in topology.stages]
    batches = frozenset(s for s in stages if r.random() < 0.3) - topology.deterministic
    once = frozenset(s for s in stages if r.random() < 0.5 and s in topology.timed and s in topology.external_inputs)
    letters = frozenset(s for s in stages if r.random() < 0.3 and s in plan.out_partitions) - once
    return replace(plan, letters=letters, batches=batches, once=once)


def _make_plan(seed: int, cut: Cut) -> Plan:
    r = random.Random(seed)
    shape, stages, edges, _ = r.choices(SHAPES, weights=[entry[3] for entry in SHAPES])[0]
    aligned = r.random() < 0.88
    tight_layer = r.random() < 0.15
    keys = r.choice((4, 10)) if tight_layer else r.choice((1, 4, 12, 40))
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
    settings = _settings(r, aligned=aligned, tight_layer=tight_layer, keys=keys)
    settings = minutes_apart(seed, settings) if seed >= WITHOUT_TABLES else settings
    of_itself = random.Random(f"more {seed}")
    damaged = aligned and of_itself.random() < DAMAGED
    files = frozenset(s for s in sorted(writes) if of_itself.random() < 0.35 and not tight_layer)
    out_partitions = {s: r.choice((1, 2)) for s in sorted(writes) if s not in files}
    return Plan(
        seed=seed,
        shape=shape,
        topology=topology,
        wirings={w.producer: w for s in range(stages) for p in range(counts[s]) for w in (wire(topology, s, p),)},
        out_partitions=out_partitions,
        settings=settings,
        limits=_limits(settings),
        knobs=Knobs(
            r.choice((1, 2, 5)),
            r.choice((0.03, 0.06, 0.2, 8.0)),
            r.choice((1, 40, 1 << 16)),
            r.choice((1, 60, 1 << 18)),
            r.choice((1, 6, 64)),
            (0, 500, 1 << 19)[seed % 3],
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
        timers=of_itself.random() < 0.35 and not tight_layer,  # they may grow beyond a tight layer
        disorder=0,
        damaged=damaged,
        tight_layer=tight_layer,
    )


def _settings(r: random.Random, *, aligned: bool, tight_layer: bool, keys: int) -> Settings:
    batch = r.choice((1, 200, 200)) if tight_layer else r.choice((1, 200, 200, 1000))
    # two stores: all keys of a task that closes by its alignment fit, those of a source do not
    layer = max(TIGHT_BYTES, keys * 2 * 150) if tight_layer else 1 << 24
    interval = r.choice((20, 50, 100))
    return Settings(
        processing_guarantee="exactly-once" if aligned else "at-least-once",
        checkpoint_interval_ms=interval,
        batch_bytes_max=batch,
        early_memory_bytes_max=r.choice((0, 150, 400, ROOMY)),
        early_bytes_max=r.choice((0, 150, 500, 1500, ROOMY, ROOMY)),
        uncommitted_state_bytes_max=layer,
        sink_buffer_bytes_max=r.choice((100, ROOMY)),
        unacked_bytes_max=r.choice((300, ROOMY)),
        send_timeout_ms=interval * 12,
        downstream_lag_messages_max=r.choice((30, 1000)),
        read_cache_bytes_max=r.choice((1, 600, ROOMY)),
        changelog_retention_ms=r.choice((0, 0, 0, 8 * interval, 1 << 40)),
    )
