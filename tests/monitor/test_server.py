"""The HTTP pages of a real process of `grete up` or `grete worker`."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from grete.errors import ConfigError
from grete.monitor.server import Monitor, parse_address, serving
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S, WorkerUnderTest, say, word_log

UP = [sys.executable, "-m", "grete.cli", "up", "tasks.word_count", "--http=0"]


def get(url: str, path: str) -> tuple[int, bytes]:
    """Return (status, body)."""
    try:
        with urllib.request.urlopen(url + path, timeout=LIMIT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def url_in(path: Path) -> str | None:
    """Return the address that a process has written down."""
    found = re.search(r"http://127\.0\.0\.1:\d+", path.read_text())
    return None if found is None else found[0]


def samples(url: str) -> dict[str, float]:
    """Return the samples of the one task, those with more labels left out."""
    status, page = get(url, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(page.decode())
    return {s.name: s.value for family in families for s in family.samples if set(s.labels) <= {*LABELS}}


LABELS = ("job", "stage", "partition", "topic", "worker")


@pytest.mark.timeout(600)
def test_up_serves_a_job_and_shows_a_kill(tmp_path: Path) -> None:
    """Ready, measured, then killed: the next worker is ready again, and the counts say what happened."""
    lines = tmp_path / "lines.txt"
    lines.write_text("to be or not to be\n" * 50)
    directory = f"--directory={tmp_path / 'job'}"
    run = [sys.executable, "-m", "grete.cli", "run", "tasks.word_count", directory, f"--input=sentences={lines}"]
    subprocess.run(run, check=True, timeout=LIMIT_S, capture_output=True)
    shown = tmp_path / "up.txt"
    with shown.open("wb") as out, subprocess.Popen([*UP, directory], stdout=out, stderr=out) as up:
        try:
            url = until(lambda: url_in(shown))
            until(lambda: get(url, "/readyz")[0] == 200)
            found = until(lambda: (s := samples(url)).get("grete_input_lag_records") == 0 and s)
            assert found["grete_worker_starts_total"] == 1
            assert found["grete_state_disk_bytes"] > 0
            assert get(url, "/livez") == (200, b'{"live":true}')
            (worker,) = json.loads(get(url, "/status.json")[1])["workers"]
            os.kill(worker["pid"], signal.SIGKILL)
            until(lambda: samples(url)["grete_worker_starts_total"] == 2)
            until(lambda: get(url, "/readyz")[0] == 200)
            assert samples(url)["grete_generation"] == found["grete_generation"] + 1
            assert get(url, "/etc/passwd")[0] == 404
            up.send_signal(signal.SIGTERM)
            assert up.wait(LIMIT_S) == 0, shown.read_text()
        finally:
            up.kill()


@pytest.mark.timeout(600)
def test_a_worker_serves_its_own_tasks(tmp_path: Path) -> None:
    """A worker serves its tasks' restored and processed counts without a supervisor."""
    log = word_log(tmp_path / "job")
    say(log, "to be", "or not")
    log.close()
    with WorkerUnderTest(tmp_path / "job", "--http=127.0.0.1:0") as worker:
        worker.running()
        url = until(lambda: url_in(worker.log_path))
        found = until(lambda: (s := samples(url)).get("grete_records_in_total") == 2 and s)
        found = until(lambda: (s := samples(url))["grete_records_out_total"] == 4 and s)
        assert found["grete_commit_seconds_count"] >= 1
        assert 0 < found["grete_commit_seconds_sum"] < LIMIT_S
        assert found["grete_changelog_bytes_total"] > 0
        assert get(url, "/readyz") == (200, b'{"ready":true,"reasons":[]}')


def test_a_job_that_is_starting_is_alive_and_not_ready() -> None:
    """Before the first view each path answers."""
    with serving(Monitor(60), "0") as url:
        assert get(url, "/livez")[0] == 200
        assert get(url, "/readyz") == (503, b'{"ready":false,"reasons":["the job is starting"]}')
        assert get(url, "/status.json") == (200, b"null")
        assert get(url, "/metrics") == (200, b"")


def test_an_address_that_is_taken_or_wrong_is_refused() -> None:
    """The error has the address and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=f"--http {port}: Address already in use: choose another"),
            serving(Monitor(60), str(port)),
        ):
            pass
    with serving(Monitor(60), "0") as url:  # another job's page
        port = url.rpartition(":")[2]
        with pytest.raises(ConfigError, match=f"--http {port}: Address already in use"), serving(Monitor(60), port):
            pass
    for wrong in ("here", "host:", ":x", "1.2.3.4:70000"):
        with pytest.raises(ConfigError, match="give HOST:PORT, or PORT"):
            parse_address(wrong)
    assert parse_address("[::1]:80") == ("::1", 80)
    assert parse_address("8080") == ("127.0.0.1", 8080)
