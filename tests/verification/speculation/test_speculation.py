"""Speculative tasks release what tasks that wait release, whatever is killed; each rule is needed."""

from pathlib import Path
from random import Random

import pytest

from benchmarks.speculation.costs import Costs
from benchmarks.speculation.virtual import Cell, Run
from framework.core.speculative.messages import ALL, Passed, Revision
from framework.core.speculative.task import SpeculativeCore
from framework.errors import Halted
from tests.core.deterministic.scenario import inner
from tests.verification.speculation.mutants import MUTANTS, applied
from tests.verification.speculation.world import Violation, World

KILLS = dict(line.split() for line in (Path(__file__).parent / "kills.txt").read_text().splitlines())


@pytest.mark.parametrize("speculative", [True, False], ids=["speculative", "waiting"])
def test_what_is_released_is_that_of_a_run_in_order(speculative: bool) -> None:
    """Kills, zombies, lost sends and clocks that go back change nothing that leaves the job."""
    again = 0
    for seed in range(60):
        world = World(seed, speculative=speculative)
        world.run()
        again += world.ran_again
    assert (again > 200) == speculative  # late records came, and were put in their place


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_rule_that_is_left_out_is_noticed(name: str) -> None:
    """The oracle kills each mutant by its known seed, which is clean without it."""
    seed = int(KILLS[name])
    World(seed, speculative=True).run()
    with applied(name), pytest.raises((Violation, Halted, AssertionError, KeyError)):
        World(seed, speculative=True).run()


def test_what_is_timed_releases_the_same() -> None:
    """In virtual time, too, both ways release the same, in the same order at each sink, also with a tracker."""
    costs = Costs(2.5, 4.0, 3.0, 2.0)
    for load, stages, tasks, seconds in (("chain", 3, 2, 1.0), ("hot", 2, 4, 1.0), ("words", 2, 2, 0.7)):
        ways = ((False, False), (True, False), (False, True), (True, True))
        runs = [Run(Cell(load, stages, tasks, 50, way, direct, seconds=seconds), costs) for way, direct in ways]
        for run in runs:
            run.run()
        orders = [[[entry for entry in run.outside if entry[0] == sink] for sink in range(tasks)] for run in runs]
        assert all(order == orders[0] for order in orders[1:])
        assert len(runs[0].outside) > 10


def test_the_order_is_that_of_the_merge() -> None:
    """The engine's own task, which waits, processes the same records in the same order."""
    for seed in range(20):
        draw = Random(seed)
        task, *writers = inner()
        times = [sorted(draw.choices(range(100, 130), k=8)) for _ in writers]
        core = SpeculativeCore("order", 2, [], {}, speculative=True)
        core.start(0, None)
        messages = []
        for index, writer in enumerate(writers):
            for number, t in enumerate(times[index]):
                source = 7 + number  # rises in a channel, so equal times are in order
                writer.send((f"{index}.{number}", t, source))
                records = ((f"{index}.{number}".encode(), b""),)
                messages.append((index, Revision(0, t, source, (number,), records)))
            writer.progress(200)
        draw.shuffle(messages)  # a bundle may come before an earlier one of its channel
        offsets = [0, 0]
        for index, message in messages:
            core.message(index, offsets[index], message)
            offsets[index] += 1
            while (unit := core.next()) is not None:
                core.ran(unit, core.view(unit), {})
        for index in (0, 1):
            core.message(index, offsets[index], Passed(0, (200, ALL)))
        task.read()
        settled, _ = core.settle()
        assert [unit.records[0][0].decode() for unit in settled] == task.names
        assert len(task.names) == 16
