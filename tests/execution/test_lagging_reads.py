"""Logs whose reads lag: an empty read below what is known to be there means "not yet", never "nothing" (C3, R1)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grete.errors import Fenced, TransientError
from grete.execution.changelog.changelog_writer import find_outcome
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.logs.partition_reader import PartitionReader, rows, rows_left
from grete.ports import ExternalRecord
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, encode_claim
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskState, WorkerReport
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings, last_commit
from grete.state.read.checkpoints.snapshots import commits, settled_fold
from grete.state.write.bulk.bulk_write import begin, commit, settle
from grete.state.write.bulk.task_claim import claim
from grete.worker.process.worker import OpenedLog, Worker
from tasks.word_count import job as word_count
from tests.logs.lagging_log import LaggingLog
from tests.state.pair_job import job
from tests.state.test_bulk_write import everywhere, state, whole, write
from tests.worker.workers import CHANGELOG, say, totals, word_log

SETTINGS = Settings()
OBSERVED = TopicPartition("observed", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """A log with the job's topics."""
    opened = EmbeddedLog(JobDirectory(tmp_path / "job").directory / "log.db")
    create_topics(job, opened)
    yield opened
    opened.close()


class _Unfenced(LaggingLog):
    """A log that cannot compare and append, as Kafka without transactions (C3): only who looks is fenced."""

    def send(self, *given: Any, fence: int | None = None, **named: Any) -> None:
        """Forget the fence."""
        self._log.send(*given, **named)  # type: ignore[attr-defined]  # a log, not a reader


@pytest.mark.parametrize("taken", range(4))
@pytest.mark.parametrize("bounds_lag", [False, True])
def test_a_claim_that_cannot_be_read_yet_fences_a_bulk_write(log: EmbeddedLog, taken: int, bounds_lag: bool) -> None:
    """It does not count: an empty read before the own commit is no proof that nothing else is there (C3)."""
    whole(log, {b"a": b"1"})
    wirings = all_wirings(job)
    lagging: Any = _Unfenced(log, 5, frozenset(wiring.changelog for wiring in wirings) if bounds_lag else frozenset())
    bulk_write = begin(lagging, job, SETTINGS)
    written = [write(lagging, bulk_write, task, {b"b": b"2"}) for task in range(4)]
    newer = ChangelogHeader(ChangelogType.CLAIM, bulk_write.tasks[taken].generation + 1, 0, 0)
    log.send(0, 1, wirings[taken].changelog, encode_claim(newer, Claim(bytes(16), "elsewhere", 1, 1)))
    log.poll()
    with pytest.raises(Fenced, match=r"claimed at offset \d+; the bulk write .* stop the job's workers"):
        commit(lagging, bulk_write, written, settings=SETTINGS, full=True)
    settle(log, job, counts=False)
    assert state(log) == everywhere({b"a": b"1"})


def test_a_claim_goes_on_from_what_cannot_be_read_yet(log: EmbeddedLog) -> None:
    """A bulk write claims, and finds the last commit, its generation and outcome, whatever comes late (C1, 1.8)."""
    first = whole(log, {b"a": b"1"})
    lagging: Any = LaggingLog(log, 2, frozenset(wiring.changelog for wiring in all_wirings(job)))
    for wiring, task in zip(all_wirings(job), first.tasks, strict=True):
        found = claim(lagging, wiring)
        assert found.generation == task.generation + 1
        assert found.base is not None
        assert found.base.checkpoint_id == first.checkpoint_id


def test_every_reader_to_an_end_waits_for_what_is_there(log: EmbeddedLog) -> None:
    """Commits, the last one, folds, outcomes, inputs: as on a log that does not lag (R1, 1.8)."""
    bulk_write = whole(log, {b"a": b"1"})
    log.produce_with_meta([ExternalRecord(OBSERVED, b"k", b"%d" % number, 1) for number in range(5)], {})
    wiring = all_wirings(job)[0]

    def late() -> Any:
        return LaggingLog(log)

    assert [at.commit.checkpoint_id for at in commits(late(), wiring)] == [bulk_write.checkpoint_id]
    assert last_commit(late(), wiring.changelog) == last_commit(log, wiring.changelog)
    assert settled_fold(late(), wiring).last == settled_fold(log, wiring).last
    assert find_outcome(late(), wiring.outcome_changelog, bulk_write.bulk_write_id) is True
    assert [row.value for row in rows(late(), OBSERVED, 0, 5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert [row.offset for row in rows_left(late(), OBSERVED, 1, 3)] == [1, 2]
    assert state(late()) == everywhere({b"a": b"1"})


def test_what_never_comes_is_an_error_that_names_it(log: EmbeddedLog) -> None:
    """The wait is bounded: partition, offsets and time are named, and what to look after."""
    log.produce_with_meta([ExternalRecord(OBSERVED, b"k", b"v", 1)] * 3, {})
    never: Any = LaggingLog(log, 1_000_000)
    now = [0.0]
    reader = PartitionReader(never, OBSERVED, 1, 3, clock_s=lambda: now[0])
    assert reader.read() is None
    now[0] = 60.0
    assert reader.read() is None
    now[0] = 61.0
    with pytest.raises(TransientError, match=r"observed\[0\]: .* offset 2, .* for 61 s .* from offset 1 on: .*broker"):
        reader.read()


def test_an_end_without_messages_is_an_end(log: EmbeddedLog) -> None:
    """The mark of a transaction may be at the end: the bounds say so once it was read up to, and no reader waits."""
    log.produce_with_meta([ExternalRecord(OBSERVED, b"k", b"v", 1)] * 3, {})
    assert [row.offset for row in rows(log, OBSERVED, 1, 4)] == [1, 2]


def test_a_log_that_has_lost_what_it_acknowledged_has_an_end(log: EmbeddedLog) -> None:
    """After the wait that is for the reader to judge: the own message is missing (decision 0011)."""
    log.produce_with_meta([ExternalRecord(OBSERVED, b"k", b"v", 1)], {})
    now = [0.0]
    reader = PartitionReader(log, OBSERVED, 1, 1, acknowledged=3, clock_s=lambda: now[0])
    assert reader.read() is None
    now[0] = 61.0
    assert reader.read() == []


@pytest.mark.parametrize("bounds_lag", [False, True])
def test_a_worker_works_on_a_log_whose_reads_lag(tmp_path: Path, bounds_lag: bool) -> None:
    """Its claim is found, commits are verified, state is restored; a start on an empty disk has all of it (C1, C3, R1).

    Without a fence, and with a meaningless message before each commit, so that every commit is verified by reading.
    """
    directory = tmp_path / "job"
    outside = word_log(directory)
    for start in range(3):
        say(outside, "one two", "two")
        log: Any = _Gapped(EmbeddedLog(directory / "log.db"), 4, frozenset([CHANGELOG]) if bounds_lag else frozenset())
        worker = Worker(
            word_count,
            [0],
            OpenedLog(log),
            JobDirectory(directory, tmp_path / f"state-{start}"),
            Settings(checkpoint_interval_ms=20),
        )
        _work_until(worker, outside, 2 * (start + 1))
        assert any(partition == CHANGELOG for partition, _ in log.asked)
        worker.close()
    assert totals(outside)[-1] == ("two", 6)
    assert sorted(totals(outside)) == sorted(
        (word, count) for word, most in (("one", 3), ("two", 6)) for count in range(1, most + 1)
    )
    outside.close()


class _Gapped(_Unfenced):
    """Before each own message of its changelog is one that means nothing: a repeat of the claim of generation 0."""

    def send(self, *given: Any, **named: Any) -> None:
        """Send."""
        empty = ChangelogHeader(ChangelogType.CLAIM, 0, 0, 0)
        if given[2] == CHANGELOG and ChangelogType(given[3][0] & 15) is ChangelogType.COMMIT:
            super().send(0, 0, CHANGELOG, encode_claim(empty, Claim(bytes(16), "nobody", 1, 1)))
        super().send(*given, **named)


def _work_until(worker: Worker, log: EmbeddedLog, sentences: int) -> None:
    def stop_when_done(_: WorkerReport) -> None:
        last = last_commit(log, CHANGELOG)
        if last is not None and last.commit.external and last.commit.external[0].offset >= sentences:
            worker.stop()

    worker.reports.send = stop_when_done
    assert worker.run() == 0


def test_a_worker_that_is_fenced_on_a_log_whose_reads_lag_says_so(tmp_path: Path) -> None:
    """A newer claim before its commit is found, however late it can be read; nothing of the commit is applied (C3)."""
    directory = tmp_path / "job"
    outside = word_log(directory)
    say(outside, "one")
    log: Any = _Unfenced(EmbeddedLog(directory / "log.db"), 4, frozenset([CHANGELOG]))
    worker = Worker(
        word_count,
        [0],
        OpenedLog(log),
        JobDirectory(directory, tmp_path / "state"),
        Settings(checkpoint_interval_ms=20),
    )

    def claim_when_running(report: WorkerReport) -> None:
        if report.tasks[0].status is TaskState.RUNNING and not claimed:
            claimed.append(claim(outside, all_wirings(word_count)[0]).generation)
            say(outside, "two")

    claimed: list[int] = []
    worker.reports.send = claim_when_running
    with pytest.raises(Fenced, match="generation 2, claim at offset"):
        worker.run()
    worker.close()
    outside.close()
