"""Spark sees what the job committed: now, as of an older checkpoint, its commits, its streams."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grete.api.serdes.serde import int64
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    encode_changelog_header,
    encode_claim,
    encode_data,
)
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import commits, contents, live, segments, snapshots
from grete.state.write.bulk.bulk_write import abort, begin
from tasks.inverted_index import job
from tests.spark.conftest import FILES, REFERENCE, FinishedJob, State
from tests.state.pair_job import job as pair
from tests.state.test_bulk_write import whole, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(1_800)  # the first to come starts Spark

WORDS = 11  # id of the second store of the stage


def table(spark: "SparkSession", finished: FinishedJob, form: str, **options: Any) -> "DataFrame":
    """Load one of the formats."""
    return spark.read.format(form).options(job=REFERENCE, directory=str(finished.directory), **options).load()


def words(frame: "DataFrame") -> State:
    """Return the content of a table of index/words."""
    return {(row.partition, row.key): tuple(json.loads(row.value)) for row in frame.collect()}


def test_a_fold_of_the_changelogs_is_the_state_then_and_now(finished: FinishedJob) -> None:
    """As of a checkpoint, every task's changelog gives what its store held then (K2, R1)."""
    log = JobDirectory(finished.directory).open_log(create=False)
    for checkpoint_id, expected in ((finished.first, finished.at_first), (None, finished.at_last)):
        found = {}
        for snapshot in snapshots(log, job, checkpoint_id):
            if snapshot.task.startswith("index-"):
                keys, values, _ = live(contents(segments(log, snapshot), frozenset({WORDS}))[WORDS])
                for key, value in zip(keys, values, strict=True):
                    found[snapshot.changelog.partition, key.decode()] = tuple(json.loads(value))
        assert found == expected
    log.close()
    assert finished.at_first != finished.at_last


def test_a_checkpoint_that_not_all_tasks_committed_is_refused_with_the_nearest(finished: FinishedJob) -> None:
    """A checkpoint that some task lacks is refused; the error names the nearest ones."""
    log = JobDirectory(finished.directory).open_log(create=False)
    common = set.intersection(
        *({at.commit.checkpoint_id for at in commits(log, w)} for w in all_wirings(job) if not w.is_source)
    )
    missing = next(each + 1 for each in sorted(common - {0}) if each + 1 not in common)
    with pytest.raises(ConfigError, match=f"nearest committed: {missing - 1} and "):
        snapshots(log, job, missing)
    with pytest.raises(ConfigError, match="nearest committed: 0 and "):
        snapshots(log, job, 5)
    log.close()


@pytest.mark.spark
def test_the_table_is_the_state_as_of_the_checkpoint_asked_for(spark: "SparkSession", finished: FinishedJob) -> None:
    """The newest by default; by option or by filter any that is retained; keys and values decoded."""
    newest = table(spark, finished, "changelog", store="words")
    assert words(newest) == finished.at_last
    assert (
        words(table(spark, finished, "changelog", store="index/words", checkpoint=finished.first)) == finished.at_first
    )
    assert words(newest.filter(newest.checkpoint_id == finished.first)) == finished.at_first
    time = datetime.fromtimestamp(finished.first / 1000, UTC).isoformat(timespec="milliseconds")
    assert words(table(spark, finished, "changelog", store="index/words", checkpoint=time)) == finished.at_first
    one = newest.filter((newest.partition == 2) & (newest.checkpoint_id == finished.first))
    assert words(one) == {at: value for at, value in finished.at_first.items() if at[0] == 2}
    assert {row.store for row in one.collect()} == {"words"}
    assert all(row.written <= finished.first and row.generation >= 1 for row in one.collect())


@pytest.mark.spark
def test_the_commits_are_a_table(spark: "SparkSession", finished: FinishedJob) -> None:
    """Each valid commit with its inputs, outputs and rollback history; checkpoints grow."""
    every = table(spark, finished, "commits").orderBy("stage", "partition", "offset").collect()
    by_task: dict[tuple[str, int], list[Any]] = {}
    for row in every:
        by_task.setdefault((row.stage, row.partition), []).append(row)
    assert len(by_task) == 2 * job.partitions
    for (stage, _), rows in by_task.items():
        checkpoint_ids = [row.checkpoint_id for row in rows]
        assert checkpoint_ids == sorted(set(checkpoint_ids))
        assert len(rows[-1].outputs) == (job.partitions if stage == "split" else 0)
        rollbacks = rows[-1].rollback_history
        assert [each.generation for each in rollbacks] == sorted({each.generation for each in rollbacks})
        assert {each.checkpoint_id for each in rollbacks} <= {0, *checkpoint_ids}
    read = sum(rows[-1].external[0].offset for (stage, _), rows in by_task.items() if stage == "split")
    assert read == FILES + 3  # each document, and the three changes


@pytest.mark.spark
def test_a_stream_shows_committed_records_once(spark: "SparkSession", finished: FinishedJob) -> None:
    """A stream whose records are processed is trimmed (K3).

    The rest has no record twice and none beyond the last checkpoint.
    """
    rows = table(spark, finished, "stream", topic="postings").collect()
    places = [(row.producer, row.partition, row.seq) for row in rows]
    assert len(places) == len(set(places))


@pytest.mark.spark
def test_a_wrong_option_is_refused_before_anything_runs(spark: "SparkSession", finished: FinishedJob) -> None:
    """The error names the option and what there is."""
    with pytest.raises(Exception, match="none is called so: job 'inverted-index' has split/known"):
        table(spark, finished, "changelog", store="nope").schema  # noqa: B018  # asking is the test
    with pytest.raises(Exception, match="unknown option 'stoer'"):
        table(spark, finished, "changelog", stoer="words").schema  # noqa: B018  # as above


def counted(spark: "SparkSession", job_directory: JobDirectory, **options: Any) -> set[tuple[int, str, int]]:
    """Return (partition, key, value) of what the second stage of the pair job has counted."""
    asked = {"job": "tests.state.pair_job", "directory": str(job_directory.directory), "store": "counts"} | options
    rows = spark.read.format("changelog").options(**asked).load().collect()
    return {(row.partition, row.key, row.value) for row in rows}


@pytest.mark.spark
def test_what_is_odd_in_a_changelog_is_passed_over_or_refused(spark: "SparkSession", tmp_path: Path) -> None:
    """Generations, an invalid tail, a claim race, a late message change nothing; what is trimmed or newer is said."""
    job_directory, two = JobDirectory(tmp_path / "job"), int64.encode(2)
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(pair, log)
    first, second = whole(log, {b"a": int64.encode(1)}), whole(log, {b"a": two})
    third = begin(log, pair, Settings())
    write(log, third, 2, {b"a": int64.encode(3)})
    abort(log, third)
    task = third.tasks[2]
    race = encode_claim(task.header(ChangelogType.CLAIM)._replace(seq=0), Claim(bytes(16), "late", 1, 1))
    late = ChangelogHeader(ChangelogType.DATA, second.tasks[2].generation, 9, 1)
    for token, message in enumerate((race, encode_data(late, [10], [b"a"], [int64.encode(4)])), 1):
        log.send(0, token, task.changelog, message)
    log.poll()
    assert (
        counted(spark, job_directory)
        == counted(spark, job_directory, checkpoint=second.checkpoint_id)
        == {(0, "a", 2), (1, "a", 2)}
    )
    for claimed in second.tasks:
        log.trim(claimed.changelog, claimed.begin - 1)
    assert counted(spark, job_directory) == {(0, "a", 2), (1, "a", 2)}
    with pytest.raises(Exception, match="it began later, or it is not retained"):
        counted(spark, job_directory, checkpoint=first.checkpoint_id)
    three = tmp_path / "three.py"
    three.write_text(Path("tests/state/pair_job.py").read_text().replace("partitions=2", "partitions=3"))
    with pytest.raises(Exception, match=r"changelog has 2: write Job\(…, partitions=2\)"):
        counted(spark, job_directory, job=str(three))
    newer = encode_changelog_header(task.header(ChangelogType.COMMIT)._replace(seq=99)) + (9).to_bytes(2, "big")
    log.send(0, 9, task.changelog, newer)
    log.poll()
    with pytest.raises(Exception, match="schema version 9, this build reads 1 and 2: upgrade before reading"):
        counted(spark, job_directory)
    log.close()
