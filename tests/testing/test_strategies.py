"""Property tests of a user's task: a seeded mistake is found and shrinks; a careful task passes."""

from collections import Counter

from hypothesis import find, given, settings
from hypothesis import strategies as st

from grete import Job
from grete.testing import Kit
from grete.testing.script import KitCall
from grete.testing.strategies import feeds, scripts
from tests.testing.jobs import Count, Forgetful, aligned, lines, totals

letters = st.sampled_from(["a", "b", "a b", ""])
line_feeds = feeds(lines, keys=st.just("k"), values=letters)


def played(job: Job, script: list[KitCall]) -> Kit:
    """Return a kit that has played a script and is at rest."""
    kit = Kit(job)
    kit.play(script)
    kit.run()
    return kit


def forgets(script: list[KitCall]) -> bool:
    """Whether the task that counts in an attribute forgets."""
    kit = played(Job("forgetful", stages=[Forgetful]), script)
    expected = Counter(record.value for record in kit.fed(lines))
    return dict(kit.pairs(totals)) != expected


def test_a_seeded_mistake_shrinks_to_what_it_needs() -> None:
    """Two records of one word, time for a commit between them, a crash: four calls, and the least texts."""
    strategy = scripts(line_feeds, max_calls=8)
    smallest = find(strategy, forgets, settings=settings(max_examples=500, database=None, derandomize=True))
    assert sorted(call.method for call in smallest) == ["advance", "crash_at", "feed", "feed"]
    assert [call.arguments for call in smallest if call.method == "feed"] == [(lines, "k", "a")] * 2
    assert [call.options for call in smallest if call.method == "crash_at"] == [{}]
    assert "feed(lines, 'k', 'a')" in repr(smallest)


@settings(max_examples=15, database=None, derandomize=True)
@given(scripts(line_feeds))
def test_a_careful_task_counts_whatever_happens(script: list[KitCall]) -> None:
    """State and last totals are those of a plain loop over what was fed."""
    kit = played(aligned, script)
    expected = Counter(word for record in kit.fed(lines) for word in record.value.split())
    assert kit.state(Count.counts) == dict(kit.pairs(totals)) == expected


@settings(max_examples=10, database=None, derandomize=True)
@given(
    st.lists(
        feeds(
            lines,
            keys=st.none(),
            values=letters,
            timestamps=st.integers(0, 100),
            partitions=st.integers(0, 2),
        )
    )
)
def test_times_and_partitions_are_those_that_were_drawn(script: list[KitCall]) -> None:
    """The record is where and when the strategies say."""
    kit = Kit(aligned, partitions=3)
    kit.play(script)
    fed = [(record.partition, record.timestamp, record.value) for record in kit.fed(lines)]
    drawn = [(call.options["partition"], call.options["timestamp"], call.arguments[2]) for call in script]
    assert fed == sorted(drawn, key=lambda each: each[0])
