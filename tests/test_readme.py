"""The README does what it says: its code runs as printed, its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
JOB, KIT = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
FIRST_COMMANDS = re.findall(r"^    ((?:printf|grete) .*)$", README.partition("\n## ")[0], re.MULTILINE)
LINES_MAX = 120  # two screens: a sentence, an install, two programs, a table, links


def run(directory: Path, *arguments: str) -> str:
    """Run Python in a directory that holds the README's job; return what it printed."""
    (directory / "word_count.py").write_text(JOB)
    done = subprocess.run([sys.executable, *arguments], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_kits_example_passes(tmp_path: Path) -> None:
    """The test of the README's job passes as printed, with its crashes."""
    (tmp_path / "example.py").write_text(KIT)
    run(tmp_path, "example.py")


def test_the_job_runs_as_printed(tmp_path: Path) -> None:
    """Five minutes in: the one-file job counts the lines of a file, in a worker process, and its state can be read."""
    make_lines, *commands = FIRST_COMMANDS
    subprocess.run(make_lines, shell=True, cwd=tmp_path, check=True)  # a pipe of the README's own
    assert [command.split()[1] for command in commands] == ["run", "state", "topic"]
    _, state, totals = (run(tmp_path, "-m", "grete.cli", *command.split()[1:]) for command in commands)
    assert dict(line.split("\t") for line in state.splitlines())["to"] == "2"
    assert len(totals.splitlines()) == 10


def test_its_commands_exist() -> None:
    """Every `grete COMMAND` that the README names is a command."""
    named = set(re.findall(r"(?:`|^    )grete ([a-z-]+)", README, re.MULTILINE))
    done = subprocess.run([sys.executable, "-m", "grete.cli", "--help"], capture_output=True, text=True, check=True)
    assert {"run", "up", "state"} <= named <= set(re.findall(r"^\W*([a-z-]+) ", done.stdout, re.MULTILINE))


def test_its_links_lead_somewhere() -> None:
    """Every link into the repository names a file or folder that is there; every link into the page, a heading."""
    root = Path(__file__).parent.parent
    targets = re.findall(r"\]\(([^)]+)\)", README)
    headings = {"#" + title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", README, re.MULTILINE)}
    assert targets
    assert [
        target for target in targets if target not in headings and not (root / target.partition("#")[0]).exists()
    ] == []


def test_it_is_read_in_two_screens() -> None:
    """The README has at most LINES_MAX lines; what needs more room has a page in docs/."""
    assert len(README.splitlines()) <= LINES_MAX
