"""Scenarios of the core as text: commands, ``----``, then the events (<) and actions (>) that follow from them.

A file is read from top to bottom. Lines that begin with ``#`` are for people. tests/core/scenarios/README.md lists the
commands. Tasks that were started run the real core; of all others the script writes by hand what they would send.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import TaskWiring, wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import FrameworkError
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition
from tests.core.deterministic.scenario import Logical, Writer
from tests.core.scenario import LIMITS
from tests.core.scenario_text import parse
from tests.core.streams import Log, Producer
from tests.core.told import Told, ToldLogical
from tests.verification.simulation.step_text import history_text

HOLD: dict[str, type[do.Action]] = {
    "append": do.AppendChangelog,
    "send": do.Send,
    "apply": do.ApplyFrozen,
    "data": do.WriteData,
}


class Script:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.limits = LIMITS
        self.aligned = True
        self.log = Log()
        self.topology = chain("a*2 -> b*2 -> c*2")
        self.deterministic = False
        self.running: dict[str, Told] = {}
        self.hosts: dict[str, list[Told]] = {}  # the last process of each task on each host: what it left on its disk
        self.by_hand: dict[str, Producer] = {}
        self.writers: dict[tuple[str, str], Writer] = {}
        self.lines: list[str] = []
        self.seen: set[type] = set()  # events and actions
        self._processes = 0

    def run(self, commands: list[str]) -> list[str]:
        """Return the lines that follow from some commands."""
        self.lines = []
        for command in commands:
            self._run(command)
        return self.lines

    def say(self, task: str, sign: str, text: str) -> None:
        """Take a line."""
        self.lines.append(f"{task} {sign} {text}")

    def task_name(self, producer: int) -> str:
        """Return the name of the task with this producer id."""
        return f"{self.topology.stages[producer >> 16].name}-{producer & 0xFFFF}"

    def _run(self, command: str) -> None:
        for pattern, method in COMMANDS:
            match = re.fullmatch(pattern, command)
            if match is not None:
                try:
                    method(self, **match.groupdict())
                except FrameworkError as error:
                    self.lines.append(f"! {type(error).__name__}: {error}")
                return
        raise ValueError(f"unknown command {command!r}: see tests/core/scenarios/README.md")

    # --- the world ---

    def job(self, stages: str) -> None:
        """Set the graph."""
        self.topology = chain(stages)

    def setting(self, name: str, number: str) -> None:
        """Change a limit of the core."""
        self.limits = replace(self.limits, **{name: int(number)})

    def at_least_once(self) -> None:
        """Choose the mode without alignment."""
        self.aligned = False

    def in_deterministic_mode(self) -> None:
        """Choose the mode whose outputs leave before the commit."""
        self.deterministic = True

    def wiring(self, task: str) -> TaskWiring:
        """Return the wiring of a task."""
        stage, _, partition = task.partition("#")[0].rpartition("-")
        [ordinal] = [each.ordinal for each in self.topology.stages if each.name == stage]
        return wire(self.topology, ordinal, int(partition))

    def channel(self, producer: str, consumer: str | None) -> list[TopicPartition]:
        """Return the partitions that a task writes, of one consumer or of all."""
        partitions = list(self.wiring(producer).outputs)
        if consumer is None:
            return partitions
        inputs = {partition for _, partition in self.wiring(consumer).channels}
        return [partition for partition in partitions if partition in inputs]

    # --- written by hand ---

    def _hand(self, task: str) -> Producer:
        if task not in self.by_hand:
            wiring = self.wiring(task)
            fingerprint = self.topology.fingerprint()
            self.by_hand[task] = Producer(self.log, wiring.producer, *wiring.outputs, fingerprint=fingerprint)
        return self.by_hand[task]

    def becomes(self, task: str, generation: str, checkpoint: str, told: str | None) -> None:
        """Write the rollback marker of a new incarnation."""
        self._hand(task).rollback_marker(int(checkpoint), *self.channel(task, told), generation=int(generation))

    def tells(self, task: str, consumer: str) -> None:
        """Write the rollback marker of the last incarnation into other partitions."""
        self._hand(task).announce(*self.channel(task, consumer))

    def sends(self, task: str, records: str, checkpoint: str, consumer: str | None) -> None:
        """Write a frame."""
        self._hand(task).send(int(checkpoint), *records.split(), to=self.channel(task, consumer)[0])

    def marks(self, task: str, checkpoint: str, consumer: str | None) -> None:
        """Write a checkpoint marker."""
        self._hand(task).mark(int(checkpoint), *self.channel(task, consumer))

    def sends_at(self, task: str, records: str, consumer: str) -> None:
        """Write a frame of a deterministic task: each record with its logical time."""
        at = [each.split("@") for each in records.split()]
        producer = self.wiring(task).producer
        self._writer(task, consumer).send(*((name, int(t), producer) for name, t in at))

    def has_sent(self, task: str, t: str, consumer: str) -> None:
        """Write a progress message."""
        self._writer(task, consumer).progress(int(t))

    def makes_again(self, task: str, consumer: str) -> None:
        """Begin the next incarnation of a deterministic task, which makes all its records again."""
        self.writers[task, consumer] = self._writer(task, consumer).again()

    def _writer(self, task: str, consumer: str) -> Writer:
        if (task, consumer) not in self.writers:
            self.writers[task, consumer] = Writer(self.log, self.wiring(task).producer, self.channel(task, consumer)[0])
        return self.writers[task, consumer]

    def trims(self, topic: str, partition: str, offset: str) -> None:
        """Remove the messages before an offset."""
        self.log.start[TopicPartition(topic, int(partition))] = int(offset)

    def repeats(self, topic: str, partition: str, offset: str) -> None:
        """Append a message once more, as a log that delivers at least once may."""
        where = TopicPartition(topic, int(partition))
        self.log.append(where, self.log.rows[where][int(offset)][1])

    def loses(self, topic: str, partition: str, offset: str) -> None:
        """Remove a message that the log had acknowledged: what follows moves up."""
        del self.log.rows[TopicPartition(topic, int(partition))][int(offset)]

    def claims(self, task: str, generation: str) -> None:
        """Write the claim of another process."""
        self.log.claim(self.wiring(task), int(generation))

    # --- processes ---

    def start(self, task: str, host: str | None, held: str | None) -> None:
        """Start a process of a task, on the host of the last one unless said otherwise."""
        self._processes += 1
        name = task.partition("#")[0]
        wiring, nonce = self.wiring(name), b"%16d" % self._processes
        process = (
            ToldLogical(self.log, wiring, sink=not wiring.outputs, nonce=nonce, limits=self.limits)
            if self.deterministic
            else Told(self.log, wiring, aligned=self.aligned, nonce=nonce, limits=self.limits)
        )
        process.script, process.name = self, task
        hosts = self.hosts.setdefault(name, [])
        if hosts and host != "another":
            before = hosts[0] if host == "the first" else hosts[-1]
            process.store, process.changelog_position = dict(before.store), before.changelog_position
            if isinstance(process, ToldLogical) and isinstance(before, ToldLogical):
                process.mono_ms, process.rows, process.outside = before.mono_ms, before.rows, before.outside
            hosts[hosts.index(before)] = process
        else:
            hosts.append(process)
        if held is not None:
            process.hold.add(HOLD[held])
        self.running[task] = process
        process.start()

    def kill(self, task: str) -> None:
        """End a process: what it has not done is lost, its store and the log stay."""
        del self.running[task]

    def reads(self, task: str, count: str | None, topic: str | None, partition: str | None) -> None:
        """Let a task read what is there."""
        where = None if topic is None or partition is None else TopicPartition(topic, int(partition))
        self.running[task].read(where, 1_000 if count is None else int(count))

    def takes(self, task: str, records: str) -> None:
        """Let a source process records of its external input."""
        process = self.running[task]
        (process.take if isinstance(process, Logical) else process.take_external)(*records.split())

    def writes_outside(self, task: str, records: str) -> None:
        """Let the code of a sink in aligned mode send records to a topic outside of the job."""
        self.running[task].outside_open += records.split()

    def ends(self, task: str) -> None:
        """Tell a source that its external input has nothing left."""
        self.running[task].take_external(ended=True)

    def emits(self, task: str, records: str, consumer: str) -> None:
        """Let a task send records, as its code would at the end of a batch."""
        process = self.running[task]
        process.emit(self.channel(task, consumer)[0], *records.split())
        process.flush()

    def clock(self, task: str, ms: str) -> None:
        """Let time pass."""
        self.running[task].tick(int(ms))

    def stops(self, task: str) -> None:
        """Ask for a graceful stop."""
        self.running[task].step(on.Stop())

    def hold(self, task: str, what: str) -> None:
        """Let the next action of a kind be asked for, and not done."""
        self.running[task].hold.add(HOLD[what])

    def goes_on(self, task: str) -> None:
        """Do what was held."""
        self.running[task].release()

    def gets_no_answers(self, task: str) -> None:
        """Let the log take what a process appends to its changelog, and never say so."""
        self.running[task].answers = False

    def acks(self, task: str, no: str) -> None:
        """Say whether sends are acknowledged."""
        process = self.running[task]
        if no:
            process.acks = False
        else:
            process.ack()

    # --- looking ---

    def show(self, task: str) -> None:
        """Say what a task holds."""
        process = self.running[task]
        core = process.core
        self.lines.append(f"{process.name}: {core.status.name.lower()}, generation {core.generation}")
        if isinstance(process, ToldLogical):
            seen = " ".join(f"{name}@{t}" for name, t, _ in process.processed)
            self.lines.append(f"  processed: {seen or 'nothing'}")
            return
        inputs = core.inputs
        self.lines.append(f"  open write batch of checkpoint {core.frozen + 1}: {' '.join(process.open) or 'empty'}")
        waiting = sorted(
            (f.header.checkpoint_id, " ".join(self._records(process, f.key, f.value))) for f in inputs.early
        )
        self.lines += [f"  early, for checkpoint {checkpoint_id}: {names}" for checkpoint_id, names in waiting]
        for checkpoint_id, names in process.committed.items():
            self.lines.append(f"  committed in checkpoint {checkpoint_id}: {' '.join(names) or 'nothing'}")
        self.lines.append(f"  store: {' '.join(process.state) or 'empty'}")
        known = {self.task_name(u): h for u, h in inputs.rollbacks.known.items() if h}
        self.lines += [f"  knows of {name}: {history_text(h)}" for name, h in known.items()]

    @staticmethod
    def _records(process: Told, key: int, value: bytes | None) -> Iterator[str]:
        frame = process._spilled[key] if value is None else value  # the harness's own disk
        yield from ((cell or b"").decode() for cell in decode_columns(frame).values)


def chain(stages: str) -> Topology:
    """Return a job of levels of stages, as in ``a*2, x*1 -> b*1``: each stage writes to all of the next level."""
    levels = [[each.strip().split("*") for each in level.split(",")] for level in stages.split("->")]
    named = [(name, int(count)) for level in levels for name, count in level]
    ordinals = {name: ordinal for ordinal, (name, _) in enumerate(named)}
    streams = [
        Stream(f"{one}.{other}", ordinals[one], ordinals[other], int(count))
        for level, following in pairwise(levels)
        for one, _ in level
        for other, count in following
    ]
    sources = {ordinals[name]: ("in",) for name, _ in levels[0]}
    return Topology("j", tuple(Stage(n, ordinals[n], count) for n, count in named), tuple(streams), sources)


T, G, C = r"(?P<task>[a-z]+-\d+(#\d+)?)", r"(?P<generation>\d+)", r"(?P<checkpoint>-?\d+)"
TO = r"(?P<consumer>[a-z]+-\d+)"
AT = r"(?P<topic>\S+)\[(?P<partition>\d+)\]"
RECORDS = r"(?P<records>[^:]+?)"
COMMANDS: list[tuple[str, Callable[..., None]]] = [
    (r"job: (?P<stages>.+)", Script.job),
    (r"setting (?P<name>\w+) = (?P<number>\d+)", Script.setting),
    (r"at least once", Script.at_least_once),
    (r"deterministic mode", Script.in_deterministic_mode),
    (rf"{T} is generation {G} from checkpoint {C}(, told to (?P<told>[a-z]+-\d+))?", Script.becomes),
    (rf"{T} tells {TO}", Script.tells),
    (rf"{T} sends {RECORDS} in checkpoint {C}( to {TO})?", Script.sends),
    (rf"{T} sends {RECORDS} to {TO}", Script.sends_at),
    (rf"{T} has sent all up to (?P<t>\d+) µs to {TO}", Script.has_sent),
    (rf"{T} begins again for {TO}", Script.makes_again),
    (rf"{T} marks checkpoint {C}( for {TO})?", Script.marks),
    (rf"the log repeats {AT} @(?P<offset>\d+)", Script.repeats),
    (rf"the log loses {AT} @(?P<offset>\d+)", Script.loses),
    (rf"the log trims {AT} before @(?P<offset>\d+)", Script.trims),
    (rf"another process claims {T} as generation {G}", Script.claims),
    (rf"start {T}( on (?P<host>another|the first) host)?(, held at (?P<held>\w+))?", Script.start),
    (rf"kill {T}", Script.kill),
    (rf"{T} reads( (?P<count>\d+))?( of {AT})?", Script.reads),
    (rf"{T} takes {RECORDS}", Script.takes),
    (rf"{T} reaches the end of its input", Script.ends),
    (rf"{T} emits {RECORDS} to {TO}", Script.emits),
    (rf"{T} writes {RECORDS} outside", Script.writes_outside),
    (rf"{T} gets no answers to its appends", Script.gets_no_answers),
    (rf"{T} waits (?P<ms>\d+) ms", Script.clock),
    (rf"{T} is stopped", Script.stops),
    (rf"hold {T} at (?P<what>\w+)", Script.hold),
    (rf"{T} goes on", Script.goes_on),
    (rf"{T} gets (?P<no>no )?acknowledgements", Script.acks),
    (rf"show {T}", Script.show),
]


def play(path: Path) -> tuple[str, set[type]]:
    """Return the file with what follows from its commands now, and the classes of all events and actions in it."""
    script, blocks = Script(), parse(path.read_text())
    for block in blocks:
        block.expected = script.run(block.commands)
    return "\n".join(block.text() for block in blocks), script.seen
