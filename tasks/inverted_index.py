"""Keeps an inverted index of documents that come, change and go: which word is where in which of them.

Split turns a document into one posting for each of its words, and goes on knowing its words: a changed or deleted
document takes its old postings out. Index keeps the postings by (word, document), so no value grows with the number of
documents. For each word it also keeps two numbers by increments, from which a lost or repeated posting never vanishes.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from grete import Input, Job, Output, Record, Store, Task, Topic, json, utf8

WORD = re.compile(r"\w{1,64}")  # a longer run of letters is several words in a row, for the index and for a search
END = "\0"  # ends the word in a key of the index: no word has it, and it sorts before all that words have


class Posting(msgspec.Struct, array_like=True, gc=False):
    """The positions of the record's key, a word, in a document. It did ``before`` times; no positions: not any more."""

    document: str
    positions: list[int]  # the document's words are numbered from 0
    before: int


class Count(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The number of documents with a word, and of its occurrences in all of them."""

    documents: int = 0
    occurrences: int = 0


documents = Topic("documents", key=utf8, value=utf8)  # name → text; no text (None): deleted
postings = Topic("postings", key=utf8, value=json(Posting))  # by word


class Split(Task):
    """Documents → postings, of what they hold and of what they no longer hold."""

    texts = Input(documents)
    known = Store("known", key=utf8, value=json(dict[str, int]))  # document → its words → how often
    out = Output(postings)

    def process(self, record: Record[str, str | None]) -> None:
        document, send = record.key, self.out.send
        before = self.known.get(document, {})
        found = positions_by_word(record.value or "")
        for word, positions in found.items():
            send(word, Posting(document, positions, before.pop(word, 0)))
        for word, occurrences in before.items():
            send(word, Posting(document, [], occurrences))
        if found:
            self.known.put(document, {word: len(positions) for word, positions in found.items()})
        else:
            self.known.delete(document)


class Index(Task):
    """Postings → the index: ``postings`` by word and document, ``words`` by word."""

    changes = Input(postings)
    postings = Store("postings", key=utf8, value=json(list[int]))  # word + END + document → positions
    words = Store("words", key=utf8, value=json(Count))

    def process(self, record: Record[str, Posting]) -> None:
        word, posting = record.key, record.value
        if posting.positions:
            self.postings.put(word + END + posting.document, posting.positions)
        else:
            self.postings.delete(word + END + posting.document)
        count = self.words.get(word, NOTHING)
        n_documents = count.documents + bool(posting.positions) - bool(posting.before)
        n_occurrences = count.occurrences + len(posting.positions) - posting.before
        if n_documents or n_occurrences:
            self.words.put(word, Count(n_documents, n_occurrences))
        else:
            self.words.delete(word)


NOTHING = Count()
job = Job("inverted-index", stages=[Split, Index], partitions=4)


# --- Searching the index, and a check of it ---


class Lookup(Protocol):
    """The lookup of a search: anything that knows the postings of a word."""

    def postings(self, word: str) -> Mapping[str, Sequence[int]]:
        """Return document → positions of the word; empty if there are none."""
        ...


def search(lookup: Lookup, query: str) -> dict[str, int]:
    """Return document → number of hits, most hits first, of documents that have every word and "quoted phrase"."""
    hits: dict[str, int] | None = None
    for number, part in enumerate(query.lower().split('"')):
        words = WORD.findall(part)
        for phrase in [words] if number % 2 and words else [[word] for word in words]:
            found = _find(lookup, phrase)
            hits = found if hits is None else {name: hits[name] + n for name, n in found.items() if name in hits}
    return dict(sorted((hits or {}).items(), key=lambda hit: (-hit[1], hit[0])))


def postings_of(rows: Iterable[tuple[str, Sequence[int]]]) -> dict[str, Sequence[int]]:
    """Return document → positions from rows of the store ``postings``, as ``prefix(word + END)`` gives them."""
    return {key.partition(END)[2]: positions for key, positions in rows}


def positions_by_word(text: str) -> dict[str, list[int]]:
    """Return each word of a text, in lower case, with its positions."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(WORD.findall(text.lower())):
        found[word].append(position)
    return found


def plain_index(documents: Mapping[str, str]) -> dict[str, dict[str, list[int]]]:
    """Return word → document → positions by one plain pass over name → text: what the job's index must be equal to."""
    index: dict[str, dict[str, list[int]]] = {}
    for document, text in documents.items():
        for position, match in enumerate(WORD.finditer(text.lower())):
            index.setdefault(match[0], {}).setdefault(document, []).append(position)
    return index


def _find(lookup: Lookup, phrase: list[str]) -> dict[str, int]:
    """Return document → how often these words follow one another in it."""
    starts: dict[str, set[int]] | None = None
    for step, word in enumerate(phrase):
        found = lookup.postings(word)
        if starts is None:
            starts = {name: set(positions) for name, positions in found.items()}
        else:
            starts = {n: s & {p - step for p in found[n]} for n, s in starts.items() if n in found}
    return {name: len(found) for name, found in (starts or {}).items() if found}
