"""``readStream`` of ``stream`` and ``topic``: records of a job, each once; what is trimmed is missed and said."""

import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.errors import ConfigError, SerdeError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.write.rescale import rescale
from tests.spark.format.history import run
from tests.spark.format.queries import Query, Reader, code
from tests.spark.format.test_change_troubles import roll_back

pytestmark = pytest.mark.timeout(1_800)  # the first to come starts Spark

KEPT = Settings(checkpoint_interval_ms=50, stream_retention_ms=600_000)


def check(observed: list[Any], words: list[Any], totals: list[Any]) -> None:
    """Compare with what the job was fed: each line, each word of them and each count is there once."""
    counts = Counter(word for row in observed for word in row["value"].split())
    assert len({(row["partition"], row["offset"]) for row in observed}) == len(observed)
    assert Counter(row["key"] for row in words) == counts
    channels: dict[tuple[str, int], list[int]] = {}
    for row in words:
        channels.setdefault((row["producer"], row["partition"]), []).append(row["seq"])
    for seqs in channels.values():
        assert sorted(seqs) == list(range(1, len(seqs) + 1))
    told: dict[str, list[int]] = {}
    for row in totals:
        told.setdefault(row["key"], []).append(row["value"])
    assert {word: sorted(values) for word, values in told.items()} == {
        word: list(range(1, count + 1)) for word, count in counts.items()
    }


@pytest.mark.parametrize(
    "log", [pytest.param("embedded", marks=pytest.mark.spark), pytest.param("kafka", marks=pytest.mark.kafka)]
)
def test_records_are_followed_while_workers_are_killed(
    log: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Over a rollback, queries that are started again have each record once; a table of a topic has the same.

    On the embedded log by a real session, on Kafka by the calls that it makes.
    """
    address, suffix = IN_DIRECTORY, ""
    if log == "kafka":
        address = LogAddress(f"kafka://{request.getfixturevalue('kafka_broker').bootstrap}")
        suffix = f"-{random.randrange(1 << 40):x}"
    directory, job = tmp_path / "job", code(tmp_path / "told.py", suffix)

    def query(name: str, form: str, **more: str) -> Query | Reader:
        topic, where = name if form == "stream" else f"{name}{suffix}", {"log": address.url}
        if log == "kafka":
            return Reader(job, directory, form, topic=topic, **where, **more)
        spark = request.getfixturevalue("spark")
        return Query(spark, directory, tmp_path / name, form, job=str(job), topic=topic, **where, **more)

    run(directory, 2, frozenset({1}), str(job), address, KEPT)
    observed, words = query("observed", "topic", maxRecordsPerBatch="15"), query("words", "stream")
    totals = query("totals", "topic")
    for each in (observed, words, totals):
        each.run()
    assert [batches(each) for each in (observed, words, totals)] == [2, 1, 1]
    with closing(JobDirectory(directory, address=address).open_log()) as opened:
        roll_back(opened, load_job(str(job)))
    run(directory, 2, frozenset({0}), str(job), address, KEPT)
    for each in (observed, words, totals):
        each.run()
    assert [batches(each) for each in (observed, words, totals)] == [4, 2, 2]
    check(rows(observed, "offset"), rows(words, "seq"), rows(totals, "offset"))
    assert len(rows(observed, "offset")) == 40
    table = totals.table()
    assert sorted(without_headers(table)) == sorted(without_headers(rows(totals, "offset")))


def batches(query: Query | Reader) -> int:
    """Return the number of its batches."""
    return query.batches() if isinstance(query, Query) else query.batches


def rows(query: Query | Reader, order: str) -> list[Any]:
    """Return the rows that it has read."""
    if isinstance(query, Query):
        return [row.asDict() for row in query.rows(order)]
    return sorted(query.rows, key=lambda row: row[order])


def without_headers(found: list[Any]) -> list[list[Any]]:
    """Return cells that have an order."""
    return [[cell for name, cell in row.items() if name != "headers"] for row in found]


def test_a_batch_of_a_topic_has_a_limit(tmp_path: Path) -> None:
    """Partitions have equal parts of it, and what one of them has not, others get; a query comes to the end."""
    directory, job = tmp_path / "job", code(tmp_path / "told.py")
    run(directory, 1, reference=str(job))
    with closing(JobDirectory(directory).open_log()) as log:
        ends = {str(number): log.bounds(TopicPartition("observed", number))[1] for number in range(2)}
    less, more = sorted(ends, key=ends.__getitem__)
    assert 1 < ends[less] < ends[more], ends
    reader = Reader(job, directory, "topic", topic="observed", maxRecordsPerBatch="2")
    at, sizes = reader.begin(), list[int]()
    while (end := reader.follow(at)) != at:
        at = end
        sizes.append(len(reader.rows))
        if len(sizes) == 1:
            assert at["offsets"] == {"0": 1, "1": 1}
    assert at["offsets"] == ends
    assert sizes == [*range(2, 10, 2), 10]
    assert len({(row["partition"], row["offset"]) for row in reader.rows}) == 10
    wide = Reader(job, directory, "topic", topic="observed", maxRecordsPerBatch=str(2 * ends[less] + 1))
    assert wide.follow(wide.begin())["offsets"] == {less: ends[less], more: ends[less] + 1}
    with pytest.raises(ConfigError, match="option maxRecordsPerBatch = '0': it is a number from 1 on"):
        Reader(job, directory, "topic", topic="observed", maxRecordsPerBatch="0")


def test_records_that_are_trimmed_under_a_query_are_missed(tmp_path: Path) -> None:
    """Nothing is left out silently: the error says which are gone, and how to go on."""
    directory, job = tmp_path / "job", code(tmp_path / "told.py")
    trimming = Settings(checkpoint_interval_ms=50)  # at once
    run(directory, 1, reference=str(job), settings=trimming)
    stream = Reader(job, directory, "stream", topic="words")
    begun = stream.begin()
    run(directory, 1, reference=str(job), settings=trimming)
    with pytest.raises(
        ConfigError, match=r"records \d+ to \d+ of split-\d are trimmed: .*stream_retention_ms: raise it, and begin"
    ):
        stream.follow(begun)
    topic = Reader(job, directory, "topic", topic="observed")
    begun = topic.begin()
    log = JobDirectory(directory).open_log(create=False)
    log.trim(TopicPartition("observed", 0), 3)
    with pytest.raises(ConfigError, match=r"observed\[0\]: records from offset 0 on are no longer retained.* offset 3"):
        topic.follow(begun)
    again = Reader(job, directory, "topic", topic="observed", startingOffsets='{"1": 2}')
    assert again.begin()["offsets"] == {"0": 3, "1": 2}
    again.follow(again.begin())
    assert {(row["partition"], row["offset"]) for row in again.rows} == {
        (n, offset)
        for n, first in enumerate((3, 2))
        for offset in range(first, log.bounds(TopicPartition("observed", n))[1])
    }
    latest = Reader(job, directory, "topic", topic="observed", startingOffsets="latest")
    begun = latest.begin()
    assert latest.follow(begun) == begun
    assert not latest.rows
    log.close()
    with pytest.raises(ConfigError, match=r"offset 99 of observed\[1\]: there are 0 to"):
        Reader(job, directory, "topic", topic="observed", startingOffsets='{"1": 99}').begin()
    with pytest.raises(ConfigError, match="startingOffsets = 'first': it is earliest, latest, or offsets such as"):
        Reader(job, directory, "topic", topic="observed", startingOffsets="first")
    with pytest.raises(ConfigError, match="none is called so: job 'told' reads and writes outside: observed, totals"):
        Reader(job, directory, "topic", topic="words")


def test_bytes_that_are_no_record_are_named(tmp_path: Path) -> None:
    """The error says where they are, and a query that begins behind them goes on."""
    directory, job = tmp_path / "job", code(tmp_path / "told.py")
    run(directory, 1, reference=str(job))
    log = JobDirectory(directory).open_log(create=False)
    bad = TopicPartition("totals", 0)
    end = log.bounds(bad)[1]
    records = [ExternalRecord(bad, b"a", value, 1) for value in (b"no int64", b"four", bytes(8))]
    log.open_metadata("told").produce_with_meta(records, {})
    log.close()
    reader = Reader(job, directory, "topic", topic="totals")
    with pytest.raises(SerdeError, match=rf"totals\[0\] offset {end + 1}: .*startingOffsets = {{\"0\": {end + 2}}}"):
        reader.follow(reader.begin())
    behind = Reader(job, directory, "topic", topic="totals", startingOffsets=f'{{"0": {end + 2}}}')
    behind.follow(behind.begin())
    assert [row["value"] for row in behind.rows if row["partition"] == 0] == [0]


def test_a_stream_is_followed_over_a_rescale(tmp_path: Path) -> None:
    """With the code before, it says what to do; with the new code it has each record once, of new producers, too."""
    directory = tmp_path / "job"
    one, two = code(tmp_path / "one.py", partitions="1"), code(tmp_path / "two.py")
    run(directory, 1, reference=str(one), settings=KEPT)
    words, observed, totals = (
        Reader(one, directory, form, topic=topic)
        for form, topic in (("stream", "words"), ("topic", "observed"), ("topic", "totals"))
    )
    begun = [reader.follow(reader.begin()) for reader in (words, observed, totals)]
    run(directory, 1, reference=str(one), settings=KEPT)
    log = JobDirectory(directory).open_log()
    rescale(log, load_job(str(one)), 2, KEPT, own_topics=True, assume_keyed=True)
    log.close()
    with pytest.raises(
        ConfigError, match="has 1 partitions in the job's code, and 2 in the log: if the job was rescaled"
    ):
        words.follow(begun[0])
    run(directory, 2, frozenset({1}), str(two), settings=KEPT)
    found = []
    for old, form, topic, at in zip(
        (words, observed, totals), ("stream", "topic", "topic"), ("words", "observed", "totals"), begun, strict=True
    ):
        new = Reader(two, directory, form, topic=topic)
        new.follow(at)
        found.append(old.rows + new.rows)
    words_found, *outside = found
    check(outside[0], words_found, outside[1])
    whole = Reader(two, directory, "stream", topic="words")
    whole.follow(whole.begin())
    places = [
        sorted((row["producer"], row["partition"], row["seq"]) for row in rows) for rows in (whole.rows, found[0])
    ]
    assert places[0] == places[1]


@pytest.mark.parametrize("mode", ["deterministic", "at-least-once"])
def test_streams_of_other_modes(tmp_path: Path, mode: str) -> None:
    """A deterministic job has each record once, though sent again; at least once nothing tells what will stay."""
    directory, job = tmp_path / "job", code(tmp_path / "told.py")
    settings = KEPT
    if mode == "deterministic":
        job.write_text(job.read_text().replace("partitions=2", "partitions=2, mode='deterministic'"))
    else:
        settings = Settings(checkpoint_interval_ms=50, processing_guarantee="at-least-once")
    run(directory, 1, reference=str(job), settings=settings)
    readers = [
        Reader(job, directory, form, topic=topic)
        for form, topic in (("topic", "observed"), ("stream", "words"), ("topic", "totals"))
    ]
    if mode == "at-least-once":
        with pytest.raises(ConfigError, match="runs at least once: nothing tells which records of a stream will stay"):
            readers[1].begin()
        return
    begun = [reader.follow(reader.begin()) for reader in readers]
    run(directory, 3, frozenset({0, 1}), str(job), settings=settings)
    for reader, at in zip(readers, begun, strict=True):
        reader.follow(at)
    check(*(reader.rows for reader in readers))
    origins = [(row["partition"], row["producer"], row["seq"]) for row in readers[2].rows]
    assert len(set(origins)) == len(origins)
    assert all(seq is not None for _, _, seq in origins)
