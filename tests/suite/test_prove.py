"""`make prove` gives each part its share, goes on where it was ended, and says how what it found is repeated."""

import importlib.util
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from benchmarks import results
from benchmarks.results import Kept
from tests.suite import prove
from tests.suite.prove import Covered, State, main, next_of, path_of, run, state_of, turn
from tests.suite.turns import PARTS, Part
from tests.verification.simulation.__main__ import app
from tests.verification.simulation.batch import known_kills

CLEAN = Part("clean", 1, "things", 5, lambda first: [sys.executable, "-c", f"print({first})"])
FINDS = Part(
    "finds", 2, "things", 1, lambda first: [sys.executable, "-c", f"print('seed', {first}); raise SystemExit(3)"]
)
LACKS = Part("lacks", 1, "things", 1, lambda _: [], lambda: "no broker")
PARTS_HERE = (CLEAN, FINDS, LACKS)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prove, "FOLDER", tmp_path)


def test_the_part_that_is_behind_is_next() -> None:
    """Seconds by share; those that have none yet come first, in order."""
    state = State(0, {"clean": Covered(), "finds": Covered()})
    assert next_of([CLEAN, FINDS], state) is CLEAN
    state.parts["clean"].seconds, state.parts["finds"].seconds = 10.0, 19.0
    assert next_of([CLEAN, FINDS], state) is FINDS
    state.parts["finds"].seconds = 21.0
    assert next_of([CLEAN, FINDS], state) is CLEAN


def test_what_was_covered_is_kept(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn begins where the last ended; a find has its command and what it printed; the end is exit code 1."""
    state = State(100, {"clean": Covered(), "finds": Covered()})
    for part in (CLEAN, CLEAN, FINDS):
        turn(part, state, "abc1234", 60)
    assert (state.parts["clean"].turns, state.parts["finds"].turns, state_of("abc1234")) == (2, 1, state)
    assert state.parts["clean"].found == []
    assert state.parts["finds"].found == ["python -c 'print('\"'\"'seed'\"'\"', 100); raise SystemExit(3)'"]
    printed = capsys.readouterr().out
    assert "python -c 'print(105)'" in printed
    assert "  seed 100" in printed

    written: dict[str, Kept] = {}
    monkeypatch.setattr(prove, "taken", lambda: results.Run("", "abc1234", "2026-11-28", "2 cores", {}, []))
    monkeypatch.setattr(results, "write", written.__setitem__)
    monkeypatch.setenv("WRITE", "1")
    assert main(["--hours", "0"], PARTS_HERE) == 1
    assert state.parts["finds"].found[0] in capsys.readouterr().out
    (table,) = written["prove"].runs[0].tables
    assert [[row[0], row[1], row[2], row[5]] for row in table.rows] == [
        ["clean", 10, "things", 0],
        ["finds", 1, "things", 1],
        ["lacks", 0, "not tried here: no broker", 0],
    ]


def test_the_end_of_the_time_cuts_a_turn(tmp_path: Path) -> None:
    """It ends with what it started, and finds nothing; the next turn is another one."""
    waits = Part("waits", 1, "things", 1, lambda _: ["/bin/sh", "-c", "sleep 600 & wait"])
    state = State(7, {"waits": Covered()})
    turn(waits, state, "abc1234", 0)
    kept = msgspec.json.decode(path_of("abc1234").read_bytes(), type=State).parts["waits"]
    assert (kept.turns, kept.cut, kept.found) == (0, 1, [])
    assert run(["/bin/sh", "-c", "exit 4"], tmp_path / "log", 60) == 4


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_part_names_what_there_is(part: Part) -> None:
    """A module of this repository or pytest, whatever the number; two turns that are apart are not the same."""
    for number in (0, 1 << 40):
        assert part.turn(number)[:2] == [sys.executable, "-m"]
        assert importlib.util.find_spec(part.turn(number)[2]) is not None
    assert part.turn(0) != part.turn(part.size) or part.counts == "runs"


def test_a_mutant_is_hunted_from_a_seed_on() -> None:
    """As a turn asks for it: it dies, and the command says on which seed."""
    name, seed = next(iter(known_kills().items()))
    done = CliRunner().invoke(app, ["--hunt", name, "--seed", str(seed), "--processes", "1"])
    assert done.output.startswith(f"{name}: died on ")
    assert f"seed {seed}, after 1 seeds" in done.output
    assert done.exit_code == 0
