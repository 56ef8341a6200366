"""The account of a history: each row of its files is taken, refused, there twice, or left out with a reason."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grete.cli import command_line
from grete.errors import Halted
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.account.file_rows import FileRows, OffsetHole
from grete.spark.backfill.account.reconciled import InputAccount, reconciled
from grete.spark.backfill.account.seams import Seam
from grete.spark.backfill.history_checks import Accept, Accepted
from grete.spark.backfill.plans import LogTail
from grete.spark.backfill.ranges import InputRanges
from tests.spark.backfill.scene import NOW_MS, Scene, external, parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = TopicPartition("events", 0)
COVER = InputRanges({(0, PLACE): LogTail(40, 50)}, {}, {}, {PLACE: 50}, [])


def rows(taken: int) -> FileRows:
    """Return the rows of a task: a file of ten, of which it has refused one."""
    found = FileRows("events", 0, records=taken, first_ms=3, reached_ms=9, refused_rows=1, holes=[OffsetHole(4, 6)])
    found.known.add(b"a")
    found.block("a", 4, 3, 8)
    found.block("a", 6, 1, 9)
    return found


def test_rows_of_files_that_no_task_has_taken_are_an_error() -> None:
    """A row that is lost between files and tasks would be missing from the state; behind start= it is meant."""
    first = LogRow(40, 12, 11, b"a", b"1", None)
    account = reconciled({PLACE: rows(9)}, {}, COVER, (), {PLACE: Seam(first, {b"a": None, b"b": None})})
    assert account.inputs == [InputAccount("events", 0, 10, 9, 1, 0, 0, 2, 3, 9, 10, 50, None, 40, 11, 2, 1)]
    assert [(each.file, each.rows, each.first_ms, each.last_ms) for each in account.files] == [("a", 10, 1, 9)]
    for taken, begun in ((8, ()), (10, ("events",))):
        with pytest.raises(Halted, match=f"have 10 rows, and the job took {taken}: 1 were refused"):
            reconciled({PLACE: rows(taken)}, {}, COVER, begun, {})
    assert reconciled({PLACE: rows(7)}, {}, COVER, ["events"], {}).inputs[0].left_out == 2


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Make a job."""
    scene = Scene(tmp_path, "-reconciled")
    yield scene
    scene.log.close()


@pytest.mark.spark
@pytest.mark.timeout(1_800)  # the first to come starts Spark
def test_each_file_and_input_has_a_line(
    spark: "SparkSession",
    scene: Scene,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Files without offsets, as JSON by the command line, with --map; then an archive with rows twice, and a hole."""
    named = [f"key-{number}" for number in range(40)]
    keys = [key for key in named if external("", key, "", 0).partition.partition == 0][:2]
    new = external("", "new", "", 0).partition.partition
    other = next(key for key in named if external("", key, "", 0).partition.partition == 1)
    parquet(tmp_path / "plain" / "0.parquet", [(other, "1", NOW_MS + 5), (other, "1", NOW_MS)], id=keys)
    parquet(tmp_path / "plain" / "1.parquet", [(other, "1", NOW_MS + 3)], id=keys[:1])
    directory = scene.job_directory.directory
    scene.feed([(other, "1", NOW_MS + 9), (keys[0], "1", NOW_MS + 9), ("new", "1", NOW_MS + 9)])
    options = f"{scene.reference} --directory {directory} --from {tmp_path}/plain --map key=id --json"

    def typed(name: str) -> list[dict[str, Any]]:
        command = f"grete {name} {options} --metrics {tmp_path}/{name}.prom"
        monkeypatch.setattr(sys, "argv", command.split())
        with pytest.raises(SystemExit) as ended:
            command_line()
        printed, errors = capsys.readouterr()
        assert not ended.value.code, errors
        return list(map(json.loads, printed.splitlines()))

    *files, first, second = typed("backfill")
    place = {"topic": scene.topic, "partition": 0}
    nothing = {"first_offset": None, "last_offset": None}
    assert [each | {"file": each["file"][-9:]} for each in files] == [
        place | nothing | {"file": "0.parquet", "rows": 2, "first_ms": NOW_MS, "last_ms": NOW_MS + 5},
        place | nothing | {"file": "1.parquet", "rows": 1, "first_ms": NOW_MS + 3, "last_ms": NOW_MS + 3},
    ]
    assert (first["rows"], first["taken"], first["first_ms"], first["last_ms"]) == (3, 3, NOW_MS, NOW_MS + 5)
    assert (first["log_offset"], first["log_ms"], first["log_keys"]) == (0, NOW_MS + 9, 1 + (new == 0))
    assert (first["known_keys"], second["known_keys"]) == (1, 0), "one key of the log is in the files"
    metrics = dict(line.split("} ") for line in (tmp_path / "backfill.prom").read_text().splitlines() if "} " in line)
    labels = f'job="{scene.job.name}",partition="0",topic="{scene.topic}"'
    assert metrics[f"grete_history_taken{{{labels}"] == metrics[f"grete_history_rows{{{labels}"] == "3.0"
    assert float(metrics[f"grete_history_last_timestamp_seconds{{{labels}"]) == (NOW_MS + 5) / 1_000
    assert "grete_history_differences" not in (tmp_path / "backfill.prom").read_text()
    assert typed("audit") == [*files, first, second], "one report for both"
    told = (tmp_path / "audit.prom").read_text()
    assert f'grete_history_differences{{job="{scene.job.name}"}} 0.0' in told
    assert (second["partition"], second["rows"], second["goes_on"]) == (1, 0, 0)

    scene.feed([(keys[0], "1", NOW_MS + number) for number in range(11 - (new == 0))])
    offsets = [0, 1, 2, 2, 6, 7, 8, 9]
    archived = [(keys[0], "1", NOW_MS + offset) for offset in offsets]
    path = parquet(tmp_path / "archive" / "0.parquet", archived, partition=[0] * 8, offset=offsets)
    scene.accepted = Accepted(kinds=frozenset({Accept.HOLES, Accept.FEWER}))
    account = scene.backfill(spark, path, until="0=11,1=0").account
    at_10 = NOW_MS + 9 - (new == 0)
    assert account.inputs[0] == InputAccount(
        scene.topic, 0, 8, 7, 0, 1, 0, 3, NOW_MS, NOW_MS + 9, 1, 11, 9, 10, at_10, 1, 1
    )
    (file,) = account.files
    assert (file.file[-9:], file.rows, file.first_ms, file.last_ms) == ("0.parquet", 8, NOW_MS, NOW_MS + 9)
    assert (file.first_offset, file.last_offset) == (0, 9)
