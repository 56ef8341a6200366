"""Guard rails at the start of a worker: what in a task's module may not be deterministic."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from framework.execution.deterministic.determinism_lint import suspicious_lines

MODULE = """
import os
import random
from datetime import datetime
from uuid import uuid4

from grete import Input, Job, Output, Record, Task, Topic, utf8


class Loose(Task):
    source = Input(Topic("in", key=utf8, value=utf8))
    out = Output(Topic("out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        for word in set(record.value.split()):
            self.out.send(word, os.environ["HOME"])
        self.out.send("x", str(hash(record.value)))


job = Job("loose", [Loose], mode="deterministic")
"""


def test_suspicious_lines_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks, random numbers, the environment, hashes and the order of sets, each with its line."""
    (tmp_path / "loose_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("loose_module")
    assert [(finding.line, finding.what) for finding in suspicious_lines(module.Loose)] == [
        (3, "import random"),
        (4, "from datetime import datetime"),
        (5, "from uuid import uuid4"),
        (15, "iterating over a set"),
        (16, "os.environ"),
        (17, "hash()"),
    ]


def test_a_worker_with_random_hashes_is_refused(tmp_path: Path) -> None:
    """Where sets of texts have another order in each process, a deterministic job does not start."""
    (tmp_path / "loose_module.py").write_text(MODULE)
    script = (
        "from loose_module import job\n"
        "from framework.execution.deterministic.determinism_lint import check_worker\n"
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
