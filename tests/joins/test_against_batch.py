"""Joins in random orders and through crashes, against a plain computation over all records at once."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grete import Topic
from grete.api.stateful.joins import How
from grete.api.tasks.mode import Mode
from grete.testing import Kit
from tests.joins.jobs import Joined, interval, job_of, joined, late_topic, lefts, rights, tables

Fed = list[tuple[bool, str, int, str]]  # of the left side, key, timestamp, text
GRACE = 30
FAR = 1_000_000
HOWS: list[How] = ["inner", "left", "outer"]
BOUNDS = [(0, 10), (5, 5), (12, 0), (-3, 10), (20, -7), (0, 0)]

few = settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def in_batch(fed: Fed, before: int, after: int, how: How) -> list[Joined]:
    """Return the result of a join over all records."""
    ours = [each for each in fed if each[0]]
    theirs = [each for each in fed if not each[0]]
    found = [(a, b) for a in ours for b in theirs if a[1] == b[1] and a[2] - before <= b[2] <= a[2] + after]
    result = [Joined(a[1], a[3], b[3], max(a[2], b[2])) for a, b in found]
    if how != "inner":
        result += [Joined(a[1], a[3], None, a[2]) for a in ours if a not in [pair[0] for pair in found]]
    if how == "outer":
        result += [Joined(b[1], None, b[3], b[2]) for b in theirs if b not in [pair[1] for pair in found]]
    return result


def order(result: list[Joined]) -> list[tuple[str, ...]]:
    """Return a result in an order of its own."""
    return sorted(tuple(map(str, each)) for each in result)


@st.composite
def records(draw: Any, disorder: int = GRACE) -> Fed:
    """Draw records out of order by at most ``disorder`` ms in each input; each text is unlike the others."""
    steps = draw(st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 9), st.integers(0, disorder))))
    at, fed = 0, list[tuple[bool, str, int, str]]()
    for number, (side, key, step, back) in enumerate(steps):
        at += step
        fed.append((side, key, at - back, str(number)))
    return fed


def run(kit: Kit, fed: Fed, feed: Callable[[Topic[str, str], str, str, int], None], crashes: int, seed: int) -> None:
    """Feed the records, and on both inputs one that is later by far; run until nothing is left to do."""
    for left, key, timestamp, text in fed:
        feed(lefts if left else rights, key, text, timestamp)
    for topic in (lefts, rights):
        feed(topic, "end", "end", FAR)
    kit.run(crashes=crashes, seed=seed)


@few
@given(
    fed=records(),
    how=st.sampled_from(HOWS),
    bounds=st.sampled_from(BOUNDS),
    mode=st.sampled_from(["aligned", "deterministic"]),
    crashes=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_a_join_is_that_of_a_batch(
    fed: Fed, how: How, bounds: tuple[int, int], mode: Mode, crashes: int, seed: int
) -> None:
    """Every record within the grace: each pair once, each record without a match once, through crashes."""
    kit = Kit(job_of(interval(*bounds, how=how, grace_ms=GRACE), mode))
    run(kit, fed, lambda topic, key, text, at: kit.feed(topic, key, text, timestamp=at), crashes, seed)
    found = [each for each in joined(kit) if each.key != "end"]
    assert order(found) == order(in_batch(fed, *bounds, how))
    assert kit.pairs(late_topic) == []
    kept = {**kit.state("texts-left"), **kit.state("texts-right")}
    assert {key for key, _ in kept} <= {"end"}, "what has passed is deleted"


@few
@given(fed=records(disorder=4 * GRACE), how=st.sampled_from(HOWS), bounds=st.sampled_from(BOUNDS))
def test_a_join_without_the_late_records_is_that_of_a_batch(fed: Fed, how: How, bounds: tuple[int, int]) -> None:
    """More disorder than grace: what is not late is joined as if the late records had never been."""
    kit = Kit(job_of(interval(*bounds, how=how, grace_ms=GRACE)))
    run(kit, fed, lambda topic, key, text, at: kit.feed(topic, key, text, timestamp=at), 0, 0)
    late = {text for _, text in kit.pairs(late_topic)}
    found = [each for each in joined(kit) if each.key != "end"]
    assert order(found) == order(in_batch([each for each in fed if each[3] not in late], *bounds, how))


@few
@given(
    fed=st.lists(st.tuples(st.booleans(), st.sampled_from("ab"), st.integers(0, 50), st.booleans()), max_size=30),
    how=st.sampled_from(HOWS),
    mode=st.sampled_from(["aligned", "deterministic"]),
    crashes=st.integers(0, 3),
)
def test_tables_are_joined_as_dicts_would_be(
    fed: list[tuple[bool, str, int, bool]], how: How, mode: Mode, crashes: int
) -> None:
    """The last result of each key is the join of the last rows, and no row goes that was not there."""
    kit = Kit(job_of(tables(how), mode))
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    at = 0
    for number, (left, key, step, gone) in enumerate(fed):
        at += step
        kit.feed(lefts if left else rights, key, None if gone else str(number), timestamp=at)
        rows = ours if left else theirs
        if gone:
            rows.pop(key, None)
        else:
            rows[key] = str(number)
    kit.run(crashes=crashes, seed=len(fed))
    expected = {
        key: (ours.get(key), theirs.get(key))
        for key in {"inner": ours.keys() & theirs.keys(), "left": ours.keys(), "outer": ours.keys() | theirs.keys()}[
            how
        ]
    }
    last = {each.key: (each.left, each.right) for each in joined(kit)}
    assert {key: sides for key, sides in last.items() if sides != (None, None)} == expected
    for key in "ab":
        told = [(each.left, each.right) for each in joined(kit) if each.key == key]
        for before, after in zip_longest([(None, None), *told], told):
            assert after is None or before != after or after != (None, None), "a row is gone once"
    assert set(kit.state("texts")) == ours.keys() | theirs.keys()


def test_records_that_are_late_are_given_back_and_counted() -> None:
    """One ms decides: event time may have passed a record by the grace, and no more."""
    kit = Kit(job_of(interval(0, 100, how="outer", grace_ms=10)))
    for topic in (lefts, rights):
        kit.feed(topic, "end", "", timestamp=50)
    kit.process()
    for topic, timestamp in ((lefts, 39), (lefts, 40), (rights, 39), (rights, 40)):
        kit.feed(topic, "a", str(timestamp), timestamp=timestamp)
    kit.run(crashes=1, seed=1)
    assert kit.pairs(late_topic) == [("a", "39"), ("a", "39")]
    assert joined(kit)[-1] == Joined("a", "40", "40", 40)


@pytest.mark.parametrize("how", HOWS)
def test_two_partitions_of_different_times_are_joined_each(how: How) -> None:
    """Event time is the task's own: a partition that is far ahead makes nothing late in another."""
    kit = Kit(job_of(interval(0, 10, how=how)), partitions=2)
    for partition, start in ((0, 0), (1, 50_000)):
        for at in (0, 20, 40):
            kit.feed(lefts, "a", f"L{at}", timestamp=start + at, partition=partition)
            kit.feed(rights, "a", f"R{at}", timestamp=start + at + at // 4, partition=partition)
    kit.run(crashes=2, seed=3)
    both = [(each.left, each.right) for each in joined(kit) if each.left and each.right]
    assert both == [("L0", "R0"), ("L20", "R20"), ("L40", "R40")] * 2
    assert kit.pairs(late_topic) == []
