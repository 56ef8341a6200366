"""Markers that are taken together: the core is where it would be had it taken each by itself."""

import random

import pytest

from grete.core import actions as do
from grete.core import events as on
from grete.core.graph.task_topology import wire
from grete.core.graph.topology import Stage, Stream, Topology
from grete.errors import Halted
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition, producer_id
from tests.core.scenario import Scenario
from tests.core.streams import Log, Producer

PRODUCERS, SEEDS = 5, 100
STREAM = Stream("j.a.t.b", 0, 1, 1)
INNER = wire(Topology("j", (Stage("a", 0, PRODUCERS), Stage("b", 1, 1)), (STREAM,)), 1, 0)
INPUT = TopicPartition(STREAM.topic, 0)


class Together(Scenario):
    """A task that is given all that is there at once, as a driver does."""

    events = 0

    def read(self, partition: TopicPartition | None = None, count: int = 1_000) -> list[do.Action]:
        """Feed messages while the core wants them and there are some; return what was asked for."""
        begin = len(self.done)
        while self.core.wants_input and (rows := self.log.rows[INPUT][self.position[INPUT] :]):
            first = self.position[INPUT]
            given = [LogRow(first + at, time_ms, 0, None, value, None) for at, (time_ms, value) in enumerate(rows)]
            self.position[INPUT] = -1  # a seek sets it
            self.step(on.Messages(INPUT, given))
            self.events += 1
            if self.position[INPUT] < 0:
                self.position[INPUT] = self.core.inputs.position[INPUT]
        return self.done[begin:]


def story(kind: type[Scenario], seed: int, *, lost: bool = False) -> tuple[Scenario, str]:
    """Run a task behind some producers that send, mark, mark again, end and die as ``seed`` has it.

    ``lost``: at last one marker says that a record was lost. Return the task and all that can be seen of it.
    """
    draw, log = random.Random(seed), Log()
    producers = [Producer(log, producer_id(0, each), INPUT, fingerprint=INNER.fingerprint) for each in range(PRODUCERS)]
    for each in producers:
        each.rollback_marker(0)
    task = kind(log, INNER).start()
    marked, sent, error = [0] * PRODUCERS, [0] * PRODUCERS, ""
    for _ in range(60):
        number = draw.randrange(PRODUCERS)
        producer, what = producers[number], draw.random()
        if what < 0.2:
            sent[number] = max(sent[number], marked[number] + draw.randint(1, 2))
            producer.send(sent[number], f"{draw.random():.6f}")
        elif what < 0.85:
            marked[number] += draw.choice((0, 1, 1, 1, 2))
            producer.mark(marked[number], at_end=draw.random() < 0.3)
        elif what < 0.9:
            producer.rollback_marker(marked[number])
            sent[number] = marked[number]
        elif what < 0.91 and not lost:
            task.step(on.Stop())
        else:
            task.read()
    producers[2].checkpoint_ids[INPUT] += [1] * lost
    try:
        for each in producers:
            each.mark(max(marked) + 1)
        task.read()
    except Halted as halted:
        error = str(halted)
    inputs = task.core.inputs
    state = list(inputs.channels.values()), inputs.position, inputs.totals.least_marker, inputs.totals.greatest_marker
    return task, f"{task.done} {task.state} {task.core.frozen} {state} {sorted((+task.core.seen).items())} {error}"


def test_markers_taken_together_do_what_each_does() -> None:
    """Actions, state, channels and counters are those of a task that is given one message after the other."""
    taken_with_another = commits = 0
    for seed in range(SEEDS):
        together, found = story(Together, seed)
        alone, expected = story(Scenario, seed)
        assert found == expected, seed
        assert isinstance(together, Together)
        taken_with_another += alone.core.inputs.position[INPUT] - together.events
        commits += len(alone.committed)
    assert taken_with_another > 5 * SEEDS
    assert commits > 3 * SEEDS


@pytest.mark.parametrize("seed", range(10))
def test_a_marker_that_does_not_agree_is_looked_at(seed: int) -> None:
    """A marker behind a record that was lost halts the task, also where others have been taken before it."""
    _, found = story(Together, seed, lost=True)
    assert found == story(Scenario, seed, lost=True)[1]
    assert "was lost" in found
