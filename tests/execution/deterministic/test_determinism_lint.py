"""Guard rails at the start of a worker: what in a task's module may not be deterministic."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from grete.execution.deterministic.determinism_lint import suspicious_lines
from grete.execution.deterministic.lint.project import Project

MODULE = """
import os
import random
from datetime import datetime
from uuid import uuid4

from grete import Input, Job, Output, Record, Task, Topic, on, utf8


class Loose(Task):
    source = Input(Topic("in", key=utf8, value=utf8))
    out = Output(Topic("out", key=utf8, value=utf8))

    @on(source)
    def word(self, record: Record[str, str]) -> None:
        for word in set(record.value.split()):
            self.out.send(word, os.environ["HOME"])
        self.out.send("x", str(hash(record.value) * random.random()))
        self.out.send("x", f"{datetime.now()} {uuid4()}")


job = Job("loose", [Loose], mode="deterministic")
"""


SHARED = """
import os
import time

SUFFIX = os.getenv("SUFFIX", "")
UNUSED = time.time()


def stamp(text: str) -> str:
    # the clock
    return f"{time.time()}{text}{SUFFIX}"


class Numbers:
    count = 0

    def following(self) -> int:
        self.count += 1
        return self.count


def unused() -> float:
    return time.time()
"""

CALLING = """
import json

from grete import Input, Job, Output, Record, Task, Topic, utf8
from shared_code import Numbers, stamp

NUMBERS = Numbers()


class Calls(Task):
    source = Input(Topic("in", key=utf8, value=utf8))
    out = Output(Topic("out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        self.out.send(stamp(record.key), json.dumps(NUMBERS.following()))


job = Job("calls", [Calls], mode="deterministic")
"""


def lines_of(directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> list[tuple[int, str]]:
    """Write a module, import it, and return what is suspicious in its job."""
    (directory / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(directory))
    job = importlib.import_module(name).job
    return [(finding.line, finding.what) for finding in suspicious_lines(job.stages[0].task)]


def test_suspicious_lines_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks, random numbers, the environment, hashes, the order of sets: each with its line, also @on a topic."""
    found = lines_of(tmp_path, monkeypatch, "loose_module", MODULE)
    assert found == [
        (16, "the order of a set"),
        (17, "os.environ"),
        (18, "hash"),
        (18, "random.random"),
        (19, "datetime.now"),
        (19, "uuid.uuid4"),
    ]


def test_the_project_is_followed_and_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function, a method and a variable of another module are read; what no record reaches is not."""
    (tmp_path / "shared_code.py").write_text(SHARED)
    found = lines_of(tmp_path, monkeypatch, "calling_module", CALLING)
    assert found == [(5, "os.getenv"), (11, "time.time"), (18, "attribute count outlives a record")]


def test_a_line_that_says_why_is_no_suspicion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment with a reason silences the line, and only that line; one without a reason does not."""
    text = MODULE.replace("split()):", "split()):  # deterministic: one word a line")
    text = text.replace('["HOME"])', '["HOME"])  # deterministic:')
    lines = [line for line, _ in lines_of(tmp_path, monkeypatch, "silenced_module", text)]
    assert 16 not in lines
    assert 17 in lines


def test_what_the_check_cannot_read_stops_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error inside of the check is logged, and there are no suspicions."""
    monkeypatch.setattr(Project, "findings", lambda _self: 1 / 0)
    assert lines_of(tmp_path, monkeypatch, "unread_module", MODULE) == []
    assert "has failed" in caplog.text


def test_a_worker_with_random_hashes_is_refused(tmp_path: Path) -> None:
    """A deterministic job does not start in a process that randomizes the order of sets of texts."""
    (tmp_path / "loose_module.py").write_text(MODULE)
    script = (
        "from loose_module import job\n"
        "from grete.execution.deterministic.determinism_lint import check_worker\n"
        "try:\n    check_worker(job)\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    root = Path(__file__).parents[3]

    def say(seed: str) -> str:
        environment = {"PYTHONPATH": f"{tmp_path}:{root}", "PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        ).stdout

    assert "start the worker with PYTHONHASHSEED=0" in say("random")
    assert say("0") == ""
