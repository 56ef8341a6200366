"""`make repeat` counts runs as they were, in the surroundings that it says, and its busy loops end."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import results
from benchmarks.results import Run
from tests.suite.measured import FOLDER, Row, Session
from tests.suite.repeat import ASKED, NAME, ROOT, Kind, Ran, complaints, kept, ran, waiting_modules

CLEAN = Ran("quiet", "abc1234", "2026-11-28", 10, 0, 0, 60, 0.1, {})


def changed(**fields: object) -> Ran:
    """Return the run with other fields."""
    return msgspec.structs.replace(CLEAN, **fields)


def test_runs_that_are_alike_are_believed() -> None:
    """Another kind has the same count; another commit, and the modules that wait, have their own."""
    runs = [CLEAN, changed(kind="nohup"), changed(commit="def5678", passed=11), changed(kind="waits", passed=4)]
    assert complaints(runs) == []


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (
            changed(kind="loaded", passed=9),
            "2026-11-28, loaded, commit abc1234: 9 tests, and 10 in the run of kind quiet",
        ),
        (changed(passed=9, skipped=1), "2026-11-28, quiet, commit abc1234: 1 tests were skipped"),
        (
            changed(passed=9, failed=1, failures={"a.py::test_x": ""}),
            "2026-11-28, quiet, commit abc1234: a.py::test_x failed, and its cause is not written",
        ),
    ],
)
def test_what_speaks_against_runs_is_told(run: Ran, says: str) -> None:
    """A count that differs, a skip, and a failure; the last is answered by its cause."""
    assert complaints([CLEAN, run]) == [says]
    explained = msgspec.structs.replace(run, failures=dict.fromkeys(run.failures, "the disk was full"))
    assert bool(complaints([CLEAN, explained])) != bool(run.failures)


AROUND = """
import os, signal
import pytest

def test_environment(): assert ("HOME" in os.environ) == {home}
def test_signal(): assert (signal.getsignal(signal.SIGHUP) == signal.SIG_IGN) == {nohup}
def test_cores(): assert (len(os.sched_getaffinity(0)) == 1) == {one}
def test_fails(): assert False
@pytest.mark.xfail
def test_expected(): assert False
def test_skips(): pytest.skip("no reason")
@pytest.fixture
def broken():
    yield
    raise OSError
def test_ends_badly(broken): pass
"""
RUNS = "import sys; sys.path.insert(0, {root!r}); import pytest; sys.exit(pytest.main({options}))"


def runs(folder: Path, *options: str) -> list[str]:
    """Return the command that runs pytest there, measured; it needs nothing of the environment."""
    (folder / "pytest.ini").touch()
    own = ["-q", "-n", "1", "-p", "tests.suite.measured", "-p", "no:cacheprovider", "-c", str(folder / "pytest.ini")]
    return [sys.executable, "-c", RUNS.format(root=str(ROOT), options=[*own, *options])]


@pytest.mark.parametrize("kind", ["nohup", "one-core"])
def test_a_run_is_counted_in_its_surroundings(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test counts once; one whose fixture fails behind it has failed. A run of before is not counted."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("tests.suite.repeat.ROOT", tmp_path)
    before = Session(0.0, 1.0, 1.0, 0.0, 1, [Row("tests/test_before.py::test_x", "check", [])])
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "0.json").write_bytes(msgspec.json.encode(before))
    module = tmp_path / "test_around.py"
    nohup = kind == "nohup" or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # this run may be under it, too
    module.write_text(AROUND.format(home=kind != "nohup", nohup=nohup, one=kind == "one-core"))
    run = ran(kind, runs(tmp_path, str(module)))
    assert run.failures == dict.fromkeys(["test_around.py::test_ends_badly", "test_around.py::test_fails"], "")
    assert (run.kind, run.passed, run.failed, run.skipped, run.count) == (kind, 4, 2, 1, 7)


def test_a_run_without_tests_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no run of 0 tests. One whose tests passed, and that fails behind them, has failed."""
    monkeypatch.setattr("tests.suite.repeat.ROOT", tmp_path)
    with pytest.raises(SystemExit, match="ended with 3 and ran no test: the run is not counted"):
        ran("quiet", [sys.executable, "-c", "raise SystemExit(3)"])
    (tmp_path / "test_passes.py").write_text("def test_x(): pass\n")
    command = runs(tmp_path, str(tmp_path / "test_passes.py"))
    run = ran("quiet", [*command[:2], command[2].replace("sys.exit(", "sys.exit(3 + ")])
    assert (run.passed, run.failed, run.failures) == (1, 1, {f"{sys.executable} itself, exit code 3": ""})


LOOPS = """
import os, signal
from tests.suite.repeat import busy_loops
with busy_loops(2):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_busy_loops_end_with_whom_they_are_for() -> None:
    """Killed, it cannot end them. They hold its output, which ends when they have."""
    done = subprocess.run([sys.executable, "-c", LOOPS], capture_output=True, check=False, timeout=60)
    assert done.returncode == -9


def test_modules_that_wait_are_those_of_the_last_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process, a server or a sleep; a module that was not measured is no guess."""
    monkeypatch.setattr("tests.suite.repeat.ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    for name in "abc":
        (tmp_path / "tests" / f"test_{name}.py").touch()
    rows = [
        Row("tests/test_a.py::test_x", "check", [], started=1),
        Row("tests/test_b.py::test_x", "check", [], own_s=1.0),
    ]
    with pytest.raises(SystemExit, match=r"tests/test_c\.py: run `make test` here once"):
        waiting_modules(rows)
    assert waiting_modules([*rows, Row("tests/test_c.py::test_x", "test", ["kafka"])]) == [
        "tests/test_a.py",
        "tests/test_c.py",
    ]


def test_the_tables_are_those_of_the_runs() -> None:
    """The file in docs/results: a cause that a person wrote into it is in the table, too."""
    found = results.read(NAME)
    runs = msgspec.convert(found.cells, list[Ran])
    assert kept(runs, msgspec.structs.replace(found.runs[0])) == found
    shown = kept([CLEAN, changed(failures={"a.py::test_x": ""})], Run("", "abc1234", "", "", {}, [])).runs[0]
    assert shown.tables[0].rows[0][1:] == [ASKED["quiet"], 1, 2]
    assert shown.tables[2].rows == [["`a.py::test_x`", "2026-11-28, quiet", "not known yet"]]
