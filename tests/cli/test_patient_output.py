"""A command that goes on for long is not stopped by who does not take what it prints."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grete.cli.output import patient_output
from grete.cli.output.patient_output import BYTES_MAX, PatientOutput
from tests.cli.test_run import ROOT
from tests.support.waiting import bounded, until

LIMIT_S = 60
JOB = """
from grete import Input, Job, Record, Store, Task, Topic, utf8

class Loud(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    seen = Store("seen", key=utf8, value=utf8)

    def process(self, record: Record[str, str]) -> None:
        print("x" * 1_000)
        self.seen.put(record.value, "1")

job = Job("loud", [Loud])
"""


def run(folder: Path, out: int) -> "subprocess.Popen[bytes]":
    """Start the job, which prints more than a pipe takes."""
    (folder / "loud.py").write_text(JOB)
    (folder / "lines.txt").write_text("".join(f"{n}\n" for n in range(300)))
    command = [sys.executable, "-m", "grete.cli", "run", "loud.py", "--input", "lines=lines.txt"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.DEVNULL)


def committed(folder: Path) -> int:
    """Return the number of lines that the job has counted."""
    command = [sys.executable, "-m", "grete.cli", "state", "scan", "loud.py", "seen", "--limit", "1000"]
    return len(subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout.splitlines())


@pytest.mark.parametrize("kind", ["pipe", "full", "closed"])
def test_a_job_ends_although_its_prints_are_not_taken(kind: str, tmp_path: Path) -> None:
    """A pipe that is not read, one whose reader is gone, a full disk: all input is committed, and the code is 0."""
    reader, writer = os.pipe()
    if kind == "closed":
        os.close(reader)
    out = os.open("/dev/full", os.O_WRONLY) if kind == "full" else writer
    process = run(tmp_path, out)
    assert process.wait(LIMIT_S) == 0
    assert committed(tmp_path) == 300


def test_what_was_left_out_is_said_once_there_is_room() -> None:
    """Lines that fit into the pipe and the memory come in order; then a line gives the number of missing ones."""
    reader, writer = os.pipe()
    output = PatientOutput(writer)
    for number in range(3_000):
        output.write(f"{number:0999}\n".encode())
    output.settle()  # it does not wait for ever
    with os.fdopen(reader, "rb") as lines, bounded("what is missing"):
        came = missing = 0
        while came + missing < 3_000:
            line = next(lines)
            if b"missing" in line:
                assert came >= BYTES_MAX // 1_000
                missing += int(line.split()[0].strip(b"(").replace(b",", b""))
            else:
                assert int(line) == came + missing
                came += 1
        assert missing
        output.write(b"on\n")
        assert next(lines) == b"on\n"


def test_a_disk_that_was_full_gets_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error ends nothing: what it cost is counted, and the next lines are written."""
    monkeypatch.setattr(patient_output, "AGAIN_S", 0.0)
    reader, writer = os.pipe()
    full, write = [True], os.write

    def written(handle: int, data: bytes) -> int:
        if full and handle == output.fileno():
            full.clear()
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data)

    output = PatientOutput(writer)
    monkeypatch.setattr(os, "write", written)
    output.write(b"lost\n")
    with os.fdopen(reader, "rb") as lines, bounded("the lines behind the error", lambda: full):
        until(lambda: not full)
        output.write(b"on\n")
        assert [next(lines), next(lines)] == [b"on\n", b"(1 lines are missing here: they were not taken)\n"]
