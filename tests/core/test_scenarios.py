"""The stories of the core, told as text: docs for a reader, and a test."""

import re
from pathlib import Path
from typing import get_args

import pytest

from grete.core import actions as do
from grete.core import events as on
from tests.core.scenario_script import play
from tests.core.scenario_text import parse
from tests.verification.model.counterexamples import COUNTEREXAMPLES
from tests.verification.simulation.mutants import MUTANTS

FOLDER = Path(__file__).parent / "scenarios"
DOCS = Path(__file__).parents[2] / "docs"
# Events and actions that no story has, because they need more than one task or log: each has a test of its own.
ELSEWHERE: dict[type, str] = {
    do.DropSpilled: "aligned/test_early_bound.py",
    on.Messages: "aligned/test_quiet_markers.py",
    do.FindOutcome: "test_bulk_write.py",
    on.OutcomeFound: "test_bulk_write.py",
    do.FreezePart: "deterministic/test_write_ahead.py",
    do.ProcessIdle: "deterministic/test_logical_watermarks.py",
    on.InputIdle: "deterministic/test_logical_watermarks.py",
    on.Fired: "aligned/test_timers_left.py",
    on.CheckpointObserved: "test_idleness.py",
    on.InputGone: "deterministic/test_rare_paths.py",
    do.Announce: "deterministic/test_joint_progress.py",
    do.Produce: "deterministic/test_output_recovery.py",
    do.ReleaseToSinks: "deterministic/test_early_sinks.py",
}
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_scenario_goes_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    """The commands of a file give its lines. ``pytest --rewrite-scenarios`` writes them again: read the difference."""
    text, _ = play(path)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} goes otherwise: run pytest --rewrite-scenarios, read git diff"


def test_each_scenario_says_what_it_shows() -> None:
    """A file begins with its title and the rules or the section of the seed that it tells."""
    assert len(FILES) >= 45
    for path in FILES:
        title, source = parse(path.read_text())[0].head[:2]
        assert title.startswith("# "), path.name
        assert title.endswith("."), path.name
        assert source.startswith("# From: "), path.name


def test_the_stories_have_every_event_and_action() -> None:
    """A reader meets each class of events and actions in a story; those of ``ELSEWHERE`` have tests of their own."""
    met = set().union(*(play(path)[1] for path in FILES))
    assert {*get_args(on.Event), *get_args(do.Action)} - met == set(ELSEWHERE)
    unnamed = [
        f"{c.__name__}: {at}" for c, at in ELSEWHERE.items() if c.__name__ not in (FOLDER.parent / at).read_text()
    ]
    assert unnamed == []


def test_what_a_scenario_refers_to_is_there() -> None:
    """Each mutant, counterexample, decision and rule that a story names exists."""
    rules = set(re.findall(r"^\| ([A-Z]\d+[a-z]?) \|", (DOCS / "PROTOCOL.md").read_text(), re.MULTILINE))
    decisions = {path.name[:4] for path in (DOCS / "decisions").glob("0*.md")}
    missing = []
    for path in FILES:
        source = parse(path.read_text())[0].head[1]
        missing += [f"{path.name}: {name}" for name in re.findall(r"mutants? (\w+)", source) if name not in MUTANTS]
        named = re.findall(r"counterexample (\w+)", source)
        missing += [f"{path.name}: {name}" for name in named if name not in COUNTEREXAMPLES]
        missing += [f"{path.name}: {n}" for n in re.findall(r"decision (\d{4})", source) if n not in decisions]
        missing += [f"{path.name}: {rule}" for rule in re.findall(r"\b[A-Z]\d+[a-z]?\b", source) if rule not in rules]
    assert missing == []


@pytest.mark.parametrize("text", ["start b-0\n", "# only a comment\n"])
def test_a_file_without_lines_to_compare_is_refused(text: str) -> None:
    """Commands need ``----``, comments need commands: else nothing would be tested."""
    with pytest.raises(ValueError, match=r"no line ----|comments without"):
        parse(text)


def test_an_unknown_command_is_refused(tmp_path: Path) -> None:
    """A misspelt command must not pass as a comment."""
    path = tmp_path / "wrong.txt"
    path.write_text("# Title.\n# From: nowhere.\nb-0 raeds\n----\n")
    with pytest.raises(ValueError, match="unknown command 'b-0 raeds'"):
        play(path)
