"""The versions of Python: all places that name them agree, and `make` takes the one that is asked for."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from grete.cli.commands.new import PROJECT as NEW_PROJECT

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
VERSIONS = re.findall(r"Python :: (3\.\d+)", " ".join(PYPROJECT["project"]["classifiers"]))  # all tests ran on them
LEAST = VERSIONS[0]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/start/word-count.md")


def test_the_least_version_is_one_everywhere() -> None:
    """pip, mypy, ruff, `make` and a new project name the same least version."""
    major, minor = LEAST.split(".")
    asked = f">={LEAST}"
    assert PYPROJECT["project"]["requires-python"] == asked
    assert PYPROJECT["tool"]["mypy"]["python_version"] == LEAST
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{major}{minor}"
    assert set(re.findall(r"sys\.version_info < \((\d+), (\d+)\)", (ROOT / "Makefile").read_text())) == {(major, minor)}
    assert tomllib.loads(NEW_PROJECT)["project"]["requires-python"] == asked


def test_what_is_pinned_runs_on_the_least_version() -> None:
    """Its first release, too: where one package asks for a later one, `make test` can install nothing."""
    lines = [line.rstrip(" \\") for line in (ROOT / "requirements/dev.txt").read_text().splitlines() if "==" in line]
    least = {"python_version": LEAST, "python_full_version": f"{LEAST}.0"}
    pins = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate(least)]
    installed = {canonicalize_name(each.name): each for each in distributions()}
    asked = {}
    for pin in pins:
        found = installed.get(canonicalize_name(pin.name))
        if found is not None and pin.specifier.contains(found.version):  # a later Python may have another pin
            asked[pin.name] = (found.metadata.get_all("Requires-Python") or [""])[0]
    assert {"mkdocs-material", "pyspark", "rocksdict"} <= set(asked)
    assert {name: said for name, said in asked.items() if not SpecifierSet(said).contains(f"{LEAST}.0")} == {}


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_name_the_versions_that_the_tests_ran_on(page: str) -> None:
    """As in the metadata of the package."""
    said = f"Python {', '.join(VERSIONS[:-1])} or {VERSIONS[-1]}"
    assert said in " ".join((ROOT / page).read_text("utf-8").split())


def test_what_each_version_does_to_speed_is_measured() -> None:
    """docs/results/python.json has a row of figures for each."""
    tables = json.loads((ROOT / "docs/results/python.json").read_text("utf-8"))["runs"][-1]["tables"]
    assert [row[0] for row in tables[0]["rows"]] == [f"Python {version}" for version in VERSIONS]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile and an environment of Python 3.11."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    python(tmp_path / ".venv" / "bin" / "python", "3.11")
    python(tmp_path / "other", "3.13")
    return tmp_path


def python(path: Path, version: str) -> None:
    """Write a program that is asked for its version only."""
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)


def test_another_python_is_refused_with_the_way_to_have_it(project: Path) -> None:
    """`make check PYTHON=…` beside an environment of another version used to run the tests on that one."""
    done = make(project, "check", "PYTHON=./other")
    assert done.returncode != 0
    assert ".venv has Python 3.11, and ./other is Python 3.13" in done.stderr
    assert "make check PYTHON=./other VENV=.venv-3.13" in done.stderr
    assert make(project, "same-python", "PYTHON=.venv/bin/python").returncode == 0


def make(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run make in a directory. What an outer make was told, such as ``VENV=…``, is not for this one."""
    told = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    return subprocess.run(["make", *arguments], cwd=directory, env=told, capture_output=True, text=True, check=False)
