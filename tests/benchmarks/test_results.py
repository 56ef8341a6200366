"""docs/results: every figure has its machine, commit and command, and the pages show just these."""

import re
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rich.table import Table as Printed

from benchmarks import results
from benchmarks.latency.__main__ import for_docs
from benchmarks.latency.cell import Result
from benchmarks.latency.report import as_cells, tables
from benchmarks.latency.results import Cell, Found
from benchmarks.results import Kept, Run, Table, filled, markdown, pages, read, with_row
from benchmarks.running import show, taken, where

FILES = sorted(path.stem for path in results.RESULTS.glob("*.json"))
PAGE_LINES_MAX = 100  # rows of tables apart
RUN = Run("make bench", "abc1234", "2026-11-22", "2 cores", {"Python": "3.11.7"}, [], ["Quiet."])


@pytest.mark.parametrize("name", FILES)
def test_every_run_says_where_it_was_taken(name: str) -> None:
    """Command, commit, date and machine, and at least one figure in each table."""
    for run in read(name).runs:
        assert re.search(r"make (bench|prove|repeat|ship|simulate|test)|python -m ", run.command)
        assert re.fullmatch(r"(after )?[0-9a-f]{7,}", run.commit)
        assert re.fullmatch(r"(by )?20\d\d-\d\d-\d\d", run.date)
        assert "core" in run.machine
        assert all(table.rows for table in run.tables)


def test_the_pages_show_the_files() -> None:
    """`python -m benchmarks.results` changes nothing: each table is that of its file, and each file has a page."""
    texts = {page: page.read_text("utf-8") for page in pages()}
    assert {page: filled(text) for page, text in texts.items()} == texts
    shown = [name for text in texts.values() for name in re.findall(r"<!-- results: ([\w-]+) -->", text)]
    assert sorted(shown) == FILES
    lines = {page.name: len(re.findall(r"^(?!\|)", text, re.MULTILINE)) for page, text in texts.items()}
    assert {name: count for name, count in lines.items() if count > PAGE_LINES_MAX} == {}


def test_a_table_shows_its_numbers() -> None:
    """Thousands are separated, what was not measured is a dash, columns of numbers are on the right."""
    text = markdown(
        Kept([msgspec.structs.replace(RUN, tables=[Table("Counting", ["", "n"], [["a", 1234.5], ["b", None]])])])
    )
    assert text.startswith("2026-11-22, commit abc1234, 2 cores, Python 3.11.7: `make bench`. Quiet.\n\n**Counting**")
    assert text.endswith("| --- | ---: |\n| a | 1,234.5 |\n| b | – |")


def test_a_row_that_does_not_fit_is_refused() -> None:
    """A table with a cell too few would be read wrongly."""
    with pytest.raises(ValueError, match=r"2 columns, and a row \['a'\]"):
        Table("Counting", ["", "n"], [["a"]])


def test_a_run_is_kept_and_its_page_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WRITE=1: the file has the run, the page its table, and the rest of the page stays."""
    page = tmp_path / "docs" / "PAGE.md"
    (tmp_path / "docs" / "results").mkdir(parents=True)
    page.write_text("before\n<!-- results: counting -->\nold\n<!-- end -->\nbehind\n")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "docs" / "results")
    kept = Kept([msgspec.structs.replace(RUN, tables=[Table("Counting", ["n"], [[7]])])])
    results.write("counting", kept)
    assert results.read("counting") == kept
    before, _, behind = page.read_text().partition(markdown(kept))
    assert (before, behind) == ("before\n<!-- results: counting -->\n", "\n<!-- end -->\nbehind\n")


RESULT: Result = {
    "documents": 100,
    "records": 900,
    "repeated": 0,
    "cpu_s": 1.0,
    "idle_percent": None,
    "p50": 12.34,
    "p75": 20.0,
    "p95": 30.0,
    "p99": 1234.5,
    "max": 2000.0,
    "first_output_s": [0.25],
    "series": [],
}


def test_a_latency_run_has_a_row_for_each_mode() -> None:
    """p50 and p99 by interval; the file has every quantile; kills are a table of their own."""
    intervals = [Cell("steady", "kafka", "deterministic", each, 2, 8.0) for each in (100, 1_000)]
    kills = Cell("kills", "kafka", "deterministic", 1_000, 2, 20.0)
    cells = as_cells([(cell, RESULT) for cell in (*intervals, kills)])
    assert (cells[0]["p75_ms"], cells[0]["cpu_ms_a_document"]) == (20.0, 10.0)
    steady, killed = tables(cells)
    assert steady.rows == [["deterministic", "12.3 / 1,234.5", "12.3 / 1,234.5", 10.0, None]]
    assert killed.rows == [["Kafka", "deterministic", "0.25", "12 / 1,234", 0]]


def test_a_latency_run_is_kept_with_its_commit() -> None:
    """The docs get the run's commit, command and peers; a run that was kept without them is refused."""
    run = taken("rocksdict")
    cells = [
        (Cell("steady", "kafka", mode, 1_000, 2, 8.0), RESULT) for mode in ("deterministic", "Flink, at-least-once")
    ]
    kept = for_docs(Found("here", cells, [], msgspec.to_builtins(run)))
    assert (kept.runs[0].commit, kept.runs[0].command) == (run.commit, run.command)
    assert [len(table.rows) for table in kept.runs[0].tables] == [2, 1]
    assert len(kept.cells) == 2
    assert f"commit {run.commit}" in where("rocksdict")
    with pytest.raises(SystemExit, match="measure again"):
        for_docs(Found("here", cells, []))


def test_a_table_on_the_terminal_is_the_one_in_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    """A printed table is kept, title and columns included."""
    printed = Printed("", "n", title="Counting")
    printed.add_row("a", "1,234")
    assert show(printed) == Table("Counting", ["", "n"], [["a", "1,234"]])
    assert "1,234" in capsys.readouterr().out


def test_the_costs_of_both_techniques_are_those_of_the_latency_run() -> None:
    """The table of the page on effectively once repeats figures: each is what docs/results/latency.json has."""
    page = (results.ROOT / "docs" / "explanation" / "effectively-once.md").read_text("utf-8")
    modes = ["at-least-once", "exactly-once", "deterministic", "deterministic, sequenced"]
    cells = [cell for cell in read("latency").cells if cell["log"] == "Kafka" and cell["mode"] in modes]
    found = {
        (cell["kind"], cell["tasks"], cell["mode"]): cell for cell in cells if cell["checkpoint_interval_ms"] == 1_000
    }
    for label, kind, tasks, shown in (
        ("CPU ms a document, 2 tasks a stage", "steady", 2, "{cpu_ms_a_document}"),
        ("CPU ms a document, 4 tasks a stage", "steady", 4, "{cpu_ms_a_document}"),
        ("latency p50 / p99, 2 tasks a stage", "steady", 2, "{p50_ms:,} / {p99_ms:,}"),
        ("latency p50 / p99, 4 tasks a stage", "steady", 4, "{p50_ms:,} / {p99_ms:,}"),
        ("first output after a kill, s", "kills", 2, "{first}"),
        ("p99 with three kills, ms", "kills", 2, "{p99_ms:,}"),
        ("records twice after three kills", "kills", 2, "{records_again:,}"),
    ):
        of = [found[kind, tasks, mode] for mode in modes]
        row = [shown.format(**each, first=", ".join(f"{s:.2f}" for s in each.get("first_output_s", []))) for each in of]
        assert f"| {label} | {' | '.join(row)} |" in page


def test_a_row_takes_the_place_of_its_own_and_stands_beside_others() -> None:
    """Of another seed, and of another table; those of the same table are in the newest run."""
    kept = Kept(
        [replace(RUN, tables=[Table(title, ["seed", "kills"], [[1, 5], [2, 6]])]) for title in ("aligned", "z")]
    )
    found = with_row(kept, replace(RUN, commit="def5678"), "aligned", ["seed", "kills"], [2, 7])
    assert [(run.commit, run.tables[0].title) for run in found.runs] == [("def5678", "aligned"), ("abc1234", "z")]
    assert [run.tables[0].rows for run in found.runs] == [[[1, 5], [2, 7]], [[1, 5], [2, 6]]]
