"""The backlog beside Spark: a row that one side lacks is a difference, and each log has its own run."""

from pathlib import Path

import pytest

from benchmarks import backlog, results
from benchmarks.results import Run, Table, write
from tests.spark.backlog.in_batch import rows_of


def run_of(title: str, differences: int) -> Run:
    """Return a run with one table."""
    table = Table(title, backlog.COLUMNS, [["visits", "aligned", 21, 3, 1.5, 7, differences]])
    return Run("python -m benchmarks.backlog", "abc1234", "2026-11-23", "2 cores", {"Python": "3.11"}, tables=[table])


def test_a_row_too_many_and_a_row_too_few_are_two_differences() -> None:
    """A row that is there twice differs from one that is there once."""
    expected = {"visits": rows_of([["ann", 1], ["bob", 2]]), "state": rows_of([])}
    assert backlog.differing(expected, expected) == 0
    assert backlog.differing(expected, {"visits": rows_of([["ann", 1], ["ann", 1]]), "state": rows_of([])}) == 2


def test_a_run_takes_the_place_of_the_one_on_the_same_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run finds no file."""
    for module in (results, backlog):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "ROOT", tmp_path)
    for title, differences in (("On Kafka", 1), ("On the embedded log", 0), ("On Kafka", 0)):
        write("backlog", backlog.with_run(run_of(title, differences)))
    tables = [each.tables[0] for each in results.read("backlog").runs]
    assert [(table.title, table.rows[0][-1]) for table in tables] == [("On the embedded log", 0), ("On Kafka", 0)]
