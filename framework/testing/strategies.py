"""Hypothesis strategies for property tests of a job: what is fed, when time passes, where a task dies.

They need Hypothesis (`pip install 'grete[testing]'`). A script that they draw is played on a kit:

    from hypothesis import given, settings, strategies as st
    from grete.testing.strategies import feeds, scripts

    lines = feeds(sentences, keys=st.just("a"), values=st.sampled_from(["to be", "or not"]))

    @settings(deadline=None)
    @given(scripts(lines))
    def test_words_are_counted(script):
        kit = Kit(job)
        kit.play(script)
        kit.run()
        words = [word for record in kit.fed(sentences) for word in record.value.split()]
        assert kit.state(CountWords.counts) == Counter(words)
"""

from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from grete.api.topics.topic import Topic
from grete.testing.script import KitCall

K = TypeVar("K")
V = TypeVar("V")

PAUSE_MS_MAX = 1_000  # several checkpoints, with the settings that a job has by default
STEPS_MAX = 40  # how far ahead a crash is drawn: small jobs are at rest after as many


def feeds(
    topic: Topic[K, V],
    *,
    keys: SearchStrategy[K] | SearchStrategy[None],
    values: SearchStrategy[V] | SearchStrategy[None],
    timestamps: SearchStrategy[int] | None = None,
    partitions: SearchStrategy[int] | None = None,
) -> SearchStrategy[KitCall]:
    """Draw calls of ``Kit.feed`` for a topic. ``timestamps``: in ms; without them, the kit's clock.

    ``partitions``: where the record goes; without them, the key decides, as in ``Kit.feed``.
    """
    options: dict[str, SearchStrategy[Any]] = {}
    if timestamps is not None:
        options["timestamp"] = timestamps
    if partitions is not None:
        options["partition"] = partitions
    return st.builds(
        lambda key, value, given: KitCall("feed", (topic, key, value), given),
        keys,
        values,
        st.fixed_dictionaries(options),
    )


def scripts(*records: SearchStrategy[KitCall], max_calls: int = 20) -> SearchStrategy[list[KitCall]]:
    """Draw scripts for ``Kit.play``: records, as ``feeds`` draws them, pauses, and crashes some steps ahead.

    Play one and ``run`` the kit. A failure shrinks to few calls with small numbers.
    """
    pauses = st.integers(1, PAUSE_MS_MAX).map(lambda ms: KitCall("advance", (ms,)))
    crashes = st.builds(
        lambda step, other_host: KitCall("crash_at", (step,), {"other_host": True} if other_host else {}),
        st.integers(1, STEPS_MAX),
        st.booleans(),
    )
    return st.lists(st.one_of(*records, pauses, crashes), max_size=max_calls)
