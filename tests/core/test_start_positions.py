"""Inputs that begin behind their first record (A2): where no commit has been, and nowhere else."""

from dataclasses import replace

import pytest

from grete.core.graph.task_topology import TaskWiring, wire
from grete.protocol.ids import TopicPartition
from tests.core.deterministic.scenario import Logical
from tests.core.scenario import Scenario
from tests.core.streams import IN, JOB, Log

MORE = TopicPartition("more", 0)


def wiring_of(starts: dict[TopicPartition, int], topics: tuple[str, ...] = ("in",)) -> TaskWiring:
    """Return a source that begins at these offsets."""
    return wire(replace(JOB, external_inputs={0: topics}, starts={0: starts}), 0, 0)


def lines(count: int, *, trimmed: int = 0) -> Log:
    """Return a log with this number of lines, of which the first ones are gone."""
    log = Log()
    log.append(IN, *(str(number).encode() for number in range(count)))
    log.start[IN] = trimmed
    return log


def test_the_genesis_commit_has_where_an_input_begins() -> None:
    """A successor goes on from there, whatever it would begin with itself (A2)."""
    task = Scenario(lines(5), wiring_of({IN: 3})).start()
    assert task.core.external.position == {IN: 3}
    assert [entry.offset for entry in task.log.commits(task.core.task)[0].external] == [3]
    other = Scenario(task.log, wiring_of({IN: 4})).start()
    assert other.core.external.position == {IN: 3}


def test_an_input_that_a_commit_does_not_know_begins_there_too() -> None:
    """A topic that is added to a job has its own start; those that were there keep theirs."""
    task = Scenario(lines(2), wiring_of({})).start()
    task.log.append(MORE, b"1", b"2")
    other = Scenario(task.log, wiring_of({IN: 1, MORE: 2}, ("in", "more"))).start()
    assert other.core.external.position == {IN: 0, MORE: 2}


def test_a_deterministic_source_decides_from_there_on() -> None:
    """Its first decision begins at the start (A2, D2)."""
    wiring = replace(wiring_of({IN: 2}), deterministic=True)
    task = Logical(lines(4), wiring).start()
    task.take("2")
    assert task.names == ["2"]


@pytest.mark.parametrize(("trimmed", "begins"), [(1, 2), (3, 3)])
def test_records_that_are_gone_move_it(trimmed: int, begins: int) -> None:
    """The first start settled it, and died; retention went on."""
    task = Scenario(lines(4, trimmed=trimmed), wiring_of({IN: 2})).start()
    assert task.core.external.position == {IN: begins}
