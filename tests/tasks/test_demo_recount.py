"""The audit of the demonstration finds every kind of damage, and only damage."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.state.read.local_reader import LocalReader
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from tasks.demo.recount import audit, recorded
from tasks.inverted_index import END, Count, Index, documents, job, plain_index

TEXTS = {"a": "so it goes", "b": "so so", "c": "it"}
IDS = job.stage("index").store_ids()


class World:
    """A log with documents, and an index of them that a test may damage."""

    def __init__(self, directory: Path) -> None:
        self.log = EmbeddedLog(directory / "log" / "log.db")
        self.log.create_topic(documents.name, job.partitions)
        self.directory = directory / "state"
        names = {number: name for name, number in IDS.items()}
        memory = RocksMemory(32 << 20)
        self.stores = [RocksStore(self.directory / f"index-{n}", names, memory) for n in range(job.partitions)]
        for name, text in [("gone", "old words"), ("a", "an older text"), *TEXTS.items(), ("gone", None)]:
            partition = TopicPartition(documents.name, partition_of(name.encode(), job.partitions))
            value = None if text is None else text.encode()
            self.log.produce_with_meta([ExternalRecord(partition, name.encode(), value, 1)], {})
        for word, by_document in plain_index(TEXTS).items():
            self.count(word, len(by_document), sum(map(len, by_document.values())))
            for document, positions in by_document.items():
                self.post(word, document, positions)

    def post(self, word: str, document: str, positions: list[int] | None) -> None:
        """Write a posting, or take it out."""
        key = Index.postings.key.encode(word + END + document)
        value = None if positions is None else Index.postings.value.encode(positions)
        self._store(word).write([(IDS["postings"], key, value)])

    def count(self, word: str, n_documents: int, n_occurrences: int) -> None:
        """Write the numbers of a word; 0 takes them out."""
        value = Index.words.value.encode(Count(n_documents, n_occurrences)) if n_documents else None
        self._store(word).write([(IDS["words"], word.encode(), value)])

    def _store(self, word: str) -> RocksStore:
        return self.stores[partition_of(word.encode(), job.partitions)]

    def differences(self) -> tuple[int, int, int, int]:
        """Return the audit's (missing, wrong, extra, miscounted)."""
        with LocalReader(self.directory, job) as reader:
            found = audit(self.log, reader)
        assert (found.documents, found.words, found.postings, found.occurrences) == (3, 3, 5, 6)
        assert bool(found.samples) == bool(found.differences)
        return found.missing, found.wrong, found.extra, found.miscounted


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Yield a world without damage."""
    made = World(tmp_path)
    yield made
    made.log.close()
    for store in made.stores:
        store.close()


def test_a_right_index_is_identical(world: World) -> None:
    """The newest text of each document counts, deleted ones do not; in one pass or in several."""
    assert world.differences() == (0, 0, 0, 0)
    assert recorded(world.log, TopicPartition(documents.name, partition_of(b"a", 4)))["a"] == "so it goes"


def test_an_index_that_needs_several_passes_is_identical(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large folders are compared a slice of the words at a time."""
    monkeypatch.setattr("tasks.demo.recount.SLICE_BYTES", 4)
    assert world.differences() == (0, 0, 0, 0)
    world.post("so", "b", None)
    assert world.differences() == (1, 0, 0, 0)


def test_each_kind_of_damage_is_found(world: World) -> None:
    """A posting lost, moved or left over; a count too high, missing or of a word that is gone."""
    world.post("so", "b", None)
    assert world.differences() == (1, 0, 0, 0)
    world.post("it", "c", [7])
    assert world.differences() == (1, 1, 0, 0)
    world.post("old", "gone", [0])
    assert world.differences() == (1, 1, 1, 0)
    world.count("so", 2, 4)
    world.count("goes", 0, 0)
    world.count("old", 1, 1)
    assert world.differences() == (1, 1, 1, 3)
