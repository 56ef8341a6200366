"""Searches in the demonstration's index, read from its state, also while it changes."""

import time
from collections.abc import Iterator, Mapping, Sequence

from grete.protocol.partitioner import partition_of
from grete.state.read.local_reader import LocalReader
from tasks.inverted_index import END, Index, job, postings_of, search

HITS_SHOWN = 3


class Lookup:
    """Finds the postings of a word in the partition that has it: what a search needs."""

    def __init__(self, reader: LocalReader) -> None:
        self._reader = reader

    def postings(self, word: str) -> Mapping[str, Sequence[int]]:
        """Return document → positions of the word."""
        partition = partition_of(word.encode(), job.partitions)
        rows: Iterator[tuple[str, list[int]]] = self._reader.prefix(Index.postings, word + END, partition)
        return postings_of(rows)


def found(lookup: Lookup, query: str) -> str:
    """Return the results of a search, in a line."""
    started_s = time.perf_counter()
    hits = search(lookup, query)
    took_ms = (time.perf_counter() - started_s) * 1000
    best = ", ".join(f"{name} {count:,}" for name, count in list(hits.items())[:HITS_SHOWN])
    return f"search {query}: {sum(hits.values()):,} hits in {len(hits):,} documents, {took_ms:.0f} ms: {best or '–'}"
