"""Changes between two positions of changelogs: each once, and no rewritten entry; read without Spark."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from msgspec.structs import replace

from grete.api.serdes.serde import int64
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.logs.partition_reader import rows_left
from grete.ports import JobLog
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_data, encode_data
from grete.protocol.commit import decode_commit, encode_commit
from grete.protocol.ids import TopicPartition
from grete.spark.format.change_rows import StoreColumns, change_rows
from grete.spark.format.changes import (
    BEGINNING,
    NOTHING,
    ChangePoint,
    changes,
    decode_position,
    earliest,
    later,
    position_at,
    ranges,
    wirings_of,
)
from grete.spark.format.columns import Column
from grete.state.write.bulk.bulk_write import begin, commit
from grete.state.write.bulk.bulk_write_attempt import Attempt
from tests.spark.format.history import SETTINGS, STORE, Counts, counts_at, positions, run
from tests.state.pair_job import job

COUNTS = StoreColumns(STORE, "counts", Column("key", "utf8"), Column("value", "int64"), expires=False)
STAGE = job.stages[1]
KILLED = frozenset({3, 6})

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job with a history of some twenty checkpoints, in which two workers were killed."""
    directory = tmp_path_factory.mktemp("history") / "job"
    run(directory, 12, KILLED)
    return directory


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """Return the log of a job that has not run."""
    log = EmbeddedLog(tmp_path / "log.db")
    create_topics(job, log)
    yield log
    log.close()


def rows(log: JobLog, start: ChangePoint, end: ChangePoint) -> list[dict[str, Any]]:
    """Return the changes between two positions, each task's oldest first."""
    parts = ranges(log, job, STAGE, start, end)
    return [row for _, part in parts for batch in change_rows(log, part, COUNTS) for row in batch.to_pylist()]


def put(log: JobLog, cells: dict[bytes, int | None], reset: tuple[int, ...] = ()) -> None:
    """Write counts into both tasks of the second stage, as one bulk write."""
    bulk_write = begin(log, job, SETTINGS)
    written = []
    for task in range(4):
        attempt = Attempt(log, bulk_write, task, 1, reset if task > 1 else ())
        if task > 1:
            values = [None if value is None else int64.encode(value) for value in cells.values()]
            attempt.add([STORE] * len(cells), list(cells), values)
        written.append(attempt.close())
    commit(log, bulk_write, written, settings=SETTINGS, full=False, external={})


def test_changes_applied_in_order_are_the_state_at_each_checkpoint(history: Path) -> None:
    """From one position to the next: every change once, rewritten entries never, what was rolled back never (0068)."""
    log, state = JobDirectory(history).open_log(create=False), Counts()
    found = positions(log)
    assert len(found) > 8
    changed = 0
    for before, after in pairwise(found):
        own = rows(log, before, after)
        assert len({(row["partition"], row["key"], row["checkpoint_id"]) for row in own}) == len(own)
        for row in own:
            at = row["partition"], row["key"]
            assert row["value"] > state.get(at, 0), "a count only grows: this is no change"
            state[at] = row["value"]
        assert state == counts_at(log, after)
        changed += len(own)
    whole = rows(log, BEGINNING, found[-1])
    assert len(whole) == changed
    marked = (
        len(each.rewritten)
        for _, part in ranges(log, job, STAGE, BEGINNING, found[-1])
        for each in changes(log, part, STORE)
    )
    assert sum(marked) > 8
    middle = found[len(found) // 2]
    assert decode_position(middle.encode()) == middle
    assert len(rows(log, BEGINNING, middle)) + len(rows(log, middle, found[-1])) == changed
    assert later(log, job, STAGE, BEGINNING, found[-1], 3, aligned=True) == found[3]
    log.close()


def test_a_long_range_is_cut_at_commits(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes read it, and together they read what one would have."""
    log = JobDirectory(history).open_log(create=False)
    newest = positions(log)[-1]
    whole = rows(log, BEGINNING, newest)
    monkeypatch.setattr("grete.spark.format.changes.SPLIT_MESSAGES", 10)
    parts = ranges(log, job, STAGE, BEGINNING, newest)
    assert len(parts) >= 3 * len(newest.places)
    assert rows(log, BEGINNING, newest) == whole
    log.close()


def test_what_is_trimmed_is_said(tmp_path: Path) -> None:
    """The first position that is there can be read from; one before it cannot, and the error names the setting."""
    run(tmp_path / "job", 6)
    log = JobDirectory(tmp_path / "job").open_log(create=False)
    found = positions(log)
    cut, state = found[3], counts_at(log, found[3])
    for number, place in cut.places.items():
        log.trim(wirings_of(job, STAGE)[number].changelog, place.offset)
    with pytest.raises(ConfigError, match=r"since its beginning are no longer retained .*changelog_retention_ms"):
        rows(log, BEGINNING, found[-1])
    with pytest.raises(ConfigError, match=f"since checkpoint {found[2].checkpoint_id} are no longer retained"):
        rows(log, found[2], found[-1])
    first = earliest(log, job, STAGE, aligned=True)
    assert first == cut
    state |= {(row["partition"], row["key"]): row["value"] for row in rows(log, first, found[-1])}
    assert state == counts_at(log, found[-1])
    other = ChangePoint(1, {0: found[-1].places[0]._replace(offset=10**6)})
    with pytest.raises(ConfigError, match="this is the log of another job"):
        rows(log, other, found[-1])
    log.close()


def test_a_bulk_write_is_changes_unless_it_replaces_the_store(log: EmbeddedLog) -> None:
    """The last value of a key counts; null deletes; a store that starts empty is no list of changes."""
    put(log, {b"a": 1, b"b": 2}, reset=(STORE,))
    first = position_at(log, job, STAGE, None, aligned=True)
    assert {(r["partition"], r["key"], r["value"]) for r in rows(log, BEGINNING, first)} == {
        (n, key, value) for n in (0, 1) for key, value in (("a", 1), ("b", 2))
    }
    put(log, {b"b": None, b"c": 3})
    second = position_at(log, job, STAGE, None, aligned=True)
    assert [(r["key"], r["value"]) for r in rows(log, first, second)] == [("b", None), ("c", 3)] * 2
    put(log, {b"c": 4}, reset=(STORE,))
    third = position_at(log, job, STAGE, None, aligned=True)
    with pytest.raises(ConfigError, match=f"checkpoint {third.checkpoint_id} has replaced the whole store"):
        rows(log, second, third)
    assert first.place(7) == NOTHING


def test_a_position_of_a_newer_build_is_refused() -> None:
    """It is not guessed."""
    with pytest.raises(ConfigError, match="a position of format 2, this build reads 1"):
        decode_position({"format": 2})


def unmarked(log: JobLog, changelog: TopicPartition, into: EmbeddedLog) -> None:
    """Copy a changelog as a release before the mark would have written it."""
    digest = 0
    for token, row in enumerate(rows_left(log, changelog, *log.bounds(changelog)), 1):
        message = row.value or b""
        header = decode_changelog_header(message)
        if header.type is ChangelogType.DATA:
            message = encode_data(header, *decode_data(message)._replace(reset_stores=None))
            digest = crc32(message, digest)
        elif header.type is ChangelogType.COMMIT:
            message, digest = encode_commit(header, replace(decode_commit(message), data_digest=digest)), 0
        elif header.type is ChangelogType.CLAIM:
            digest = 0
        into.send(0, token, changelog, message)
        into.poll()


def test_what_an_older_release_has_written_is_refused_where_it_is_in_doubt(history: Path, log: EmbeddedLog) -> None:
    """Changes are returned where no row can be of the rewrite; else the error names the checkpoint (0068)."""
    marked, told, refused = JobDirectory(history).open_log(create=False), 0, list[str]()
    found = positions(marked)
    for wiring in wirings_of(job, STAGE):
        unmarked(marked, wiring.changelog, log)
    for before, after in pairwise(found):
        expected = rows(marked, before, after)
        try:
            found_rows = rows(log, before, after)
        except ConfigError as error:
            refused.append(str(error))
        else:
            assert found_rows == expected
            told += 1
    assert told
    assert refused
    assert all("a release that does not tell rewritten entries from changes" in text for text in refused)
    marked.close()


def test_a_key_that_a_commit_has_twice_comes_once(log: EmbeddedLog) -> None:
    """With its last value: a merge into a table refuses two rows of one key."""
    bulk_write = begin(log, job, SETTINGS)
    written = []
    for task in range(4):
        attempt = Attempt(log, bulk_write, task, 1, ())
        for number in (1, 2) if task == 3 else ():
            attempt.add([STORE, STORE], [b"a", b"b%d" % number], [int64.encode(number)] * 2)
        written.append(attempt.close())
    commit(log, bulk_write, written, settings=SETTINGS, full=False, external={})
    found = rows(log, BEGINNING, position_at(log, job, STAGE, None, aligned=True))
    assert sorted((row["key"], row["value"]) for row in found) == [("a", 2), ("b1", 1), ("b2", 2)]
