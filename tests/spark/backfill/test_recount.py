"""An audit that reads wrongly finds itself out: SQL counts the files by itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grete.errors import Halted
from grete.spark.backfill import history
from grete.spark.backfill.history import TopicHistory
from grete.spark.backfill.history_checks import Accept
from tests.spark.backfill.scene import Scene, external, made, parquet, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]  # the first to come starts Spark

ROWS = made(400, 3)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Make a job."""
    scene = Scene(tmp_path, "-recounted")
    yield scene
    scene.log.close()


def files(folder: Path) -> str:
    """Write files without offsets, each with rows of all times, some of them at one time."""
    rows = [(key, text, at - at % 3) for key, text, at in ROWS]
    parquet(folder / "0.parquet", rows[1::2])
    parquet(folder / "1.parquet", rows[::-2])
    return str(folder)


def skips(rows: "DataFrame") -> "DataFrame":
    """Leave rows out, as a wrong filter would."""
    return rows.where("crc32(value) % 7 > 0")


def alters(rows: "DataFrame") -> "DataFrame":
    """Give another value, as a wrong conversion would."""
    return rows.withColumn("value", rows["key"])


def turns(rows: "DataFrame") -> "DataFrame":
    """Bring rows in another order, as a wrong sort would: those of one time, by the wrong file first."""
    return rows.selectExpr("translate(_path, '01', '10') AS _path", *(c for c in rows.columns if c != "_path"))


@pytest.mark.parametrize(
    ("mutant", "words"),
    [(skips, "and SQL counts"), (alters, "with other keys, values or times"), (turns, "in another order")],
)
def test_a_reader_of_files_that_is_wrong(
    spark: "SparkSession", scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Any, words: str
) -> None:
    """Backfill and audit read through the same code, so the state does not differ; the audit says so all the same."""
    path = files(tmp_path / "history")
    plain_of = TopicHistory.by_partition
    monkeypatch.setattr(
        TopicHistory, "by_partition", lambda self, *rest: plain_of(self._replace(rows=mutant(self.rows)), *rest)
    )
    scene.backfill(spark, path)
    with pytest.raises(Halted, match=words) as error:
        scene.audit(spark, path)
    assert scene.topic in str(error.value)
    monkeypatch.undo()
    assert (scene.audit(spark, path).wrong > 0) == (mutant is not turns), "the state is wrong"


def test_a_deleted_file_that_is_taken(
    spark: "SparkSession", scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a Delta table has files that its log does not name any more; one that is taken is named."""
    path, log = files(tmp_path / "table"), tmp_path / "table" / "_delta_log"
    log.mkdir()
    added = [{"add": {"path": f"{number}.parquet"}} for number in range(2)]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, added)))
    (log / f"{1:020}.json").write_text(json.dumps({"remove": {"path": "1.parquet"}}))
    monkeypatch.setattr(history, "_check_plain", lambda *_: None)
    scene.backfill(spark, path)
    with pytest.raises(Halted, match=r"1\.parquet: 200 rows, by SQL 0"):
        scene.audit(spark, path)
    (log / f"{2:020}.json").write_text(json.dumps({"add": {"path": "1.parquet"}}))
    assert not scene.audit(spark, path).wrong


def test_a_reader_that_is_right(spark: "SparkSession", scene: Scene, tmp_path: Path) -> None:
    """Files, JSON lines with a line that is none, an archive with rows twice and a tail in the log: nothing is said."""
    scene.backfill(spark, path := files(tmp_path / "history"))
    assert not scene.audit(spark, path).wrong
    lines = [json.dumps({"key": key, "value": int(text), "timestamp": at}) for key, text, at in ROWS if text != "x"]
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "0.jsonl").write_text("\n".join([*lines[:200], "{none", *lines[200:]]))
    scene.accepted = scene.accepted._replace(kinds=frozenset(Accept))
    scene.backfill(spark, path := str(tmp_path / "lines"))
    assert not scene.audit(spark, path).wrong
    scene.run()
    assert scene.state() == plain(ROWS)


@pytest.mark.parametrize("damaged", [False, True])
def test_an_archive(
    spark: "SparkSession", scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, damaged: bool
) -> None:
    """Offsets that come twice count once, the end is in the log; one row of each ten is lost by the wrong reader."""
    rows = [row for row in ROWS if external("", row[0], "", 0).partition.partition == 0]
    scene.feed(rows)
    offsets = [*range(40), *range(30, len(rows) - 5)]
    path = parquet(
        tmp_path / "a" / "0.parquet", [rows[o] for o in offsets], partition=[0] * len(offsets), offset=offsets
    )
    whole = TopicHistory.until
    if damaged:
        kept = "offset is null or offset < 20 or offset >= 22"
        monkeypatch.setattr(TopicHistory, "until", lambda s, *rest: _only(whole(s, *rest), kept))
        scene.accepted = scene.accepted._replace(kinds=frozenset(Accept))
    scene.backfill(spark, path, until=f"0={len(rows) - 2},1=0")
    if damaged:
        with pytest.raises(Halted, match=rf"{scene.topic}\[0\]: the tasks took {len(rows) - 7:,} records"):
            scene.audit(spark, path)
    else:
        assert not scene.audit(spark, path).wrong


def _only(found: TopicHistory, condition: str) -> TopicHistory:
    return found._replace(rows=found.rows.where(condition))
