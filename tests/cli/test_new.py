"""`grete new`: each project works as it was written, and the wheel has all that it is written from."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grete.cli.commands.new import new, templates
from grete.errors import ConfigError
from tests.cli.test_run import ROOT, grete
from tests.tasks.test_ladder import EXAMPLES


def test_the_projects_of_all_templates_pass_their_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example is a template. Its tests pass, crashes included, where the repository's own modules are not."""
    monkeypatch.chdir(tmp_path)
    assert templates() == sorted(name.removesuffix(".py") for name in EXAMPLES)
    for template in templates():
        new(f"my-{template.replace('_', '-')}", template)
    places = os.pathsep.join([*map(str, tmp_path.iterdir()), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": places, "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    texts = {path: path.read_text("utf-8") for path in tmp_path.rglob("*.py")}
    assert [path for path, text in texts.items() if "from tasks" in text or "from tests" in text] == []


def test_a_new_project_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a template it is the smallest job, and it counts; its job has the project's name."""
    monkeypatch.chdir(tmp_path)
    new("my-words")
    project = tmp_path / "my-words"
    grete("run", "my_words.py", "--input", "sentences=-", cwd=project, stdin="so it goes, so\n")
    assert grete("state", "get", "my_words.py", "counts", "so", cwd=project) == "2\n"
    assert (project / ".grete" / "my-words").is_dir()


def test_the_page_for_coding_agents_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands work in a new project, and its job passes its test there."""
    monkeypatch.chdir(tmp_path)
    new("my-words")
    project = tmp_path / "my-words"
    page = (project / "AGENTS.md").read_text("utf-8")
    assert "MODULE" not in page
    commands = re.findall(r"^\$ grete (.+)$", page, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["run", "plan", "config"]
    for command in commands:
        grete(*command.split(), cwd=project)
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # our own page
    names["test_votes_are_counted_through_crashes"]()


def test_a_template_that_is_none_lists_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no template 'windowing': there are .*join, .*windows"):
        new("mine", "windowing")
    assert list(tmp_path.iterdir()) == []


def test_the_wheel_gets_each_example_and_its_test() -> None:
    """pyproject.toml lists the files one by one: hatch takes no pattern there."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    listed = sorted(build["force-include"])
    assert listed == sorted(f"{place}{name}" for name in EXAMPLES for place in ("tasks/", "tests/tasks/test_"))
