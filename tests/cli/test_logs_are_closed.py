"""Commands and a local job close each file of SQLite that they open, also where they end with an error.

A process of its own would do it at its end. One that goes on, as a program that starts a job again after an error,
would keep the file, and Python 3.13 warns of each one.
"""

import contextlib
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob
from tests.state.pair_bulk_writes import run
from tests.support.sqlite_files import all_closed

CODE = Path("tests/state/pair_job.py").read_text()

DONE = [
    ["checkpoints", "JOB"],
    ["state", "get", "JOB", "counts", "a"],
    ["state", "scan", "JOB", "counts"],
    ["changelog", "tail", "JOB", "count", "0"],
    ["changelog", "verify", "JOB"],
    ["topic", "read", "JOB", "observed"],
    ["export", "JOB", "--to=REPLAYED/files"],
    ["replay", "JOB", "--into=REPLAYED"],
]
REFUSED = [
    ["state", "get", "JOB", "nothing", "a"],
    ["state", "scan", "JOB", "counts", "--checkpoint=999999999"],
    ["changelog", "tail", "JOB", "count", "9"],
    ["changelog", "tail", "JOB", "nothing", "0"],
    ["topic", "read", "JOB", "nothing"],
    ["replay", "JOB", "--checkpoint=999999999"],
    ["check-determinism", "JOB"],
    ["rescale", "JOB", "--partitions=1"],
    ["fork", "JOB", "JOB"],
]


def ends(code: str, directory: Path, *command: str) -> BaseException | None:
    """Run a command in this process; return the error that it ended with."""
    words = [word.replace("JOB", code).replace("REPLAYED", str(directory.parent / "replayed")) for word in command]
    return CliRunner().invoke(app, [*words, f"--directory={directory}"]).exception


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a job that has run in the directory ``job`` beside it."""
    folder = tmp_path_factory.mktemp("closed")
    (folder / "pair.py").write_text(CODE)
    run(str(folder / "pair.py"), folder / "job", ("k", "a b a"))
    return str(folder / "pair.py")


@pytest.fixture
def directory(code: str, tmp_path: Path) -> Path:
    """A copy of the directory in which the job has run."""
    return Path(shutil.copytree(Path(code).parent / "job", tmp_path / "job"))


@pytest.mark.parametrize("command", DONE, ids=" ".join)
def test_a_command_closes_its_log(
    code: str, directory: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that succeeds closes its log."""
    with all_closed(monkeypatch):
        assert ends(code, directory, *command) is None


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_a_command_that_is_refused_closes_its_log(
    code: str, directory: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes once the log is open."""
    with all_closed(monkeypatch):
        assert isinstance(ends(code, directory, *command), ConfigError)


def test_a_fork_closes_both_logs(code: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the second time, which is refused once both of them are open."""
    second = directory.parent / "second.py"
    second.write_text(CODE.replace('Job("pair"', 'Job("second"'))
    asked = ["fork", "JOB", str(second), f"--second-directory={directory.parent / 'forked'}", "--assume-keyed"]
    with all_closed(monkeypatch):
        assert ends(code, directory, *asked) is None
    with all_closed(monkeypatch):
        assert isinstance(ends(code, directory, *asked), ConfigError)


def test_a_job_that_is_refused_closes_its_log_and_leaves_its_directory(
    code: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``grete run`` and ``grete up`` with code that does not fit the state: the next try finds no supervisor."""
    changed = directory.parent / "changed.py"
    changed.write_text(CODE.replace('Store("counts", key=utf8, value=int64)', 'Store("counts", key=utf8, value=utf8)'))
    with all_closed(monkeypatch), pytest.raises(ConfigError, match="counts"):
        LocalJob(load_job(str(changed)), str(changed), JobDirectory(directory), Settings())
    with contextlib.closing(EmbeddedLog(directory / "log.db", create=False)) as log:
        before = log.topics()
    with LocalJob(load_job(code), code, JobDirectory(directory), Settings()) as local:
        assert local.log.topics() == before
