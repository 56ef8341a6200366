"""`grete audit --follow` as a process: killed and started again it goes on; what differs is a line and a metric."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from grete.cli.main import app
from tests.replay.followed_jobs import Scene
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S


class FollowingAudit:
    """The command, killed at the end of the block."""

    def __init__(self, scene: Scene, *options: str) -> None:
        self.out, self.said = (scene.file.parent / f"{name}-{time.monotonic_ns()}" for name in ("rows", "said"))
        command = [sys.executable, "-m", "grete.cli", "audit", scene.reference, "--follow", "--json"]
        command += [f"--directory={scene.job_directory.directory}", "--http=0", *options]
        with self.out.open("wb") as out, self.said.open("wb") as said:
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=said, env=environment)

    def metric(self, name: str) -> float:
        """Return a metric, summed up over its labels; 0 before it is served."""
        url = re.search(r"http://\S+/metrics", self.said.read_text())
        if url is None:
            assert self.process.poll() is None, self.said.read_text()
            return 0.0
        with urllib.request.urlopen(url[0], timeout=LIMIT_S) as answer:
            text = answer.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.mark.chaos
def test_killed_it_goes_on_and_tells_what_differs(tmp_path: Path) -> None:
    """SIGKILL between steps: the next process begins nowhere new; a planted mistake is a row; Ctrl-C ends with 1."""
    scene = Scene(tmp_path)
    with scene.running() as local:
        scene.fed_and_drained(local, 60)
        with FollowingAudit(scene) as first:
            until(lambda: first.metric("grete_audit_begins_total") == 1)
            scene.fed_and_drained(local, 60)
            until(lambda: first.metric("grete_audit_keys_total") > 0)
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()
        scene.fed_and_drained(local, 60)
        scene.wrong.touch()
        scene.fed_and_drained(local, 60)
        scene.wrong.unlink()
        with FollowingAudit(scene) as second:
            until(lambda: second.metric("grete_audit_differences_total") > 0)
            until(lambda: bool(second.rows()))
            assert second.metric("grete_audit_begins_total") == 0
            assert second.metric("grete_audit_age_seconds") < LIMIT_S
            second.process.send_signal(signal.SIGINT)
            assert second.process.wait(LIMIT_S) == 1
    assert first.rows() == []
    (row,) = {row["key"]: row for row in second.rows()}.values()
    assert (row["stage"], row["store"], row["key"]) == ("count", "counts", "w7")
    assert isinstance(row["in_changelog"], int)
    assert row["in_changelog"] != row["recomputed"]
    assert row["after"] < row["checkpoint"]
    assert "differ" in second.said.read_text()


def test_options_of_the_other_audit_are_refused(tmp_path: Path) -> None:
    """Each audit has its own options."""
    scene = Scene(tmp_path)
    with scene.running() as local:
        scene.fed_and_drained(local, 5)
    place = f"--directory={scene.job_directory.directory}"
    for options, text in [
        (["--follow", "--from=history"], "leave --from"),
        (["--share=0.5"], "add --follow"),
        (["--follow", "--share=0"], "draws no key"),
    ]:
        done = CliRunner().invoke(app, ["audit", scene.reference, place, *options])
        assert done.exit_code != 0
        assert text in f"{done.output} {done.exception}"
