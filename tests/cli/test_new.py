"""`grete new`: the project works as it was written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from framework.cli.commands.new import new
from tests.cli.test_run import ROOT, grete


def test_a_new_project_passes_its_test_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its test passes, crashes included; its job counts."""
    monkeypatch.chdir(tmp_path)
    new("my-words")
    project = tmp_path / "my-words"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    grete("run", "my_words.py", "--input", "sentences=-", cwd=project, stdin="so it goes, so\n")
    assert grete("state", "get", "my_words.py", "counts", "so", cwd=project) == "2\n"
