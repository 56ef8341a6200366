"""State over HTTP while workers run, commit and are killed: committed values only, of whole checkpoints."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from grete.protocol.partitioner import partition_of
from tests.monitor.test_server import get, url_in
from tests.monitor.test_state_api import FIVE, JOB, NAMES, append, asked, run, served
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S

HOUR = "checkpoint_interval_ms=3600000", "idle_checkpoint_interval_ms=3600000"


@contextmanager
def up(directory: Path, stored: Path, *settings: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `grete up` within the block; yield the address of its page, and the process."""
    screen = directory.parent / "up.txt"
    command = [sys.executable, "-m", "grete.cli", "up", JOB, f"--directory={directory}", "--http=0"]
    command += [f"--set={each}" for each in settings]
    environment = {**os.environ, "STATE_JOB_STORED": str(stored)}
    with screen.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            url = until(lambda: url_in(screen), saw=screen.read_text)
            until(lambda: get(url, "/readyz")[0] == 200, saw=screen.read_text)
            yield url, process
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0, screen.read_text()
        finally:
            process.kill()


def kill_a_worker(url: str, number: int) -> None:
    """Kill a worker of the job, and wait for the next one."""
    workers = json.loads(get(url, "/status.json")[1])["workers"]
    pid = workers[number % len(workers)]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: all(each["pid"] not in (None, pid) for each in json.loads(get(url, "/status.json")[1])["workers"]))


@pytest.mark.test  # starts workers, and kills them
@pytest.mark.timeout(600)
def test_what_is_not_committed_is_never_shown(tmp_path: Path) -> None:
    """A value is stored and not committed; its worker is killed, and stores it again. At the stop it is committed."""
    directory, stored = tmp_path / "job", tmp_path / "stored.txt"
    run(directory)
    append(directory, ("ann", "old", 0))
    before = run(directory)
    with up(directory, stored, *HOUR) as (url, _):
        append(directory, ("ann", "newer", 1))
        for kills in range(2):
            until(lambda: stored.exists() and stored.read_text().count("newer") > kills)  # noqa: B023  # called at once
            for path in ("/state/last/ann", "/state/last"):
                answer = asked(url, path)
                row = answer.get("rows", [answer])[0]
                assert row["value"] == "old"
            assert asked(url, "/state/last/ann")["checkpoint"] >= before
            assert get(url, f"/state/pairs/{FIVE}")[0] == 404
            if not kills:
                kill_a_worker(url, partition_of(b"ann", 2))
    with served(directory) as url:
        assert asked(url, "/state/last/ann")["value"] == "newer"


@pytest.mark.test  # starts workers, and kills them
@pytest.mark.timeout(600)
def test_answers_are_whole_checkpoints_while_workers_are_killed(tmp_path: Path) -> None:
    """Two entries that each record writes agree in each answer, and no answer is of an older checkpoint."""
    directory, stored = tmp_path / "job", tmp_path / "stored.txt"
    run(directory)
    newest: dict[str, int] = {}
    with up(directory, stored, "checkpoint_interval_ms=50", "restart_backoff_ms=1") as (url, _):
        for number in range(12):
            append(directory, *((name, f"{number:05}", number) for name in NAMES))
            if number % 4 == 3:
                kill_a_worker(url, number // 4)
            oldest = ""
            while oldest != f"{number:05}":
                answer = asked(url, "/state/twice?limit=1000")
                found = {row["key"]: row["value"] for row in answer["rows"]}
                assert [name for name in NAMES if found.get(f"{name}/a") != found.get(f"{name}/b")] == []
                for partition, checkpoint in answer["checkpoints"].items():
                    assert checkpoint >= newest.get(partition, 0)
                    newest[partition] = checkpoint
                oldest = min(found.values(), default="")
    assert len(newest) == 2
