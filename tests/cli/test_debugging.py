"""A user's first steps with code that does not run yet: a breakpoint, a file of a package."""

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import pdb
from grete import DeadLetter, Input, Job, Record, Store, Task, Topic, bytes_serde, int64, utf8

class Count(Task):
    words = Input(Topic("words", key=utf8, value=utf8), errors=ERRORS)
    counts = Store("counts", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        STOP
        self.counts.put(record.value, 1)

job = Job("debugged", stages=[Count])
"""
LETTERS = 'DeadLetter(Topic("letters", key=utf8, value=bytes_serde))'


def grete(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    command = [sys.executable, "-m", "grete.cli", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("stop", "errors", "code", "words"),
    [
        ("breakpoint()", LETTERS, 4, "line 10: a worker has no terminal to debug on"),
        ("pdb.set_trace()", '"drop"', 4, "BdbQuit"),
    ],
)
def test_a_breakpoint_takes_no_record(tmp_path: Path, stop: str, errors: str, code: int, words: str) -> None:
    """A worker has no terminal: it stops and says so, and no record is a letter, or dropped."""
    (tmp_path / "debugged.py").write_text(CODE.replace("ERRORS", errors).replace("STOP", stop))
    (tmp_path / "words").write_text("one\n")
    command = ["run", "debugged.py", "--input", "words=words", "--set", "restarts_max=1"]
    done = grete(tmp_path, *command)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    (tmp_path / "debugged.py").write_text(CODE.replace("ERRORS", errors).replace("STOP", "pass"))
    assert grete(tmp_path, *command).returncode == 0
    assert grete(tmp_path, "state", "scan", "debugged.py", "counts").stdout == "one\t1\n"


def test_a_file_of_a_package_is_told_its_name(tmp_path: Path) -> None:
    """Started by its path, it is a module of no package; the error says how to start it, and that works."""
    folder = tmp_path / "shop" / "jobs"
    folder.mkdir(parents=True)
    (folder / "orders.py").write_text("from . import stop\n" + CODE.replace("ERRORS", '"fail"').replace("STOP", "stop"))
    (folder / "stop.py").write_text("")
    (tmp_path / "words").write_text("one\n")
    options = ("--input", "words=words")
    done = grete(tmp_path, "run", "shop/jobs/orders.py", *options)
    assert (done.returncode, f"{folder} is no package, as it has no __init__.py" in done.stderr) == (2, True)
    for each in (folder, folder.parent):
        (each / "__init__.py").write_text("")
    done = grete(tmp_path, "run", "shop/jobs/orders.py", *options)
    assert (done.returncode, f"cd {tmp_path}, then shop.jobs.orders" in done.stderr) == (2, True)
    assert grete(tmp_path, "run", "shop.jobs.orders", *options).returncode == 0
