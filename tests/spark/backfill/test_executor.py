"""The executors' code without Spark: one task over the batches that it would be given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from grete.errors import TaskError
from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition, producer_id
from grete.settings import Settings
from grete.spark.backfill.plans import BackfilledTask, LogTail, StagePlan
from grete.spark.backfill.run.executor import cut_pieces, run_stage
from grete.spark.backfill.run.stages import has_one_channel
from grete.spark.backfill.schema import FRAME, OUTPUT, PIECE, REPORT, STATE
from grete.spark.format.options import LogSpec
from tests.support import recommendations
from tests.support.local_batch import run_job

SUMS = str(Path(__file__).parents[1] / "sums.py")
NOWHERE = LogSpec("embedded", "", "/nowhere")
HISTORY = [(f"key-{n % 7}".encode(), b"x" if n % 11 == 0 else b"%d" % n, 1_000 + n % 90) for n in range(2_500)]


def plan_of(reference: str, stage: int, *, from_rows: bool, outputs: bool = True) -> StagePlan:
    """Return a plan that hands the state on."""
    outside = dict.fromkeys(load_job(reference).external_sinks(), 2)
    return StagePlan(reference, stage, Settings(), outside, 1, outputs, None, None, NOWHERE, {}, frozenset(), from_rows)


def rows_of(columns: dict[str, list[Any]], **more: Any) -> Any:
    """Return a batch of rows of history."""
    count = len(columns["key"])
    kinds = {"offset": pa.int64(), "timestamp": pa.int64(), "refused": pa.string()}
    cells = {"refused": [None] * count} | columns | more
    return pa.RecordBatch.from_pydict({name: pa.array(cells[name], kinds.get(name, pa.binary())) for name in cells})


def archive(offsets: list[int | None], **more: Any) -> Any:
    """Return rows of HISTORY by their offsets; None is a row that is no record."""
    found = [HISTORY[offset or 0] for offset in offsets]
    keys, values, times = (list(column) for column in zip(*found, strict=True))
    return rows_of({"offset": offsets, "timestamp": times, "key": keys, "value": values}, **more)


def given(batches: Iterator[Any]) -> dict[int, list[dict[str, Any]]]:
    """Return the rows that a task gives, by kind."""
    found: dict[int, list[dict[str, Any]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            found.setdefault(row["kind"], []).append(row)
    return found


def report(found: dict[int, list[dict[str, Any]]]) -> BackfilledTask:
    """Return the report, the last of what a task gives."""
    (row,) = found[REPORT]
    return msgspec.json.decode(row["value"], type=BackfilledTask)


def log_rows(offsets: range) -> list[LogRow]:
    """Return the same records as a log has them."""
    return [LogRow(offset, 0, HISTORY[offset][2], *HISTORY[offset][:2], None) for offset in offsets]


def test_rows_in_batches_are_the_task_over_its_log() -> None:
    """State, frames and letters are those of the records read from a log, wherever Spark cuts its batches."""
    batches = [archive([*range(7)]), archive([*range(7, 2_000)]), archive([*range(2_000, 2_500)])]
    found = given(run_stage(plan_of(SUMS, 0, from_rows=True), 1, 1, batches))
    expected = run_job(
        load_job(SUMS),
        lambda source: log_rows(range(2_500)) if source.partition == 1 else [],
        Settings(),
        checkpoint_id=1,
    )[0, 1]
    assert [(row["store"], row["key"], row["value"]) for row in found[STATE]] == expected.state
    assert [(row["key"], row["value"], row["timestamp"]) for row in found[OUTPUT]] == [
        (record.key, record.value, record.timestamp_ms) for record in expected.external
    ]
    assert (report(found).records, report(found).letters) == (2_500, len(expected.external))
    assert {row["partition"] for row in found[FRAME]} == {0, 1}


def test_the_state_of_a_dry_run_is_counted_and_goes_nowhere() -> None:
    """Else all of it would be written into the folder between stages, for no reader."""
    plan, batches = plan_of(SUMS, 0, from_rows=True), [archive([*range(500)])]
    found = [given(run_stage(plan._replace(counts_alone=alone), 1, 1, batches)) for alone in (False, True)]
    assert (len(found[0][STATE]), STATE in found[1]) == (report(found[1]).keys, False)


def test_a_row_of_an_offset_that_was_there_is_left_out() -> None:
    """An archive that was written at least once has repeats: each record counts once, and they are reported."""
    whole, twice = (
        given(run_stage(plan_of(SUMS, 0, from_rows=True)._replace(files=frozenset({"events"})), 0, 1, batches))
        for batches in ([archive([*range(1, 9)])], [archive([1, 1, 2, 3]), archive([3, 4, 5, 5, 6, 7, 8, 8])])
    )
    assert twice[STATE] == whole[STATE]
    assert ([taken.twice for taken in report(twice).taken], report(twice).records) == ([4], 8)


def test_a_row_that_is_no_record_becomes_a_letter() -> None:
    """A malformed row becomes a dead letter with its reason, if the task declares them; the other rows follow."""
    batch = archive([1, None, 2], refused=[None, "the line is not JSON", None])
    found = given(run_stage(plan_of(SUMS, 0, from_rows=True), 0, 1, [batch]))
    (letter,) = found[OUTPUT]
    assert b"the line is not JSON" in letter["headers"]
    assert (report(found).records, report(found).refused, report(found).letters) == (2, 1, 1)


def test_a_row_that_is_no_record_fails_a_task_that_says_so() -> None:
    """With "fail" it is an error that says where it is and why."""
    rows = rows_of({"timestamp": [None], "key": [b"a"], "value": [b"b"]}, refused=["the row has no timestamp"])
    with pytest.raises(TaskError, match=r"locations\[1\].*the row has no timestamp"):
        given(run_stage(plan_of("tests.support.recommendations", 0, from_rows=True), 1, 1, [rows]))


def test_pieces_of_files_and_frames_are_the_local_merge() -> None:
    """A stage of several channels, fed with sorted pieces as Spark hands them over, is the stage run in one process."""
    job = recommendations.job
    assert not has_one_channel(job, job.stages[1])
    places = [(b"user-%d" % (n % 5), b"place-%d" % (n % 3), 1_000 + 10 * n) for n in range(200)]
    weather = [(b"place-%d" % (n % 3), b'{"weather":"sunny","issued":%d}' % n, 1_005 + 40 * n) for n in range(50)]

    def history(source: TopicPartition) -> list[LogRow]:
        history = places if source.topic == "locations" else weather
        return [LogRow(offset, 0, time, key, value, None) for offset, (key, value, time) in enumerate(history)]

    expected = run_job(job, history, Settings(), checkpoint_id=1)
    frames: list[dict[str, Any]] = []
    for partition in range(2):
        rows = rows_of(
            {
                "timestamp": [time for *_, time in places],
                "key": [key for key, *_ in places],
                "value": [value for _, value, _ in places],
            }
        )
        frames += given(run_stage(plan_of("tests.support.recommendations", 0, from_rows=True), partition, 1, [rows]))[
            FRAME
        ]
    for partition in range(2):
        plan = plan_of("tests.support.recommendations", 1, from_rows=False)
        rows = rows_of(
            {
                "timestamp": [time for *_, time in weather],
                "key": [key for key, *_ in weather],
                "value": [value for _, value, _ in weather],
            }
        )
        pieces = [frame for frame in frames if frame["partition"] == partition]
        pieces += given(cut_pieces(plan, TopicPartition("forecasts", partition), partition, [rows]))[PIECE]
        pieces.sort(key=lambda row: (row["start"], row["channel"], row["first"]))
        found = given(run_stage(plan, partition, 1, [pa.RecordBatch.from_pylist(pieces)]))
        assert [(row["store"], row["key"], row["value"]) for row in found[STATE]] == expected[1, partition].state
        outputs = [(row["key"], row["value"]) for row in found.get(OUTPUT, [])]
        assert outputs == [(record.key, record.value) for record in expected[1, partition].external]


@pytest.mark.parametrize("files", [False, True])
def test_what_follows_the_files_in_the_log_is_read_once(files: bool, tmp_path: Path) -> None:
    """An input of several has a tail in the log: it comes after its files, or alone, and never twice."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.create_topic("forecasts", 2, plain=True)
    place = TopicPartition("forecasts", 0)
    texts = [b'{"weather":"sunny","issued":%d}' % number for number in range(20)]
    log.produce(0, 0, [ExternalRecord(place, b"place-%d" % n, text, n) for n, text in enumerate(texts)])
    log.poll()
    begin = 5 if files else 0
    plan = plan_of("tests.support.recommendations", 1, from_rows=False)._replace(
        where=LogSpec("embedded", "", str(tmp_path / "log.db")),
        tails={(producer_id(1, 0), place): LogTail(begin, 15)},
        files=frozenset({"forecasts"} if files else ()),
    )
    pieces: list[Any] = []
    if files:
        rows = rows_of(
            {"timestamp": [*range(5)], "key": [b"place-%d" % n for n in range(5)], "value": texts[:5]},
        )
        pieces = [pa.RecordBatch.from_pylist(given(cut_pieces(plan, place, 0, [rows]))[PIECE])]
    found = given(run_stage(plan, 0, 1, pieces))
    assert report(found).records == 15
    keys = [row["key"] for row in found[STATE] if row["value"] in texts]
    assert keys == sorted(b"place-%d" % number for number in range(15))
    log.close()
