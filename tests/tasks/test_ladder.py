"""tasks/README.md: the ladder is complete, its files are short, and its commands print what it says."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.console import LIMIT_S, walk

TASKS = Path(__file__).parents[2] / "tasks"
PAGE = (TASKS / "README.md").read_text("utf-8")
STEPS, WANTED = (re.findall(r"^\| \[(\w+\.py)\]", table, re.MULTILINE) for table in PAGE.split("| file |")[1:])
EXAMPLES = [*STEPS, *WANTED]
LINES_MAX = 60


def test_each_rung_is_short_and_has_a_test_of_its_own() -> None:
    """Six steps, then jobs as they are wanted, of at most 60 lines; the folder has no other but the larger one."""
    assert (len(STEPS), len(EXAMPLES)) == (6, len(set(EXAMPLES)))
    assert {path.name for path in TASKS.glob("*.py")} == {*EXAMPLES, "inverted_index.py", "__init__.py"}
    lengths = {name: len((TASKS / name).read_text("utf-8").splitlines()) for name in EXAMPLES}
    assert {name: n for name, n in lengths.items() if n > LINES_MAX} == {}
    assert [name for name in EXAMPLES if not (Path(__file__).parent / f"test_{name}").is_file()] == []


@pytest.mark.timeout(LIMIT_S + 60)  # what was typed is told first
def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    """From the root of a repository: every one runs with a file of a few lines."""
    shutil.copytree(TASKS, tmp_path / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    assert walk(PAGE, tmp_path) == []
