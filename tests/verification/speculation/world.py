"""A world of one seed: sources, stages of tasks, channels that lose what was not acknowledged, and restarts at will.

One event at a time, drawn from those that can happen. A process can be killed at each point, or replaced while it goes
on (a zombie): what it has sent and is not yet in the log arrives later, behind what its successor sends, or never, and
of each channel a prefix of it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from framework.core.speculative.messages import OUTSIDE, Bound, Message, Records, SpeculativeCommit
from framework.core.speculative.source import Decision, SpeculativeSource
from framework.core.speculative.task import Send, SpeculativeCore, Unit
from tests.verification.speculation.reference import Released, in_order
from tests.verification.speculation.workload import parse, run

LEASE = 50


class Violation(AssertionError):
    """The oracle disagrees."""


@dataclass
class Shape:
    """What a seed has drawn."""

    stages: int
    tasks: int
    rows: int
    keys: int
    grain: int
    kills: int
    speculative: bool

    @classmethod
    def draw(cls, random: Random, *, speculative: bool) -> "Shape":
        """Return a shape: small, so that what can go wrong is near."""
        return cls(
            random.randint(1, 3),
            random.randint(1, 3),
            random.randint(4, 14),
            random.randint(2, 5),
            random.randint(1, 3),
            random.randint(0, 6),
            speculative,
        )


@dataclass
class Incarnation:
    """A process: what it has sent and is not in the log yet, by channel; and whether it goes on."""

    generation: int
    in_flight: dict[int, deque[Message]] = field(default_factory=dict)
    alive: bool = True
    sent: int = 0
    acked: int = 0

    def send(self, sends: list[Send]) -> None:
        """Queue what goes out."""
        for output, message in sends:
            self.in_flight.setdefault(output, deque()).append(message)
            self.sent += 1


class Node:
    """What all kinds of process have: a changelog, which survives, and incarnations."""

    def __init__(self, world: "World", stage: int, index: int) -> None:
        self.world, self.stage, self.index = world, stage, index
        self.changelog: list[Any] = []  # valid entries only
        self.incarnations: list[Incarnation] = []

    def start(self) -> None:
        """Start a process."""
        raise NotImplementedError

    def events(self) -> list[Callable[[], None]]:
        """Return what can happen here."""
        raise NotImplementedError

    def claim(self) -> Incarnation:
        """Return a new process; entries of earlier ones count no more."""
        process = Incarnation(len(self.incarnations))
        self.incarnations.append(process)
        return process

    def owns(self, process: Incarnation) -> bool:
        """Whether an entry that this process appends now is valid. It ends if not."""
        if process is not self.incarnations[-1]:
            process.alive = False
        return process.alive

    @property
    def outputs(self) -> range:
        """Return the numbers of the partitions of its stream."""
        return range(0 if self.stage == self.world.shape.stages else self.world.shape.tasks)


class SourceNode(Node):
    """A source: its rows are given before; which of them it takes when is drawn."""

    def __init__(self, world: "World", index: int) -> None:
        super().__init__(world, 0, index)
        keys, draw = world.shape.keys, world.random
        self.rows = [
            b" ".join(b"k%d" % draw.randrange(keys) for _ in range(draw.randint(1, 4))) for _ in range(world.shape.rows)
        ]
        self.lives: list[tuple[Incarnation, SpeculativeSource, deque[Any]]] = []
        self.behind = 0  # of the present machine's clock

    def start(self) -> None:
        """Start a process."""
        world, process = self.world, self.claim()
        self.behind = world.random.randint(0, 20)
        code = partial(parse, tasks=world.shape.tasks, grain=world.shape.grain)
        core = SpeculativeSource(self.index, self.outputs, code, speculative=world.shape.speculative)
        decided = [entry for entry in self.changelog if isinstance(entry, Decision)]
        leases = [entry for entry in self.changelog if isinstance(entry, int)]
        replay = [(entry, self.rows[entry.first : entry.first + len(entry.times)]) for entry in decided]
        process.send(core.start(process.generation, replay, max(leases, default=0)))
        self.lives.append((process, core, deque()))

    @property
    def now(self) -> int:
        """Return the time of the machine that the source is on: another one may be behind."""
        return self.world.now - self.behind

    def events(self) -> list[Callable[[], None]]:
        """Return what can happen here."""
        events: list[Callable[[], None]] = []
        for life in self.lives:
            process, core, pending = life
            if process.alive:
                if core.position < len(self.rows):
                    events.append(partial(self.take, *life))
                events.append(partial(self.tick, *life))
                if pending:
                    events.append(partial(self.append, *life))
        return events

    def take(self, process: Incarnation, core: SpeculativeSource, pending: deque[Any]) -> None:
        """Take one to three rows."""
        rows = self.rows[core.position : core.position + self.world.random.randint(1, 3)]
        decision, sends = core.take(rows, self.now)
        process.send(sends)
        pending.append(decision)

    def tick(self, process: Incarnation, core: SpeculativeSource, pending: deque[Any]) -> None:
        """Announce a time, or ask for a lease."""
        self.world.now += self.world.random.randint(0, 3)
        process.send(core.advance(self.now))
        if core.lease < self.now + LEASE // 2 and not any(isinstance(each, int) for each in pending):
            pending.append(max(core.lease, self.now + LEASE))

    def append(self, process: Incarnation, core: SpeculativeSource, pending: deque[Any]) -> None:
        """The oldest entry reaches the changelog, and is valid or not."""
        entry = pending.popleft()
        if not self.owns(process):
            return
        self.changelog.append(entry)
        if isinstance(entry, int):
            core.lease = entry
        else:
            process.send(core.logged())

    @property
    def done(self) -> bool:
        """Whether all rows are decided on."""
        _, core, pending = self.lives[-1]
        return core.position == len(self.rows) and not pending

    def decided(self) -> list[tuple[int, int, bytes]]:
        """Return (t, source, row) of all that counts."""
        return [
            (t, self.index, self.rows[entry.first + number])
            for entry in self.changelog
            if isinstance(entry, Decision)
            for number, t in enumerate(entry.times)
        ]


@dataclass
class Life:
    """A process of a task."""

    process: Incarnation
    core: SpeculativeCore
    releasing: deque[tuple[Bound, list[Unit]]] = field(default_factory=deque)
    frozen: tuple[SpeculativeCommit, dict[bytes, bytes], int] | None = None  # and what was sent by then


class TaskNode(Node):
    """A task of a stage that merges; of the last stage, what it has released."""

    def __init__(self, world: "World", stage: int, index: int) -> None:
        super().__init__(world, stage, index)
        self.lives: list[Life] = []
        self.released: Released = []
        self.last_released: Bound = (-1, -1)  # the consumer keeps it with what was released
        self.fence = 0

    def start(self) -> None:
        """Start a process at the last commit."""
        shape, process = self.world.shape, self.claim()
        commit, state = self.changelog[-1] if self.changelog else (None, {})
        core = SpeculativeCore(self.name, shape.tasks, self.outputs, dict(state), speculative=shape.speculative)
        core.start(process.generation, commit)
        self.lives.append(Life(process, core))
        self.fence = process.generation

    @property
    def name(self) -> str:
        """Return what errors call it."""
        return f"task {self.stage}-{self.index}"

    @property
    def last(self) -> bool:
        """Whether what it makes leaves the job."""
        return self.stage == self.world.shape.stages

    def events(self) -> list[Callable[[], None]]:
        """Return what can happen here."""
        events: list[Callable[[], None]] = []
        for life in self.lives:
            if not life.process.alive:
                continue
            for channel in life.core.channels:
                log = self.world.channel(self.stage, channel.index, self.index)
                if channel.position < len(log):
                    events += [partial(self.deliver, life, channel.index)] * 2
            if life.core.next() is not None:
                events += [partial(self.run, life)] * 2
            if life.core.bound > life.core.settled:
                events.append(partial(self.settle, life))
            if life.releasing:
                events.append(partial(self.release, life))
            if life.frozen is None and not life.releasing and life.core.may_commit:
                events.append(partial(self.freeze, life))
            elif life.frozen is not None and self.acknowledged(life):
                events.append(partial(self.append, life))
        return events

    def deliver(self, life: Life, producer: int) -> None:
        """Read the next message of a channel."""
        offset = life.core.channels[producer].position
        message = self.world.channel(self.stage, producer, self.index)[offset]
        life.process.send(life.core.message(producer, offset, message))

    def run(self, life: Life) -> None:
        """Run the next bundle."""
        unit = life.core.next()
        assert unit is not None
        view, shape = life.core.view(unit), self.world.shape
        outputs = run(view, unit.records, shape.tasks, shape.keys, last=self.last)
        life.process.send(life.core.ran(unit, view, outputs))

    def settle(self, life: Life) -> None:
        """Settle what is final; the last stage releases it."""
        units, sends = life.core.settle()
        life.process.send(sends)
        if self.last and units:
            life.releasing.append((life.core.settled, units))

    def release(self, life: Life) -> None:
        """Give what was settled to the consumer, in one transaction with how far it is; a predecessor's is refused."""
        bound, units = life.releasing.popleft()
        if life.process.generation < self.fence:
            life.process.alive = False
            return
        for unit in units:
            if unit.place[:2] > self.last_released and OUTSIDE in unit.outputs:
                self.released.append((unit.place, unit.outputs[OUTSIDE]))
        self.last_released = max(self.last_released, bound)
        self.world.check_released(self)

    def freeze(self, life: Life) -> None:
        """Begin a commit."""
        life.frozen = life.core.commit(), dict(life.core.versions.committed), life.process.sent

    def acknowledged(self, life: Life) -> bool:
        """Whether all that was sent before the freeze is in the log."""
        return life.frozen is not None and life.process.acked >= life.frozen[2]

    def append(self, life: Life) -> None:
        """The commit reaches the changelog."""
        assert life.frozen is not None
        commit, state, _ = life.frozen
        life.frozen = None
        if self.owns(life.process):
            self.changelog.append((commit, state))


class World:
    """One run."""

    def __init__(self, seed: int, *, speculative: bool) -> None:
        self.random = Random(seed)
        self.shape = shape = Shape.draw(self.random, speculative=speculative)
        self.now = 30
        self.logs: dict[tuple[int, int, int], list[Message]] = {}
        self.sources = [SourceNode(self, index) for index in range(shape.tasks)]
        self.tasks = [TaskNode(self, stage + 1, index) for stage in range(shape.stages) for index in range(shape.tasks)]
        self.sinks = [task for task in self.tasks if task.last]
        self.kills = shape.kills
        self.steps = 0
        self.ran_again = 0

    def channel(self, stage: int, producer: int, task: int) -> list[Message]:
        """Return the log of a channel into a stage."""
        return self.logs.setdefault((stage, producer, task), [])

    # --- the run ---

    def run(self) -> None:
        """Run until all is released. Raises Violation, Halted."""
        for node in (*self.sources, *self.tasks):
            node.start()
        while not self.finished:
            self.steps += 1
            if self.steps > 20_000:
                raise Violation("no progress")
            self.random.choice(self.events())()
            if self.steps % 16 == 0:
                self.check()
        self.check()
        self.check_end()

    def events(self) -> list[Callable[[], None]]:
        """Return what can happen."""
        events: list[Callable[[], None]] = []
        for node in (*self.sources, *self.tasks):
            events += node.events()
            for process in node.incarnations:
                events += [
                    partial(self.arrive, node, process, output) for output, queue in process.in_flight.items() if queue
                ]
        if self.kills and self.random.random() < 0.1:
            events += [partial(self.kill, node) for node in (*self.sources, *self.tasks)]
        return events

    def arrive(self, node: Node, process: Incarnation, output: int) -> None:
        """A message reaches the log."""
        self.channel(node.stage + 1, node.index, output).append(process.in_flight[output].popleft())
        process.acked += 1

    def kill(self, node: Any) -> None:
        """Replace a process: it ends, or does not know it yet; some of what it has sent never arrives."""
        self.kills -= 1
        process = node.incarnations[-1]
        process.alive = self.random.random() < 0.3
        if not process.alive:
            for queue in process.in_flight.values():
                for _ in range(self.random.randint(0, len(queue))):
                    queue.pop()
        node.start()

    @property
    def finished(self) -> bool:
        """Whether all rows are decided on, and all sinks are past them."""
        if not all(source.done for source in self.sources):
            return False
        end = max((entry[0] for source in self.sources for entry in source.decided()), default=0)
        done = all(task.last_released[0] > end or self.past(task, end) for task in self.sinks)
        return done and all(task.lives[-1].core.settled[0] > end for task in self.tasks)

    def past(self, task: TaskNode, end: int) -> bool:
        """Whether a task has settled all up to a time, and has nothing to release."""
        life = task.lives[-1]
        return life.core.settled[0] > end and not life.releasing

    # --- the oracle ---

    def expected(self) -> tuple[list[Released], list[dict[bytes, bytes]]]:
        """Return what the sinks release, and their state, by the decisions that count up to now."""
        shape = self.shape
        decided = [entry for source in self.sources for entry in source.decided()]
        return in_order(decided, shape.stages, shape.tasks, shape.keys, shape.grain)

    def check_released(self, task: TaskNode) -> None:
        """Raise Violation unless what is outside is the beginning of what must be there."""
        expected = self.expected()[0][task.index]
        if task.released != expected[: len(task.released)]:
            raise Violation(f"{task.name} released {task.released}, not {expected}")

    def check(self) -> None:
        """Raise unless each process keeps its invariants."""
        for task in self.tasks:
            for life in task.lives:
                life.core.check_invariants()

    def check_end(self) -> None:
        """Raise Violation unless all is outside, once, and the state is that of the run in order."""
        expected, states = self.expected()
        for task in self.sinks:
            if task.released != expected[task.index]:
                raise Violation(f"{task.name} released {task.released}, not {expected[task.index]}")
            if task.lives[-1].core.versions.committed != states[task.index]:
                raise Violation(f"{task.name} has the state {task.lives[-1].core.versions.committed}")
        self.ran_again = sum(life.core.ran_again for task in self.tasks for life in task.lives)


def records_of(released: Released) -> list[Records]:
    """Return what was released without the places."""
    return [records for _, records in released]
