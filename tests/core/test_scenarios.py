"""The stories of the core, told as text: docs for a reader, and a test of every event and action in them."""

from pathlib import Path

import pytest

from tests.core.scenario_script import parse, rewrite

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_scenario_goes_as_it_is_written(path: Path, request: pytest.FixtureRequest) -> None:
    """The commands of a file give its lines. ``pytest --rewrite-scenarios`` writes them again: read the difference."""
    text = rewrite(path)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} goes otherwise: run pytest --rewrite-scenarios, read git diff"


def test_each_scenario_says_what_it_shows() -> None:
    """A file begins with its title and the rules or the section of the seed that it tells."""
    assert len(FILES) >= 25
    for path in FILES:
        title, source = parse(path.read_text())[0].head[:2]
        assert title.startswith("# "), path.name
        assert title.endswith("."), path.name
        assert source.startswith("# From: "), path.name


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
        rewrite(path)
