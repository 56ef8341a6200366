"""Reading the newest state beside a worker that goes on: all of a commit, or nothing of it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grete import Input, Job, Record, Store, Task, Topic, int64, utf8
from grete.logs.memory import MemoryLog, MemoryLogData
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, encode_claim
from grete.protocol.changelog_position import ChangelogPosition, encode_changelog_position
from grete.protocol.commit import Commit, encode_commit
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.newest import NewestReader
from grete.stores.rocksdb.memory_use import RocksMemory
from grete.stores.rocksdb.store import RocksStore
from tests.core.test_changelog_fold import BASE

FIELDS = {name: getattr(BASE, name) for name in BASE.__struct_fields__}


class Count(Task):
    """Only the declarations matter here."""

    lines = Input(Topic("lines", key=utf8, value=utf8))
    words = Store("words", key=utf8, value=int64)
    later = Store("later", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


JOB = Job("newest", stages=[Count])
WORDS, LATER = (JOB.stage("count").store_ids()[name] for name in ("words", "later"))
CHANGELOG = all_wirings(JOB)[0].changelog
KEYS = [b"a", b"b", b"c", b"d"]


class Worker(MemoryLog):
    """The log of a job, and its worker: it takes a step each time that a reader has read the changelog."""

    def __init__(self, directory: Path) -> None:
        super().__init__(MemoryLogData(lambda: 0))
        self.create_topic(CHANGELOG.topic, 1)
        self.store = RocksStore(directory / "count-0", {WORDS: "words"}, RocksMemory(32 << 20))
        self.steps: Iterator[None] = iter(())

    def partitions(self, topic: str) -> int | None:
        """Answer, after a step of the worker: the reader has read the commits by now."""
        next(self.steps, None)
        return super().partitions(topic)

    def commit(self, number: int) -> Iterator[None]:
        """Commit that all keys have this value, then write it to the store in two steps, as a large commit is."""
        commit = Commit(**FIELDS | {"generation": 1, "checkpoint_id": number, "data_count": 0, "data_digest": 0})
        header = ChangelogHeader(ChangelogType.COMMIT, 1, number, 0)
        at, _ = self.data.append(CHANGELOG, None, encode_commit(header, commit), None, None)
        writes = [(WORDS, key, int64.encode(number)) for key in KEYS]
        self.store.write(writes[:2])
        yield
        position = ChangelogPosition(at, 1, number, commit.nonce)
        self.store.write(writes[2:], encode_changelog_position(position))


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """Yield a worker that has committed 1 for all keys."""
    opened = Worker(tmp_path)
    claim = encode_claim(ChangelogHeader(ChangelogType.CLAIM, 1, 0, 0), Claim(BASE.nonce, "h", 1, 0))
    opened.data.append(CHANGELOG, None, claim, None, None)
    list(opened.commit(1))
    yield opened
    opened.store.close()


def test_a_scan_shows_no_half_of_a_commit(worker: Worker, tmp_path: Path) -> None:
    """The worker commits, and writes a part of it, after the reader has seen that the store has all."""
    with NewestReader(worker, JOB, tmp_path, pytest.fail) as reader:
        for number in range(2, 6):
            worker.steps = worker.commit(number)
            values = {value for _, value in reader.all(Count.words)}
            assert len(values) == 1, values
            list(worker.steps)
            assert dict(reader.all(Count.words)) == dict.fromkeys("abcd", number)


def test_a_store_that_new_code_adds_is_found_by_a_reader_that_is_open(tmp_path: Path) -> None:
    """The reader has opened the task's stores before there was this one; they are opened again."""
    with closing(Worker(tmp_path)) as log:
        claim = encode_claim(ChangelogHeader(ChangelogType.CLAIM, 1, 0, 0), Claim(BASE.nonce, "h", 1, 0))
        log.data.append(CHANGELOG, None, claim, None, None)
        list(log.commit(1))
        with NewestReader(log, JOB, tmp_path, pytest.fail) as reader:
            assert list(reader.find(Count.later, "a")) == []
            assert reader.checkpoint(Count.later, 0) == 1
            log.store.close()
            log.store = RocksStore(tmp_path / "count-0", {WORDS: "words", LATER: "later"}, RocksMemory(32 << 20))
            log.store.write([(LATER, b"a", int64.encode(7))])
            list(log.commit(2))
            assert list(reader.find(Count.later, "a")) == [(0, 7)]
            assert reader.checkpoint(Count.later, 0) == 2
        log.store.close()


def test_a_scan_that_has_begun_stays_at_its_commit(worker: Worker, tmp_path: Path) -> None:
    """Another read of the same reader, of a later commit, does not change what the scan goes on to show."""
    with NewestReader(worker, JOB, tmp_path, pytest.fail) as reader:
        scan = reader.all(Count.words)
        assert next(scan) == ("a", 1)
        list(worker.commit(2))
        assert list(reader.find(Count.words, "d")) == [(0, 2)]
        assert list(scan) == [("b", 1), ("c", 1), ("d", 1)]
