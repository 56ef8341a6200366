"""`make times` adds up what was measured, and `make test` does not become longer than it was."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import results
from benchmarks.results import Kept, Run
from tests.suite import times
from tests.suite.bounds import BOUNDS_S, Command, Taken, Took, counted, expected_s, functions_in
from tests.suite.measured import FAILED, FOLDER, Row, Session

ROOT = Path(__file__).parents[2]
ROWS = [
    Row("tests/logs/test_a.py::test_x[1]", "test", ["kafka"], setup_s=3.0, call_s=1.0, own_s=0.5, others_s=2.0),
    Row("tests/test_b.py::test_y", "check", [], call_s=0.5, own_s=0.25, slept_s=0.1, stores=2, stores_s=0.05),
]


def test_no_command_becomes_longer() -> None:
    """The last run that was kept, with what came since. If so: `make prove` has room."""
    modules = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in ROOT.glob("tests/**/test_*.py")}
    now = {name: functions_in(text) for name, text in modules.items()}
    kept = msgspec.convert(results.read(times.NAME).cells, list[Taken])
    assert "test" in {taken.command for taken in kept}
    for taken in kept:
        expected = expected_s(taken, counted(), now)
        told = f"make {taken.command} took {taken.seconds:.0f} s at {taken.commit}, {expected:.0f} s with the new tests"
        assert expected <= taken.held_s, f"{told}: more than {taken.held_s:.0f} s; see `make times`"


def test_new_functions_count_as_those_beside_them_do() -> None:
    """In the module, else in its folder, else in all; what went is not taken off before it is measured."""
    taken = Taken("check", 100.0, 150.0, 2, "abc1234")
    then = {"t/a.py": Took(2, 10.0), "t/b/c.py": Took(1, 30.0)}
    same = {"t/a.py": 2, "t/b/c.py": 1}
    assert expected_s(taken, then, same) == expected_s(taken, then, {"t/a.py": 0}) == 100.0
    assert expected_s(taken, then, same | {"t/a.py": 4}) == pytest.approx(125.0)
    assert expected_s(taken, then, same | {"t/b/d.py": 2}) == pytest.approx(250.0)
    assert expected_s(taken, then, same | {"u/d.py": 3}) == pytest.approx(200.0)
    others = "import pytest\n@pytest.mark.prove\ndef test_a(): pass\ndef test_b(): pass\n"
    assert (functions_in(others), functions_in(f"{others}pytestmark = [pytest.mark.ship]\n")) == (1, 0)
    assert functions_in("def test_a(): pass\nclass T:\n    def test_b(self): pass\ndef other(): 'def test_c'\n") == 2


def test_the_bound_is_the_floor_where_that_is_higher() -> None:
    """No command is asked to take less than its computing on all cores, and some more."""
    low = BOUNDS_S["test"]
    assert Taken("test", 1.0, low, 2, "").bound_s == low
    assert Taken("test", 1.0, 4 * low, 2, "").bound_s == pytest.approx(1.15 * 2 * low)


def test_the_newest_row_of_each_test_counts(tmp_path: Path) -> None:
    """A narrow run after a whole one tells of its own tests only; what the commands took is beside it."""
    for began, row in enumerate([*ROWS, msgspec.structs.replace(ROWS[0], call_s=9.0)]):
        session = Session(began, 1.0, 1.0, 0.0, 2, [row])
        (tmp_path / f"{began}.json").write_bytes(msgspec.json.encode(session))
    taken = Taken("test", 700.0, 1100.0, 2, "abc1234")
    (tmp_path / "test.taken").write_bytes(msgspec.json.encode(taken))
    rows, commands = times.read(tmp_path)
    assert {row.test: row.call_s for row in rows} == {ROWS[0].test: 9.0, ROWS[1].test: 0.5}
    assert commands == [taken]


def test_the_tables_add_up() -> None:
    """By folder, tier and wait: each has all tests; the longest one is first."""
    run = Run("", "", "", "", {}, [])
    times.kept(ROWS, [Taken("test", 700.0, 1100.0, 2, "abc1234")], run)
    commands, tier, wait, folder, longest = run.tables
    assert commands.rows == [["make test", "abc1234", 700, 1100, 550, 840]]
    for table in (tier, wait, folder):
        assert table.rows[-1] == ["all", 2, 4, 3, 2, 0, 0, 2, 0]
    assert [row[0] for row in folder.rows] == ["tests/logs", "tests/*.py", "all"]
    assert [row[0] for row in wait.rows] == ["a broker", "RocksDB", "all"]
    assert next(row[:4] for row in longest.rows) == ["logs/test_a.py::test_x[1]", "test", "a broker", 4.0]


def test_each_command_keeps_its_row() -> None:
    """A `make check` behind a `make test` changes its own row alone; a `make test` changes all else."""

    def of(command: Command, commit: str, rows: list[Row]) -> Kept:
        return times.kept(rows, [Taken(command, 700.0, 1100.0, 2, commit)], Run("", commit, "", "", {}, []))

    whole, check = of("test", "abc1234", ROWS), of("check", "def5678", ROWS[1:])
    both = times.merged(whole, check)
    assert [row[:2] for row in both.runs[0].tables[0].rows] == [["make check", "def5678"], ["make test", "abc1234"]]
    assert (both.runs[0].commit, both.runs[0].tables[1:]) == ("abc1234", whole.runs[0].tables[1:])
    later = times.merged(both, of("test", "fedcba9", ROWS[:1]))
    assert [cell["commit"] for cell in later.cells] == ["def5678", "fedcba9"]
    assert (later.runs[0].commit, later.runs[0].tables[1].rows[-1][1]) == ("fedcba9", 1)
    assert times.merged(Kept([]), check).cells == check.cells


def test_functions_that_took_too_much_are_kept() -> None:
    """Beside those that this run did not have. What is light by now goes, and so does what a marker keeps away."""
    heavy = [Row("tests/test_b.py::test_z", "check", [], own_s=1.5), Row("t.py::x[1]", "check", [], started=3)]
    before = {"tests/test_b.py::test_y": (4.0, 9.0), "t.py::before": (2.0, 0.1)}
    expected = {"t.py::before": (2.0, 0.1), "t.py::x": (3.0, 0.0), "tests/test_b.py::test_z": (0.0, 1.5)}
    assert times.heavy([*ROWS, *heavy], before) == expected


MEASURED = """
import os, subprocess, sys, time

def test_sleeps_and_starts():
    time.sleep(0.05)
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)

def test_fails():
    assert os.getpid() < 0
"""


def test_a_run_is_measured(pytester: pytest.Pytester) -> None:
    """A run of two processes writes what each test slept, started and computed, and how it ended."""
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    pytester.makepyfile(MEASURED)
    ran = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider", "--disable-warnings")
    ran.assert_outcomes(passed=1, failed=1)
    (file,) = (pytester.path / FOLDER).glob("*.json")
    session = msgspec.json.decode(file.read_bytes(), type=Session)
    rows = {row.test.partition("::")[2]: row for row in session.rows}
    assert rows["test_fails"].outcome == "failed"
    sleeps = rows["test_sleeps_and_starts"]
    assert (sleeps.outcome, sleeps.tier, sleeps.slept_s, sleeps.started) == ("passed", "check", 0.05, 1)
    assert 0 < sleeps.others_s <= session.cpu_s
    assert session.workers == 2
    (listed,) = (pytester.path / FOLDER).glob(f"*-{FAILED}")
    failed = listed.read_text("utf-8")
    assert "::test_fails: call" in failed
    assert "assert os.getpid() < 0" in failed


def test_what_a_command_took_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Makefile tells when it began and which process has waited for all."""
    monkeypatch.setattr(times, "ROOT", tmp_path)
    monkeypatch.setattr(times, "_commit", lambda: "abc1234")
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    assert times.main(["--ended", "check", "--began", "0", "--make", "1"]) == 0
    kept = json.loads((tmp_path / FOLDER / "check.taken").read_bytes())
    assert kept["command"] == "check"
    assert kept["seconds"] > 0
