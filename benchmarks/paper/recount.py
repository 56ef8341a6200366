"""Holds the index that a run has left against a plain pass over its documents, and against the run's guarantee."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tasks.inverted_index import END, Count, plain_index


class Recount(NamedTuple):
    """The distance of the state from the plain index. All are numbers of postings (a word in a document)."""

    postings: int  # of the plain index
    missing: int  # not in the state
    wrong: int  # in the state, but not of the plain index, or with other positions
    counted_again: int  # by the counts of words: processed more than once
    not_counted: int  # by the counts of words: never processed, or lost with the state

    @property
    def equal(self) -> bool:
        """Whether the state is the plain index."""
        return not (self.missing or self.wrong or self.counted_again or self.not_counted)


def recount(
    texts: Sequence[str], postings: Iterable[tuple[str, list[int]]], words: Iterable[tuple[str, Count]]
) -> Recount:
    """Compare both stores of the index with the texts of the documents, which are numbered from 0."""
    due = plain_index({str(number): text for number, text in enumerate(texts)})
    total = sum(map(len, due.values()))
    counted = dict(words)
    again = lost = 0
    for word in due.keys() | counted.keys():
        more = counted.get(word, Count()).documents - len(due.get(word, ()))
        again, lost = again + max(0, more), lost + max(0, -more)
    wrong = 0
    for key, positions in postings:
        word, _, document = key.partition(END)
        wrong += due.get(word, {}).pop(document, None) != positions
    return Recount(total, sum(map(len, due.values())), wrong, again, lost)


def broken(found: Recount, allowed: str) -> str | None:
    """Return the fault of the state by what a run may do ("once", "repeats", "losses"); None if it has none."""
    never: Mapping[str, tuple[str, ...]] = {
        "once": ("missing", "wrong", "counted_again", "not_counted"),
        "repeats": ("missing", "wrong", "not_counted"),
        "losses": ("wrong", "counted_again"),
    }
    counts = {name: getattr(found, name) for name in never[allowed]}
    return ", ".join(f"{name}: {count:,}" for name, count in counts.items() if count) or None
