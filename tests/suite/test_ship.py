"""`make ship` says of each line that it passed, failed or was not tried, and never one for the other."""

import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from grete.spark import RELEASES
from tests.suite import ship
from tests.suite.ship import (
    LINES,
    PYSPARKS,
    PYTHONS,
    ROOT,
    Line,
    Told,
    answer,
    environment,
    find_python,
    judged,
    main,
    typed,
)
from tests.support.typed_job import MISTAKES, WRONG

FOUND = '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]}, {"name": "b", "vulns": []}]}'
NOT_KNOWN = '{"dependencies": [{"name": "a", "skip_reason": "Dependency not found"}, {"name": "b", "vulns": []}]}'


@pytest.mark.parametrize(
    ("report", "said", "told"),
    [
        ('{"dependencies": [{"name": "b", "vulns": []}]}', "", Told("passed", "1 packages, no known vulnerability")),
        (FOUND, "", Told("failed", "a: CVE-1")),
        (NOT_KNOWN, "", Told("not tried", "1 of 2 packages were not looked up: Dependency not found")),
        ('{"dependencies": []}', "", Told("not tried", "0 of 0 packages were not looked up: it looked nothing up")),
        ("", "Traceback:\nno network\n", Told("not tried", "no network")),
    ],
)
def test_an_audit_that_looked_nothing_up_has_not_passed(report: str, said: str, told: Told) -> None:
    """An index without a package is exit code 0 of pip-audit, and one that cannot be reached is 1, as a find is."""
    assert judged(report, said, 0.0) == told


def finding(line: int, name: str = "wrong.py") -> dict[str, object]:
    """Return a finding as pyright prints it, on a line from 0 on."""
    return {"file": f"/p/{name}", "severity": "error", "message": "no\nmore", "range": {"start": {"line": line}}}


def test_a_type_checker_has_to_find_each_mistake_and_nothing_else() -> None:
    """A report that was not printed, as where pyright cannot be fetched, is no pass."""

    def told(*findings: dict[str, object]) -> Told:
        return typed(msgspec.json.encode({"generalDiagnostics": findings}).decode(), "", 0.0)

    lines = [line.strip() for line in WRONG.splitlines()]
    found = [finding(lines.index(each)) for each in MISTAKES]
    assert told(*found, *found).outcome == "passed"
    assert told(*found[1:]) == Told("failed", f"not found: {MISTAKES[0]}")
    assert told(*found, finding(0)) == Told("failed", "wrong.py, line 1: no")
    assert told(*found, finding(4, "my_words.py")) == Told("failed", "my_words.py, line 5: no")
    assert typed("", "no network\n", 0.0) == Told("not tried", "no network")


def test_what_has_passed_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only at this commit. What failed, or could not be tried, is tried again; a failure is exit code 1."""
    monkeypatch.setattr(ship, "FOLDER", tmp_path)
    done: list[str] = []

    def line(name: str, told: Told) -> Line:
        def attempt(log: Path) -> Told:
            done.append(log.name)
            return told

        return Line(name, "so", attempt)

    lines = [line("good", Told("passed")), line("bad one", Told("failed", "why")), line("no", Told("not tried"))]
    assert main(["--only", "no"], lines) == 0
    assert [main([], lines), main([], lines)] == [1, 1]
    assert done == ["no.log", "good.log", "bad-one.log", "no.log", "bad-one.log", "no.log"]
    assert "not yet at this commit" in capsys.readouterr().out


def test_a_command_has_its_log_and_none_of_our_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make ship WRITE=1` asks for its own table, not for those of the commands that it runs."""
    monkeypatch.setattr(ship, "ROOT", tmp_path)
    monkeypatch.setenv("WRITE", "1")
    monkeypatch.setenv("MAKEFLAGS", " -- WRITE=1")
    assert not {"WRITE", "MAKEFLAGS"} & environment().keys()
    told = ship.call([sys.executable, "-c", "print('said'); raise SystemExit(3)"], tmp_path / "it.log")
    assert msgspec.structs.replace(told, seconds=0.0) == Told("failed", "exit code 3: it.log")
    assert (tmp_path / "it.log").read_text() == "said\n"
    assert ship.call([sys.executable, "-c", ""], tmp_path / "it.log").outcome == "passed"


def test_programs_are_asked() -> None:
    """A Python of a version that does not exist is none; a program that is not there is not an error."""
    assert find_python("3.99") is None
    assert answer("grete-has-no-such-program")[0] is False
    assert answer(sys.executable, "-c", "print('a'); print('b')") == (True, "b")
    assert {f"Python {each}" for each in PYTHONS} <= {line.name for line in LINES}


def test_each_release_of_pyspark_that_the_extra_allows_has_tests() -> None:
    """One is pinned for all tests, and each other one has its line."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (asked,) = (each for each in map(Requirement, extras["spark"]) if each.name == "pyspark")
    tried = sorted({*PYSPARKS, version("pyspark").rpartition(".")[0]})
    first, last = (".".join(map(str, release)) for release in RELEASES)
    assert (tried[0], tried[-1]) == (first, last)
    assert [asked.specifier.contains(each) for each in ("4.1.9", *(f"{each}.0" for each in tried), "4.4.0")] == [
        False,
        *[True] * len(tried),
        False,
    ]
