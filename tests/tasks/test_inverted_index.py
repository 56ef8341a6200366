"""The inverted index against one plain pass, with changes, deletions and crashes; and its searches."""

import random
from collections.abc import Mapping, Sequence

import pytest

from grete.testing import Kit
from tasks.inverted_index import (
    END,
    Count,
    Index,
    Split,
    documents,
    job,
    plain_index,
    positions_by_word,
    postings_of,
    search,
)

Positions = Mapping[str, Sequence[int]]

POEMS = {
    "raven": "Once upon a midnight dreary, while I pondered, weak and weary",
    "tyger": "Tyger Tyger, burning bright, in the forests of the night",
    "night": "Do not go gentle into that good night",
    "empty": " \n",
}


class Indexed:
    """A lookup over what a kit's index has committed."""

    def __init__(self, kit: Kit) -> None:
        self.rows = kit.state(Index.postings)

    def postings(self, word: str) -> Positions:
        return postings_of(row for row in self.rows.items() if row[0].startswith(word + END))


class Plain:
    """A lookup over a plain index."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.index = plain_index(texts)

    def postings(self, word: str) -> Positions:
        return self.index.get(word, {})


def feed(kit: Kit, texts: Mapping[str, str | None]) -> None:
    for name, text in texts.items():
        kit.feed(documents, name, text)


def assert_index_of(kit: Kit, texts: Mapping[str, str]) -> None:
    """Compare postings and counts with a plain pass over the texts."""
    index = plain_index(texts)
    assert kit.state(Index.postings) == {
        word + END + document: positions for word, found in index.items() for document, positions in found.items()
    }
    assert kit.state(Index.words) == {
        word: Count(len(found), sum(map(len, found.values()))) for word, found in index.items()
    }
    assert kit.state(Split.known).keys() == {name for name, text in texts.items() if positions_by_word(text)}


def test_the_index_is_that_of_a_plain_pass() -> None:
    """Words, positions and counts agree over all partitions."""
    kit = Kit(job)
    feed(kit, POEMS)
    kit.run()
    assert_index_of(kit, POEMS)


def test_a_changed_document_takes_its_old_postings_out() -> None:
    """Words that went, came, moved and stayed; a document that became empty, and one that was never there."""
    kit = Kit(job)
    feed(kit, POEMS)
    kit.run()
    changes = {"raven": "Quoth the Raven, a midnight", "tyger": "", "night": None, "empty": "no more", "never": None}
    feed(kit, changes)
    kit.run()
    assert_index_of(kit, {name: text for name, text in changes.items() if text is not None})


def test_the_same_document_twice_changes_nothing() -> None:
    """Fed again, a document keeps its postings and counts: these go by what it had before."""
    kit = Kit(job)
    feed(kit, POEMS)
    feed(kit, POEMS)
    kit.run()
    assert_index_of(kit, POEMS)


@pytest.mark.parametrize("stage", [Split, Index])
@pytest.mark.parametrize("other_host", [False, True])
def test_a_crash_of_either_stage_changes_nothing(stage: type[Split | Index], other_host: bool) -> None:
    """With a checkpoint half done, every task of the stage dies, on its host or to come back on another (R1)."""
    kit = Kit(job)
    feed(kit, POEMS)
    kit.run()
    feed(kit, {"raven": "Nevermore", "night": None, "new": "rage, rage"})
    kit.process()
    for partition in range(job.partitions):
        kit.crash(stage, partition, other_host=other_host)
    kit.run()
    assert kit.counters["restores"] == (job.partitions if other_host else 0)
    assert_index_of(
        kit, {**{n: t for n, t in POEMS.items() if n != "night"}, "raven": "Nevermore", "new": "rage, rage"}
    )


def test_an_index_that_rolls_back_counts_nothing_twice() -> None:
    """Postings of a dead Split are rolled back, and come again (R4)."""
    kit = Kit(job)
    feed(kit, POEMS)
    kit.process()
    kit.rollback(Index, 2)
    kit.run()
    assert kit.counters["rollbacks"] >= 1
    assert_index_of(kit, POEMS)


@pytest.mark.parametrize("seed", range(8))
def test_any_history_with_crashes_ends_in_the_index_of_what_is_left(seed: int) -> None:
    """Random texts that come, change and go while tasks die at random moments."""
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(12)]
    texts: dict[str, str] = {}
    kit = Kit(job, partitions=2)
    for step in range(4):
        for name in chance.sample("abcdefgh", 4):
            text = None if chance.random() < 0.3 else " ".join(chance.choices(words, k=8))
            kit.feed(documents, name, text)
            texts[name] = text or ""
        kit.run(crashes=2, seed=10 * seed + step)
    assert_index_of(kit, {name: text for name, text in texts.items() if text})


def test_repeated_postings_show_in_the_counts() -> None:
    """At least once, a crash of Split lets words be counted twice: this is how the demo sees the damage."""
    kit = Kit(job, partitions=1, processing_guarantee="at-least-once")
    feed(kit, {"raven": "nevermore nevermore"})
    kit.process()
    kit.crash(Split)
    kit.run()
    assert kit.state(Index.postings) == {f"nevermore{END}raven": [0, 1]}
    assert kit.state(Index.words) == {"nevermore": Count(2, 4)}


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        ("night", {"night": 1, "tyger": 1}),
        ("TYGER", {"tyger": 2}),
        ("tyger night", {"tyger": 3}),  # hits of all words
        ('"the night"', {"tyger": 1}),
        ('"night the"', {}),
        ('"tyger tyger" bright', {"tyger": 2}),
        ('"good night', {"night": 1}),  # a quote that is not closed goes to the end
        ("night unheard-of", {}),
        ('"unheard of"', {}),
        ('?! ""', {}),
        ("", {}),
    ],
)
def test_a_search_finds_words_and_phrases(query: str, hits: dict[str, int]) -> None:
    """All words and phrases must be in a document, whatever their case; the job's index and a plain one agree."""
    kit = Kit(job)
    feed(kit, POEMS)
    kit.run()
    assert search(Indexed(kit), query) == search(Plain(POEMS), query) == hits


def test_a_search_puts_most_hits_first() -> None:
    """Documents come by number of hits, then by name."""
    texts = {"b": "x", "c": "x x x", "a": "x"}
    assert list(search(Plain(texts), "x")) == ["c", "a", "b"]


def test_an_absurd_word_is_several() -> None:
    """A run of letters without end makes no key without end, and is still found as a whole."""
    name = "x" * 200
    assert {len(word) for word in positions_by_word(name)} == {64, 8}
    assert search(Plain({"d": name}), f'"{name}"') == {"d": 1}
    assert search(Plain({"d": name}), "x" * 65) == {}
