"""Files that would make a wrong state are an error with numbers, unless an option accepts them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grete.errors import ConfigError
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.history import read_history
from grete.spark.backfill.history_checks import Accept, Accepted
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import settled_fold
from tests.spark.backfill.scene import NOW_MS, Records, Scene, external, parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

NOTHING = Accepted()
FIRST = [("stages=[Parse, Sum]", "stages=[Parse]")]  # the stage that reads the history
BY_TIME = [
    *FIRST,
    ('Store("seen", key=utf8, value=int64)', 'Store("seen", key=utf8, value=int64, ttl_ms=1_000_000)'),
]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path, "-checked", changes=BY_TIME)
    scene.accepted = NOTHING
    yield scene
    scene.log.close()


def numbers(count: int, first: int = 0) -> Records:
    return [(f"key-{number % 7}", "1", NOW_MS + number) for number in range(first, first + count)]


def partition(key: str) -> int:
    return external("events", key, "", 0).partition.partition


def refused(spark: "SparkSession", scene: Scene, path: str, accepted: Accepted, *words: str) -> None:
    """Look that a backfill ends with these words and has changed nothing; ``accepted`` makes it count."""
    before = [settled_fold(scene.log, wiring).last for wiring in all_wirings(scene.job)]
    with pytest.raises(ConfigError) as error:
        scene.backfill(spark, path)
    assert [word for word in words if word not in str(error.value)] == [], error.value
    assert [settled_fold(scene.log, wiring).last for wiring in all_wirings(scene.job)] == before
    scene.accepted = accepted
    scene.backfill(spark, path)
    scene.accepted = NOTHING


def test_a_time_in_the_future(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """One wrong row would move event time there, and all that comes live before would be late: no job without time."""
    path = parquet(tmp_path / "history" / "0.parquet", [*numbers(10), ("key-1", "1", 4_102_444_800_000)])
    words = "the highest timestamp of the files is 4102444800000", "2100-01-01", "in the future", "--accept times"
    refused(spark, scene, path, Accepted(kinds=frozenset({Accept.TIMES})), *words)
    (tmp_path / "other").mkdir()
    timeless = Scene(tmp_path / "other", "-timeless", changes=FIRST)
    timeless.accepted = NOTHING
    timeless.backfill(spark, path)
    timeless.log.close()


def test_files_and_a_log_that_overlap(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """The topic still has records that the files have, too: both bounds are named, and nothing counts twice."""
    path = parquet(tmp_path / "history" / "0.parquet", numbers(300))
    scene.feed(numbers(110, 200))
    first = next(at for key, _, at in numbers(110, 200) if partition(key) == 0)
    words = "events-checked[0]", str(first), "offset 0", "--accept overlap"
    refused(spark, scene, path, Accepted(kinds=frozenset({Accept.OVERLAP})), *words)


def test_offsets_that_are_in_no_file(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """A file of an archive is missing: its offsets are named."""
    rows = [row for row in numbers(80) if partition(row[0]) == 0][:30]
    scene.feed(rows)
    there = [*range(10), *range(20, 30)]
    path = parquet(tmp_path / "a" / "0.parquet", [rows[i] for i in there], partition=[0] * 20, offset=there)
    words = "events-checked[0]: 10 offsets are in no file: 10 to 19", "The log has 0 to 30", "--accept holes"
    refused(spark, scene, path, Accepted(kinds=frozenset({Accept.HOLES})), *words)


def test_keys_that_have_other_bytes_in_the_files(spark: "SparkSession", tmp_path: Path) -> None:
    """A struct of the files becomes JSON without spaces; what the producers write there has some: another entry."""
    of_json = [
        *FIRST,
        ('"events", key=utf8', '"events", key=json'),
        ("int64, utf8", "int64, json, utf8"),
        ("self.seen.put(record.key, self.seen.get(record.key, 0) + 1)", "self.seen.put(str(record.key), 1)"),
        ("self.out.send(record.key[-1:]", 'self.out.send("any"'),
    ]
    scene = Scene(tmp_path, "-keys", changes=of_json)
    scene.accepted = NOTHING
    rows = pa.table({"key": [{"id": 7}], "value": ["1"], "timestamp": [NOW_MS]})
    pq.write_table(rows, tmp_path / "structs.parquet")
    scene.feed([('{"id": 7}', "1", NOW_MS + 1)])
    words = """has the key b'{"id": 7}', and the files have b'{"id":7}'""", "--accept keys"
    refused(spark, scene, str(tmp_path / "structs.parquet"), Accepted(kinds=frozenset({Accept.KEYS})), *words)
    scene.log.close()


def test_a_topic_that_was_partitioned_otherwise(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """Without offsets the history of a key would be in another task than what comes live."""
    path = parquet(tmp_path / "history" / "0.parquet", numbers(10))
    right = external(scene.topic, "key-1", "1", NOW_MS + 20)
    wrong = right._replace(partition=TopicPartition(scene.topic, 1 - right.partition.partition))
    scene.metadata.produce_with_meta([wrong], {})
    words = "1 of the first 1 keys of the log, such as b'key-1'", "murmur2", "--accept keys"
    refused(spark, scene, path, Accepted(kinds=frozenset({Accept.KEYS})), *words)


def test_a_history_that_has_become_shorter(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """A file has gone since the last backfill: its state is not replaced by a smaller one."""
    for number in range(2):
        parquet(tmp_path / "history" / f"{number}.parquet", numbers(100, 100 * number))
    scene.backfill(spark, str(tmp_path / "history"))
    (tmp_path / "history" / "1.parquet").unlink()
    words = "that of the last backfill had", "--accept fewer"
    refused(spark, scene, str(tmp_path / "history"), Accepted(kinds=frozenset({Accept.FEWER})), *words)


def test_a_log_that_was_trimmed_since(spark: "SparkSession", scene: Scene) -> None:
    """The same command again would lose what the topic has lost; the commits say so, without the job's directory."""
    scene.feed(numbers(100))
    scene.backfill(spark, "kafka")
    scene.job_directory.history().unlink()
    for number in range(2):
        scene.log.trim(TopicPartition(scene.topic, number), 20)
    words = "the log begins at offset 20", "archive"
    refused(spark, scene, "kafka", Accepted(kinds=frozenset({Accept.FEWER})), *words)
    scene.job_directory.history().write_text("{")
    scene.accepted = Accepted(kinds=frozenset({Accept.FEWER}))
    with pytest.raises(ConfigError, match=r"history\.json is damaged"):
        scene.backfill(spark, "kafka")


def test_a_log_that_was_trimmed_since_beside_files_without_offsets(
    spark: "SparkSession", scene: Scene, tmp_path: Path
) -> None:
    """The same command again would lose records that the job took from the log and the log has deleted."""
    path = parquet(tmp_path / "history" / "0.parquet", numbers(100))
    scene.backfill(spark, path)
    scene.feed(numbers(100, 100))
    scene.run()
    for number in range(2):
        scene.log.trim(TopicPartition(scene.topic, number), 20)
    words = "and the job has taken", "from the log since: the state would lose the others", "--accept fewer"
    refused(spark, scene, path, Accepted(kinds=frozenset({Accept.FEWER})), *words)


def test_records_that_go_to_no_store(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """Dead letters of a history are an error, with the first rows that are none at all."""
    lines = [json.dumps({"key": "key-1", "value": "7", "timestamp": 5}), "{broken", json.dumps({"key": "a"})]
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    words = "2 records of the history go to no store", "the line is not JSON: b'{broken'", "--max-refused 2"
    refused(spark, scene, str(tmp_path / "history.jsonl"), Accepted(refused=2), *words)


def test_json_keeps_the_text_of_keys_and_values(spark: "SparkSession", tmp_path: Path) -> None:
    """Numbers have all of their digits and forms, nulls and the order of fields stay, whatever other lines have."""
    values = ['{"n":9007199254740993,"f":7.0,"z":null,"a":1}', "2.50", '{"a": [1, 2.5]}', '"text"', "true"]
    lines = [f'{{"key":{{"b":1,"a":2.0}},"value":{value},"timestamp":{at}}}' for at, value in enumerate(values)]
    (tmp_path / "history.jsonl").write_text("\n".join(lines))
    rows = read_history(spark, str(tmp_path / "history.jsonl"), "events", 1).rows.orderBy("timestamp").collect()
    assert [bytes(row["value"]).decode() for row in rows] == [*values[:3], "text", "true"]
    assert {bytes(row["key"]) for row in rows} == {b'{"b":1,"a":2.0}'}


@pytest.mark.parametrize(("factor", "unit"), [(1_000, "seconds"), (1 / 1_000, "microseconds")])
def test_times_that_are_no_milliseconds(
    spark: "SparkSession", scene: Scene, tmp_path: Path, factor: float, unit: str
) -> None:
    """Taken for ms they would put each record into 1970, or far ahead: windows and ttl_ms would go by that."""
    rows = [(key, value, int(at / factor)) for key, value, at in numbers(10)]
    path = parquet(tmp_path / "history" / "0.parquet", rows)
    times = Accepted(kinds=frozenset({Accept.TIMES}))
    refused(spark, scene, path, times, f"it looks like {unit}", str(rows[-1][2])[:8], "--accept times")


def test_files_of_several_topics(spark: "SparkSession", tmp_path: Path) -> None:
    """An archive has a folder for each: only the one of the input is its history."""
    for topic in ("events", "orders"):
        parquet(tmp_path / f"topic={topic}" / "0.parquet", numbers(3))
    with pytest.raises(ConfigError, match=r"has rows of topic orders .* is given as that of events"):
        read_history(spark, str(tmp_path), "events", 1)
    for pattern in ("topic=*", "*", "topic={events,orders}/0.parquet", "topic=[eo]*"):
        with pytest.raises(ConfigError, match=r"has rows of topic orders .* is given as that of events"):
            read_history(spark, str(tmp_path / pattern), "events", 1)
    for given in ("topic=events", "topic=events/*.parquet", "topic=e*"):
        assert read_history(spark, str(tmp_path / given), "events", 1).rows.count() == 3
    assert read_history(spark, str(tmp_path / "topic=orders" / "*"), "events", 1).rows.count() == 3  # its earlier name


def test_columns_that_only_newer_files_have(spark: "SparkSession", tmp_path: Path) -> None:
    """Headers came later: the older files have none, and those of the newer ones stay."""
    table = pa.table({"key": [b"k"], "value": [b"1"], "timestamp": [NOW_MS]})
    pq.write_table(table, tmp_path / "0.parquet")
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "trace", "value": b"x"}]], kind)
    pq.write_table(table.append_column("headers", headers), tmp_path / "1.parquet")
    rows = read_history(spark, str(tmp_path), "events", 1).rows.orderBy("_path").collect()
    assert [row["headers"] and [tuple(each) for each in row["headers"]] for row in rows] == [None, [("trace", b"x")]]
    pq.write_table(table.set_column(2, "timestamp", pa.array(["noon"])), tmp_path / "2.parquet")
    with pytest.raises(ConfigError, match=r"(?s)history .*Failed merging schemas.*timestamp: STRING"):
        read_history(spark, str(tmp_path), "events", 1)


@pytest.mark.parametrize(
    ("folder", "mark", "name"),
    [
        ("table", "_delta_log/0.json", "Delta"),
        ("of,two", ".hoodie/p", "Hudi"),
        ("table", "metadata/v1.metadata.json", "Iceberg"),
    ],
)
def test_the_files_of_a_table_are_no_history(
    spark: "SparkSession", tmp_path: Path, folder: str, mark: str, name: str
) -> None:
    """Its folder has rows that were deleted, too: refused, as a whole and within, before anything is read."""
    table = tmp_path / folder
    path = parquet(table / "0.parquet", numbers(3))
    read_history(spark, str(table), "events", 2)
    (table / mark).parent.mkdir()
    (table / mark).write_text("{}")
    for each in (str(table), path, str(table / "*.parquet")):
        with pytest.raises(ConfigError, match=f"a table of {name}"):
            read_history(spark, each, "events", 2)
