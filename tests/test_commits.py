"""Each commit since this test was added says in its message what is true now, and why."""

import subprocess
from pathlib import Path

import pytest

from tests.commit_messages import faults

pytestmark = pytest.mark.check  # asks git for each commit: a message is looked at before it is sent

ROOT = Path(__file__).parents[1]


def git(*arguments: str) -> str:
    """Return the output of git."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_each_commit_names_one_area_and_says_why() -> None:
    """Those before the test are as they are. Of a clone without its history the newest commit is checked."""
    added = git("log", "--diff-filter=A", "--format=%H", "--", "tests/test_commits.py").split()
    since = git("log", "--no-merges", "--format=%H", f"{added[-1]}..HEAD" if added else "-1").split()
    wrong = {each[:8]: found for each in since if (found := faults(git("log", "-1", "--format=%B", each)))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("logs: a late read is waited for\n\nA leader that was new said …", ""),
        ("logs: a late read\nA leader", "the reason are missing"),
        ("logs: a late read", "the reason are missing"),
        ("logs: a late read\n\n# comments of git\n", "the reason are missing"),
        ("A late read\n\nA leader", "begins with no area"),
        ("logs: a late read; cli: a line\n\nA leader", "two things"),
        ("logs: a late read, cli: a line\n\nA leader", "two things"),
        (f"logs: {'a' * 70}\n\nA leader", "76 characters, at most 72"),
        ("", "begins with no area"),
    ],
)
def test_a_fault_is_told(message: str, says: str) -> None:
    """Each part of the form alone."""
    found = faults(message)
    assert says in " ".join(found)
    assert bool(says) == bool(found)
