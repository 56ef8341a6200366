"""Code that lies in the folder where a command happens to run is never imported by a process that Grete starts."""

import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from grete import python_start
from grete.api.tasks.calls import BatchCall
from grete.cli.commands.new import new
from grete.errors import ConfigError
from grete.execution.calls.thread import _pool
from grete.job.loader import load_job

ROOT = Path(__file__).parents[1]
STRANGERS = ("fcntl", "msgspec", "multiprocessing", "resource", "rocksdict", "sqlite3", "tomllib", "grete")
PLANTED = "open({!r}, 'a').write({!r})\nraise ImportError('it was somebody else who put me there')\n"
JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

class Count(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    out = Output(Topic("out", key=utf8, value=int64))

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.value, 0) + 1
        self.counts.put(record.value, n)
        self.out.send(record.value, n)

job = Job("counting", [Count], mode="deterministic")
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder, which is the current one, where somebody has put modules; an empty entry of PYTHONPATH is it."""
    folder = tmp_path / "shared"
    folder.mkdir()
    for name in STRANGERS:
        (folder / f"{name}.py").write_text(PLANTED.format(str(tmp_path / "ran"), f"{name} "))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f":{ROOT}:.")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "counting.py").write_text(JOB)
    return folder


@pytest.fixture(autouse=True)
def _search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what loading a file adds to the search path."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("started_by_exec")  # the start itself
def test_workers_and_replays_import_nothing_from_the_current_folder(shared: Path, tmp_path: Path) -> None:
    """The commands themselves are told by -P here, as the script `grete` is by its place."""
    (tmp_path / "lines.txt").write_text("to\nbe\n")
    job = str(tmp_path / "job" / "counting.py")
    variables = python_start.environment()
    for command in (["run", job, f"--input=lines={tmp_path / 'lines.txt'}"], ["check-determinism", job]):
        line = python_start.python("grete.cli", *command)
        done = subprocess.run(line, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    assert (shared / ".grete" / "counting").is_dir()


@pytest.mark.usefixtures("started_by_exec")
def test_a_job_in_a_folder_that_a_relative_path_names_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds it as ``PYTHONPATH=src`` says, and so do its workers, wherever they run."""
    package = tmp_path / "src" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "counting.py").write_text(JOB)
    (tmp_path / "lines.txt").write_text("to\nbe\n")
    monkeypatch.chdir(tmp_path)
    command = python_start.python("grete.cli", "run", "shop.counting", "--input=lines=lines.txt")
    variables = {**os.environ, "PYTHONPATH": f"src{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def twice(items: list[int]) -> list[int]:
    """Return the items, doubled: in a process of a pool."""
    return [2 * item for item in items]


def test_a_pool_of_a_call_imports_nothing_from_the_current_folder(shared: Path, tmp_path: Path) -> None:
    """Multiprocessing starts its processes by -c, which looks there first."""
    pool = _pool(BatchCall(twice, min=1, max=2, wait_ms=1, pool="processes", workers=1))
    assert isinstance(pool, ProcessPoolExecutor)
    with pool:
        assert pool.submit(twice, [1, 2]).result() == [2, 4]
    assert (shared / "multiprocessing.py").exists()
    assert not (tmp_path / "ran").exists()


def test_every_python_that_grete_starts_is_started_so() -> None:
    """No other module has a command with this interpreter in it, or passes on a search path of its own."""
    found = {
        path.relative_to(ROOT / "framework").as_posix()
        for path in (ROOT / "framework").rglob("*.py")
        if re.search(r"sys\.executable|\"PYTHONPATH\"|sys\.path\.insert", path.read_text("utf-8"))
    }
    assert found == {"python_start.py", "spark/session.py"}  # Spark is told which interpreter its executors have


def test_the_folder_of_a_job_comes_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A helper beside the job is found; one that has the name of an installed module is not, and a line says so."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "only_here.py").write_text("number = 7\n")
    (folder / "this.py").write_text("raise AssertionError\n")
    (folder / "with_helpers.py").write_text(f"import only_here, this\nassert only_here.number == 7\n{JOB}")
    assert load_job(str(folder / "with_helpers.py")).name == "counting"
    assert sys.path[-1] == str(folder)
    (told,) = [record.getMessage() for record in caplog.records]
    assert re.search(r"with_helpers.py: this is imported from .*this.py, and not from .*job/this.py: rename", told)


@pytest.mark.parametrize("name", ["queue", "json", "grete"])
def test_a_job_has_not_the_name_of_a_module_that_python_imports(name: str, tmp_path: Path) -> None:
    """It would take that module's place for everybody in the process."""
    path = tmp_path / f"{name}.py"
    path.write_text(JOB)
    with pytest.raises(ConfigError, match="give the file another name"):
        load_job(str(path))


@pytest.mark.parametrize("name", ["class", "json", "async", "pytest", "msgspec", "import", "grete"])
def test_a_new_project_has_not_the_name_of_a_module(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Python's, of an installed one, or of a keyword: its module could not be imported, or would be in the way."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=rf"'{name}' cannot name a project: Python has a (module|keyword) {name}"):
        new(name)
    assert list(tmp_path.iterdir()) == []
