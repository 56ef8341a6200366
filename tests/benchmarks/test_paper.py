"""The paper's experiment: each cell proves its guarantee, and the page shows what was measured."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.latency.cell import Result
from benchmarks.paper.__main__ import NAMES, beside, prepared
from benchmarks.paper.__main__ import results as page_of
from benchmarks.paper.plan import (
    CURVE,
    CURVE_MS,
    LOADS,
    PARTS,
    PEER_LOADS,
    REPEATED,
    Cell,
    Size,
    all_cells,
    beyond,
    curve,
)
from benchmarks.paper.recount import Recount, broken, recount
from benchmarks.paper.report import tables
from benchmarks.paper.rows import Kept, Row, row_of
from benchmarks.paper.techniques import PEER_MODES
from benchmarks.results import Run
from tasks.inverted_index import END, Count

TEXTS = ["one two one", "two"]
POSTINGS = [(f"one{END}0", [0, 2]), (f"two{END}0", [1]), (f"two{END}1", [0])]
FIGURE = re.compile(r"\d[\d,.]*\d|\d")
MEASURED = re.compile(r"(\d[\d,.]*\d|\d) (?:MiB|ms|s|times|documents a second)\b")
WORDS = [("one", Count(1, 2)), ("two", Count(2, 2))]


@pytest.mark.timeout(120)
def test_the_smallest_cell_runs_for_real_and_leaves_the_index_of_a_plain_recount() -> None:
    """One task a stage on the embedded log: 20 checkpoints, and every posting in the state once."""
    options = ["mode=exactly-once", "checkpoint_interval_ms=50", "partitions=1", "seconds=1.5", "rate=4"]
    command = [sys.executable, "-m", "benchmarks.paper.cell", "embedded", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    index = Recount(**found["index"])
    assert index.equal
    assert index.postings == found["records"] > 0
    assert found["checkpoints"] >= 20


@pytest.mark.parametrize(
    ("postings", "words", "expected", "refused"),
    [
        (POSTINGS, WORDS, Recount(3, 0, 0, 0, 0), ()),
        (POSTINGS[1:], [("one", Count()), WORDS[1]], Recount(3, 1, 0, 0, 1), ("once", "repeats")),
        (POSTINGS, [WORDS[0], ("two", Count(3, 3))], Recount(3, 0, 0, 1, 0), ("once", "losses")),
        ([*POSTINGS[:2], (f"two{END}1", [1])], WORDS, Recount(3, 0, 1, 0, 0), ("once", "repeats", "losses")),
        ([*POSTINGS, (f"six{END}0", [1])], WORDS, Recount(3, 0, 1, 0, 0), ("once", "repeats", "losses")),
    ],
)
def test_a_state_that_breaks_its_guarantee_is_refused(
    postings: list[tuple[str, list[int]]], words: list[tuple[str, Count]], expected: Recount, refused: tuple[str, ...]
) -> None:
    """A lost posting may be at most once, one counted again at least once, a wrong one nowhere."""
    found = recount(TEXTS, postings, words)
    assert found == expected
    assert found.equal == (not refused)
    assert tuple(each for each in ("once", "repeats", "losses") if broken(found, each)) == refused


RESULT: Result = {
    "latencies_ms": [10.0] * 40,
    "sent_s": [n / 2 for n in range(40)],
    "kills_s": [4.0],
    "first_output_s": [0.254],
    "documents": 60,
    "repeated": 7,
    "lost": 0,
    "cpu_s": 0.6,
    "checkpoints": 24,
    "load": 1.27,
    "index": Recount(900, 0, 0, 3, 0)._asdict(),
    **{f"p{q}": 10.04 for q in (50, 75, 95, 99)},
    "max": 10.0,
}
SIZE: Result = {"same_host_s": 0.51, "other_host_s": 1.52, "state_mib": 3.456, "load": 2.0, "rounds": 3}


def test_a_cell_is_kept_when_it_has_ended_and_not_run_again(tmp_path: Path) -> None:
    """A later run finds the cells that one run has kept, and only those; another directory is another commit's."""
    cells = all_cells()
    kept = Kept(tmp_path / "a", cells)
    kept.keep(cells[0], row_of(cells[0], RESULT))
    assert Kept(tmp_path / "a", cells).rows == {cells[0]: row_of(cells[0], RESULT)}
    assert Kept(tmp_path / "b", cells).rows == {}
    assert len({cell.name for cell in cells}) == len(cells)


def test_a_saturated_technique_gets_no_higher_load() -> None:
    """Documents that wait longer and longer: the curve ends there."""
    falling_behind = RESULT | {"latencies_ms": [10.0 * n * n for n in range(40)]}
    low, high, other = (
        Cell(mode, CURVE_MS, rate=rate)
        for mode, rate in ((CURVE[0], LOADS[0]), (CURVE[0], LOADS[1]), (CURVE[1], LOADS[1]))
    )
    found: dict[Cell | Size, Row] = {low: row_of(low, falling_behind)}
    assert found[low]["saturated"]
    assert not row_of(low, RESULT)["saturated"]
    assert [beyond(cell, found) for cell in (low, high, other)] == [False, True, False]
    assert high in set(curve())


def test_the_tables_have_a_place_for_every_cell() -> None:
    """All cells measured: no table has a dash but where a technique has no interval; a failed cell is said so."""
    rows = [row_of(cell, SIZE if isinstance(cell, Size) else RESULT) for cell in all_cells()]
    steady, overhead, repeats, widths, costs, machines, load, kills, recovery = tables(rows)
    for table in (steady, overhead):
        dashes = {str(row[0]): row.count(None) for row in table.rows if None in row}
        assert dashes == {"no guarantee": 2, "strong productions": 2}
    others = repeats, widths, costs, machines, load, kills, recovery
    assert all(None not in row for table in others for row in table.rows)
    assert machines.rows[0][-1] == "10.0 / 10.0 / 10.0 / 10.0 (24; 1.3); 10.0 ms of CPU"
    assert "10.0 / 10.0 / 10.0 / 10.0 (24; 1.3)" in widths.rows[0]
    assert recovery.rows[0] == ["10,000", 3.46, 0.51, 1.52, 3, 2.0]


def test_the_overhead_is_over_at_least_once_at_each_percentile_and_the_same_interval() -> None:
    """Another interval's figures are not taken; equal runs show the least and the most of each percentile."""
    base = RESULT | {"p50": 4.0, "p75": 5.0, "p95": 9.0, "p99": 16.0}
    over = RESULT | {"p50": 5.5, "p75": 5.0, "p95": 30.0, "p99": 15.0}
    rows = [row_of(Cell(mode, ms), over if ms == 500 else base) for ms in (500, 1_000) for mode in REPEATED]
    rows[0] = row_of(Cell(REPEATED[0], 500), base)
    rows += [row_of(Cell(REPEATED[0], 500, number=number), each) for number, each in ((1, base), (2, over))]
    steady, overhead, repeats = tables(rows)[:3]
    assert len(steady.rows) == 3  # the equal runs are not among them
    name, *cells = overhead.rows[0]
    assert name == "deterministic, transactional"
    assert cells == [None, "+1.5 / +0.0 / +21.0 / -1.0", "+0.0 / +0.0 / +0.0 / +0.0"]
    assert repeats.rows[0][:5] == ["at-least-once", 2, "4.0 to 5.5", "5.0 to 5.0", "9.0 to 30.0"]


def test_the_peers_stand_in_the_same_tables_and_are_measured_against_themselves() -> None:
    """Each guarantee of theirs by interval and by load; its overhead is over its own at-least-once."""
    slow = RESULT | {"p50": 270.0}
    cells = [cell for cell in all_cells(["Flink"]) if isinstance(cell, Cell) and not cell.kills]
    rows = [row_of(cell, _of_a_peer(slow if "exactly" in cell.mode else RESULT, cell)) for cell in cells]
    steady, overhead, *_, load = tables(rows)
    by = {str(row[0]): row for row in steady.rows}
    assert "Kafka Streams, exactly-once" not in by
    assert by["Flink, exactly-once"][1] == "exactly once"
    assert by["Flink, exactly-once"][3] == "270.0 / 10.0 / 10.0 / 10.0 (–; 1.3)"
    assert by["Flink, exactly-once"][-1] == "outputs equal"
    assert overhead.rows[-1] == ["Flink, exactly-once", *["+260.0 / +0.0 / +0.0 / +0.0"] * 3]
    assert "Flink, at-least-once" not in [row[0] for row in overhead.rows]
    assert [row[0] for row in load.rows][-2:] == ["Flink, at-least-once", "Flink, exactly-once"]
    assert len(load.rows[-1]) - 1 - load.rows[-1].count(None) == len(PEER_LOADS)


def _of_a_peer(result: Result, cell: Cell) -> Result:
    """Return the figures of a run: a peer has neither checkpoints nor state."""
    return result | {"checkpoints": None, "index": None} if cell.mode in PEER_MODES else result


def test_peers_that_take_no_part_are_refused() -> None:
    """The paper's experiment has the peers whose programs keep the whole index."""
    assert NAMES == ("Flink", "Kafka Streams")
    with pytest.raises(SystemExit, match="quixstreams takes no part; 1 for all, or: Flink, Kafka Streams"):
        prepared("quixstreams")


def test_no_two_parts_share_a_cell() -> None:
    """So a part that is measured alone leaves the tables of the others whole."""
    parts = [set(all_cells(NAMES, [part])) for part in PARTS]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(all_cells(NAMES))


def test_a_part_that_is_measured_alone_takes_the_place_of_its_tables() -> None:
    """The other tables stay with the run that measured them."""
    rows = [row_of(cell, SIZE if isinstance(cell, Size) else RESULT) for cell in all_cells()]
    whole = Run("whole", "a", "2026-11-24", "2 cores", {}, tables(rows))
    new = [row_of(cell, RESULT | {"p50": 77.0, "kills_s": [4.0, 12.0, 20.0]}) for cell in all_cells(parts=["kills"])]
    part = Run("part", "b", "2026-11-30", "2 cores", {}, tables(new))
    found = beside(results.Kept([whole], rows), results.Kept([part], new))
    assert [run.command for run in found.runs] == ["whole", "part"]
    assert [table.title[:20] for table in found.runs[1].tables] == ["Three workers killed"]
    assert len(found.runs[0].tables) == len(tables(rows)) - 1
    assert len(found.cells) == len(rows)
    shown = [table for run in found.runs for table in run.tables]
    assert sorted(shown, key=title_of) == sorted(tables(found.cells), key=title_of)


def title_of(table: results.Table) -> str:
    return table.title


def test_what_does_not_count_or_is_missing_is_said(tmp_path: Path) -> None:
    """A run that was refused, and one that was never made, are named on the page."""
    cells = all_cells()[:3]
    kept = Kept(tmp_path, cells)
    kept.keep(cells[0], row_of(cells[0], RESULT))
    kept.keep(cells[1], {"name": cells[1].name, "failed": "too few checkpoints"})
    notes = page_of(cells, kept, "kafka").runs[0].notes
    assert notes[1:] == [
        f"Does not count: {cells[1].name}: too few checkpoints.",
        f"Not measured: {cells[2].name}.",
    ]


def test_every_figure_of_the_page_comes_from_the_file() -> None:
    """The tables are those of the file's cells; the text names no measured figure that the tables lack."""
    kept = results.read("paper")
    shown_tables = [table for run in kept.runs for table in run.tables]
    assert sorted(shown_tables, key=title_of) == sorted(tables(kept.cells), key=title_of)
    runs: list[dict[str, Any]] = [cell for cell in kept.cells if "checkpoints" in cell]
    assert all(cell["checkpoints"] >= 20 for cell in runs if cell["mode"] not in ("no guarantee", *PEER_MODES))
    for cell in runs:
        if cell["index"] is None:  # a peer's: its outputs alone were compared
            assert cell["mode"] in PEER_MODES
            continue
        index = Recount(**cell["index"])
        allowed = {"at least once": "repeats", "at most once": "losses", "none": "once"}.get(cell["guarantee"], "once")
        assert broken(index, allowed if "kills_s" in cell else "once") is None
    page = (results.RESULTS / "paper.md").read_text("utf-8")
    text = (results.RESULTS / "paper-compared.md").read_text("utf-8").partition("<!-- results")[0]
    shown = set(FIGURE.findall(results.markdown(kept)))
    assert MEASURED.findall(text)
    assert [figure for figure in MEASURED.findall(text) if figure not in shown] == []
    assert all((results.ROOT / "docs" / name).exists() for name in re.findall(r"\(\.\./(images/[\w-]+\.svg)\)", page))
