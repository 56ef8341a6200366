"""A world before anything has happened in it: a job, its settings, its inputs and a load of faults. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from grete.core.graph.task_topology import TaskWiring
from grete.core.graph.topology import Topology
from grete.core.limits import Limits
from grete.execution.build import limits_of
from grete.protocol.ids import TopicPartition, split_producer_id
from grete.settings import Settings
from tests.verification.simulation.fault_plan import Fault
from tests.verification.simulation.feeds import Rows
from tests.verification.simulation.unkind import KIND, Unkind
from tests.verification.simulation.window_kinds import TUMBLING

World = Literal["aligned", "deterministic", "mixed"]
WORLDS: tuple[World, ...] = ("aligned", "deterministic", "mixed")  # of each seed; in the first some run at least once

JOB = "j"
NEVER_IDLE_MS = (1 << 31) - 1  # the most that a setting may be
WALL_MS = 4_000  # into which wall-clock timers are set: a world lasts about as long
SOURCE_KEYS = 3  # times as many keys in a source where write batches are tight


@dataclass(frozen=True, slots=True)
class Knobs:
    """Sizes that production fixes and that a small world must make smaller, or nothing would ever be split."""

    chunk_keys: int  # of one write of a frozen write batch to the store (A7)
    rewrite_share: float  # bytes rewritten for each byte appended (K2); a commit has some hundreds, a row about 20
    rewrite_idle_bytes: int
    data_bytes: int  # of one data message
    tail: int  # messages looked at by a bootstrap (R1)
    part_bytes: int  # dirty above which a deterministic task sends a part of its checkpoint ahead (D5)
    look_ms: int = 1_000  # after which a task asks for checkpoints (A9), unless its interval is as short


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a seed's world that is kept, to make a failure smaller. None: all of it."""

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
        left, drain = (
            tuple(fault for fault in faults if fault.number in self.faults)
            for faults in (plan.faults, plan.drain_faults)
        )
        return replace(plan, faults=left, drain_faults=drain)


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
    tight_batch: bool
    unkind: Unkind = KIND
    letters: frozenset[int] = frozenset()  # stages that fail on some records, which go to their external topic
    batches: frozenset[int] = frozenset()  # stages that take batches
    once: frozenset[int] = frozenset()  # stages whose external inputs bring some records twice, and that drop them
    numbered: frozenset[int] = frozenset()  # of those, the ones that know a record by its number in a session
    wide: bool = False  # some records change all keys of a task, and most records change the same one
    together: bool = False  # the tasks of one number, of all stages, are in one process
    packed: int = 0  # processes that have all tasks, each those of some numbers, if they are together; 0: of one number
    builds: bool = True  # others may be at work, where the seed says so
    window: str = TUMBLING  # of the tasks that set timers; which of WINDOWS
    priorities: Mapping[str, int] = field(default_factory=dict)  # of topics from outside; 0 where it is not in there
    joins: bool = False  # the tasks that set timers have a join, too
    expires: bool = False  # those of them without a join, and that take single records, have a store with ttl_ms, too
    calls: frozenset[int] = frozenset()  # stages that make calls, with many records in flight
    bursts: frozenset[int] = frozenset()  # stages that set timers, several for each record, and have no windows
    wall: bool = False  # tasks that set timers set some of the wall clock, too
    drained: bool = False  # its inputs end, and what waits for a later time fires (E7)
    drain_faults: tuple[Fault, ...] = ()  # meanwhile; ``at``: since it began
    standbys: bool = False  # each task has one (R7)
    gathers: bool = False  # outputs to the tasks behind wait for more
    joint: bool = False  # the deterministic tasks of a process announce their progress together
    reordered: bool = False  # what comes to the inputs of ``once`` may come behind later records of its partition

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

    def together_with(self, task: int) -> tuple[int, ...]:
        """Return the tasks that a process hosts which hosts this one."""
        number = self.process_of(task)
        return tuple(t for t in self.wirings if self.process_of(t) == number) if self.together else (task,)

    def process_of(self, task: int) -> int:
        """Return the number of the process that hosts a task: that of the task itself, unless several are packed."""
        number = split_producer_id(task)[1]
        return number % self.packed if self.packed else number

    def is_aligned(self, task: int) -> bool:
        """Tell whether a task commits by markers: neither deterministic nor at least once."""
        return self.aligned and not self.wirings[task].deterministic

    def in_transactions(self, task: int) -> bool:
        """Tell whether a task writes its changelog in transactions, with what leaves the job (S1)."""
        if not self.unkind.transactions or split_producer_id(task)[0] not in self.out_partitions:
            return False
        releases = self.wirings[task].deterministic and self.settings.output_delivery == "transactional"
        return releases or self.is_aligned(task)


def with_settings(plan: Plan, **changes: int | str) -> Plan:
    """Return the world with other settings."""
    settings = msgspec.structs.replace(plan.settings, **changes)
    return replace(plan, settings=settings, limits=limits_of(settings))


def out_topic(stage: int) -> str:
    """Return the external topic that a stage writes."""
    return f"out.{stage}"
