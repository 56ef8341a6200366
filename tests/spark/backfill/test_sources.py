"""Sources of a history: tables, queries, other formats, data frames; the names of their columns."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grete.errors import ConfigError
from grete.spark.backfill.history import read_history
from grete.spark.backfill.sources import HistorySource, columns_of, source_of
from grete.spark.jobs import backfill_job
from tests.spark.backfill.scene import NOW_MS, SETTINGS, Scene, made, parquet
from tests.support import recommendations

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

with_spark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("lake/clicks", "", "lake/clicks"),
        ("s3a://lake/clicks", "", "s3a://lake/clicks"),
        ("file:/lake/clicks", "", "file:/lake/clicks"),
        ("dbfs:/lake/clicks", "", "dbfs:/lake/clicks"),
        ("json:lake/clicks", "json", "lake/clicks"),
        ("delta:s3a://lake/clicks", "delta", "s3a://lake/clicks"),
        ("table:lake.clicks", "table", "lake.clicks"),
        ("sql:SELECT 'a:b' AS key\nFROM t", "sql", "SELECT 'a:b' AS key\nFROM t"),
    ],
)
def test_a_text_is_a_path_unless_it_names_something_else(text: str, kind: str, place: str) -> None:
    """A format or table comes before a colon; schemes of paths are none."""
    assert source_of(text) == HistorySource(kind, place)


def test_paths_are_made_absolute_and_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors have another working directory."""
    monkeypatch.chdir(tmp_path)
    assert [source_of(text).text for text in ("a", "orc:a")] == [f"{tmp_path}/a", f"orc:{tmp_path}/a"]
    for text in ("s3a://a", "file:/a", "table:a", "sql:SELECT 1", "delta:s3a://a"):
        assert source_of(text).text == text


def test_columns_are_named_for_all_topics_or_one() -> None:
    """A name that is no column of a history, or no topic, is an error that says which there are."""
    job = recommendations.job
    found = columns_of(job, ["value=payload, timestamp=event.time", "forecasts:key=id,value=*"])
    both = {"value": "payload", "timestamp": "event.time"}
    assert found == {"locations": both, "forecasts": both | {"key": "id", "value": "*"}}
    for text, words in (("time=at", "a COLUMN of key, value"), ("x:key=id", "x is no topic"), ("key=", "COLUMN=NAME")):
        with pytest.raises(ConfigError, match=words):
            columns_of(job, [text])


def rows_of(spark: "SparkSession", text: str, **columns: str) -> list[tuple[Any, ...]]:
    """Return key, value and timestamp of a history."""
    rows = read_history(spark, text, "events", 2, columns).rows.orderBy("timestamp")
    return [(bytes(row["key"]), bytes(row["value"]), row["timestamp"]) for row in rows.collect()]


class TestSpark:
    """With a session."""

    pytestmark = with_spark

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        """Return a table's file with names of its own, and times without a zone."""
        times = pa.array([1_700_000_000_000_000, 1_700_000_001_000_000], pa.timestamp("us"))
        table = pa.table({"id": ["a", "b"], "event_time": times, "payload": ["x", "y"], "n": [1, None]})
        pq.write_table(table, tmp_path / "events.parquet")
        return str(tmp_path / "events.parquet")

    def test_a_table_a_query_and_another_format(self, spark: "SparkSession", path: str, tmp_path: Path) -> None:
        """Each gives the rows by our names; times without a zone are of UTC in each session."""
        expected = [(b"a", b"x", 1_700_000_000_000), (b"b", b"y", 1_700_000_001_000)]
        names = {"key": "id", "value": "payload", "timestamp": "event_time"}
        spark.read.parquet(path).createOrReplaceTempView("events_of_test_sources")
        spark.read.parquet(path).write.orc(str(tmp_path / "orc"))
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            for text in (path, f"parquet:{path}", f"orc:{tmp_path}/orc", "table:events_of_test_sources"):
                assert rows_of(spark, text, **names) == expected, text
            assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
        finally:
            spark.conf.set("spark.sql.session.timeZone", before or "UTC")
        query = "sql:SELECT id AS key, payload AS value, event_time AS timestamp FROM events_of_test_sources"
        assert rows_of(spark, query) == expected

    def test_a_value_of_all_other_columns(self, spark: "SparkSession", path: str) -> None:
        """A row becomes a JSON object of what is not used already."""
        found = rows_of(spark, path, key="id", value="*", timestamp="event_time")
        assert [value for _, value, _ in found] == [b'{"payload":"x","n":1}', b'{"payload":"y"}']

    def test_what_is_not_there_is_named(self, spark: "SparkSession", path: str, tmp_path: Path) -> None:
        """A column, a table, a format: an error with Spark's own words, and JSON lines have no other columns."""
        (tmp_path / "lines.jsonl").write_text('{"key": "a", "value": 1, "timestamp": 5}')
        wrong = [
            (path, {"key": "nobody"}, "nobody"),
            ("table:nothing", {}, "nothing"),
            ("nonsense:/x", {}, "nonsense"),
            ("sql:SELEC 1", {}, "SELEC"),
            (str(tmp_path / "lines.jsonl"), {"value": "*"}, "JSON lines have no types"),
        ]
        for text, columns, word in wrong:
            with pytest.raises(ConfigError, match=word):
                read_history(spark, text, "events", 2, columns)

    @pytest.fixture
    def scene(self, tmp_path: Path) -> Iterator[Scene]:
        """Make a job."""
        scene = Scene(tmp_path, "-sources")
        yield scene
        scene.log.close()

    def test_a_data_frame_is_a_history(self, spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
        """A notebook builds a job's state from rows in no order; an audit from files of the same rows agrees."""
        rows = list(made(300, 41))
        path = parquet(tmp_path / "history" / "0.parquet", rows)
        random.Random(1).shuffle(rows)
        frame = spark.createDataFrame(rows, "key string, value string, timestamp bigint").repartition(3)
        directory = scene.job_directory.directory
        build = partial(
            backfill_job, scene.reference, spark=spark, directory=directory, settings=SETTINGS, max_refused=100
        )
        done = build({scene.topic: frame})
        assert sum(taken.records for report in done.reports for taken in report.taken) == 300
        assert max(at or 0 for report in done.reports for at in [each.reached_ms for each in report.taken]) > NOW_MS
        audited = scene.audit(spark, path)
        assert (audited.wrong, audited.differences) == (0, [])
        wrong = [({}, "says nothing of"), ({"x": frame, scene.topic: frame}, "history of x")]
        for history, words in wrong:
            with pytest.raises(ConfigError, match=words):
                build(history)
