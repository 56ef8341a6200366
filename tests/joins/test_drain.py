"""A job that is drained: records without a match are told, and what only deletes moves no time."""

import pytest

from grete.api.tasks.mode import Mode
from grete.testing import Kit
from tests.joins.jobs import Joined, interval, job_of, joined, late_topic, lefts, rights
from tests.joins.test_versioned import answers, as_of, asks, rows


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_what_waits_for_a_match_is_told(mode: Mode) -> None:
    """Once, through a crash; a record of the next run that is not late finds no match among them."""
    kit = Kit(job_of(interval(0, 100, how="outer"), mode))
    kit.feed(lefts, "a", "L", timestamp=0)
    kit.feed(rights, "b", "R", timestamp=50)
    kit.drain()
    kit.crash("match")
    kit.drain()
    assert sorted(joined(kit)) == sorted([Joined("a", "L", None, 0), Joined("b", None, "R", 50)], key=str)
    kit.feed(rights, "a", "late", timestamp=90)
    kit.run()
    assert kit.pairs(late_topic) == [("a", "late")]


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_an_inner_join_and_a_versioned_store_wait_for_nothing(mode: Mode) -> None:
    """Event time stays where the records are: those of the next run are not late, and find what is kept."""
    kit = Kit(job_of(interval(0, 100), mode))
    kit.feed(lefts, "a", "L", timestamp=0)
    kit.feed(rights, "b", "R", timestamp=0)
    kit.drain()
    kit.feed(rights, "a", "R", timestamp=90)
    kit.run()
    assert joined(kit) == [Joined("a", "L", "R", 90)]
    kit = Kit(as_of(1_000, mode))
    for at, row in ((0, "old"), (10, "new")):
        kit.feed(rows, "a", row, timestamp=at)
    kit.feed(asks, "b", "", timestamp=10)
    kit.drain()
    kit.feed(asks, "a", "", timestamp=5)
    kit.run()
    assert kit.pairs(answers)[-1] == ("a", ": old new")
