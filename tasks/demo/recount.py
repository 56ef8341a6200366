"""Recomputes the inverted index in one plain pass over the recorded documents, and compares it with the job's state."""

import gc
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from grete.logs.partition_reader import rows
from grete.ports import LogReader
from grete.protocol.ids import TopicPartition
from grete.state.read.local_reader import LocalReader
from tasks.inverted_index import END, Count, Index, documents, job, plain_index

CHUNK = 200  # documents indexed at once
SLICE_BYTES = 64 << 20  # of text whose index is in memory at once, about 200 MiB of it; beyond, several passes
SAMPLES = 5


@dataclass
class Audit:
    """The result of the plain pass, and the entries in which the state differs from it."""

    documents: int = 0
    postings: int = 0
    occurrences: int = 0
    words: int = 0
    missing: int = 0  # postings that the state lacks
    wrong: int = 0  # postings with other positions
    extra: int = 0  # postings that no document has
    miscounted: int = 0  # words whose two numbers are wrong
    samples: list[str] = field(default_factory=list)

    @property
    def differences(self) -> int:
        """Return the number of wrong entries in the index."""
        return self.missing + self.wrong + self.extra + self.miscounted

    def differs(self, text: str) -> None:
        """Keep the first few differences for people."""
        if len(self.samples) < SAMPLES:
            self.samples.append(text)


def audit(log: LogReader, reader: LocalReader) -> Audit:
    """Compare all of the index with the documents in the topic. No code of the pipeline has a part in it."""
    found = Audit()
    size = 0
    for number in range(job.partitions):
        texts = recorded(log, TopicPartition(documents.name, number))
        found.documents += len(texts)
        size += sum(map(len, texts.values()))
    slices = 1 + size // SLICE_BYTES
    gc.disable()  # millions of small objects without a cycle: searching them would take longer than the work
    try:
        for slice_ in range(slices):
            _Slice(found, slice_, slices).compare(log, reader)
    finally:
        gc.enable()
    return found


def recorded(log: LogReader, partition: TopicPartition) -> dict[str, str]:
    """Return name → text of the documents in one partition: the newest record of each name counts."""
    texts: dict[str, str] = {}
    for _, _, _, key, value, _ in rows(log, partition, *log.bounds(partition)):
        assert key is not None
        if value is None:
            texts.pop(key.decode(), None)
        else:
            texts[key.decode()] = value.decode()
    return texts


class _Slice:
    """The comparison of those words whose checksum is ``number`` modulo ``of``."""

    def __init__(self, found: Audit, number: int, of: int) -> None:
        self._found = found
        self._number, self._of = number, of
        self._postings: dict[str, bytes] = {}  # word + END + document → positions, packed
        self._counts: dict[str, tuple[int, int]] = {}

    def compare(self, log: LogReader, reader: LocalReader) -> None:
        for number in range(job.partitions):
            for chunk in _chunks(recorded(log, TopicPartition(documents.name, number))):
                self._index(plain_index(chunk))
        found = self._found
        found.postings += len(self._postings)
        found.words += len(self._counts)
        found.occurrences += sum(occurrences for _, occurrences in self._counts.values())
        self._compare_postings(reader)
        self._compare_counts(reader)

    def _has(self, word: str) -> bool:
        return self._of == 1 or zlib.crc32(word.encode()) % self._of == self._number

    def _index(self, index: dict[str, dict[str, list[int]]]) -> None:
        for word, by_document in index.items():
            if self._has(word):
                n_documents, n_occurrences = self._counts.get(word, (0, 0))
                for document, positions in by_document.items():
                    self._postings[f"{word}{END}{document}"] = _packed(positions)
                    n_occurrences += len(positions)
                self._counts[word] = n_documents + len(by_document), n_occurrences

    def _compare_postings(self, reader: LocalReader) -> None:
        found, pop = self._found, self._postings.pop
        for key, positions in reader.all(Index.postings):
            word, _, document = key.partition(END)
            if not self._has(word):
                continue
            expected = pop(key, None)
            if expected is None:
                found.extra += 1
                found.differs(f"{word!r} in {document}: {_short(positions)}, but it is not there")
            elif expected != _packed(positions):
                found.wrong += 1
                found.differs(f"{word!r} in {document}: {_short(positions)}, not {_short(_unpacked(expected))}")
        found.missing += len(self._postings)
        for key, expected in self._postings.items():
            word, _, document = key.partition(END)
            found.differs(f"{word!r} in {document}: nothing, not {_short(_unpacked(expected))}")

    def _compare_counts(self, reader: LocalReader) -> None:
        found = self._found
        for word, count in reader.all(Index.words):
            if not self._has(word):
                continue
            expected = Count(*self._counts.pop(word, (0, 0)))
            if count != expected:
                found.miscounted += 1
                found.differs(
                    f"{word!r} counted {count.occurrences:,} times in {count.documents:,} documents, "
                    f"not {expected.occurrences:,} in {expected.documents:,}"
                )
        found.miscounted += len(self._counts)
        for word in self._counts:
            found.differs(f"{word!r} is not counted")


def _chunks(texts: dict[str, str]) -> Iterator[dict[str, str]]:
    names = list(texts)
    for start in range(0, len(names), CHUNK):
        yield {name: texts[name] for name in names[start : start + CHUNK]}


def _packed(positions: list[int]) -> bytes:
    return array("I", positions).tobytes()


def _unpacked(packed: bytes) -> list[int]:
    return array("I", packed).tolist()


def _short(positions: list[int]) -> str:
    text = ", ".join(map(str, positions[:4]))
    return f"positions {text}{', …' if len(positions) > 4 else ''}"
