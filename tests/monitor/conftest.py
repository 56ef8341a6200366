"""A job that has run, and its page."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.logs.embedded.reader import EmbeddedReader
from grete.monitor.page.browse import ROWS_MAX, Browse
from grete.monitor.page.job_graph import graph_of
from grete.monitor.page.page import Page
from grete.monitor.server import Monitor
from grete.ports import ExternalRecord
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.quoting import ShowRecords
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import id_of_all, snapshots
from tests.monitor.test_server import get
from tests.worker.workers import LIMIT_S

JOB = "tests/monitor/page_job.py"
SECRET = "secret-4711"


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> bool:
    """Whether to take the pictures of docs/images again."""
    return bool(request.config.getoption("--pictures"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a job that has run twice; "first" in it has the checkpoint of the end of the first run."""
    place = tmp_path_factory.mktemp("served")
    words = " ".join(f"w{number:03}" for number in range(2 * ROWS_MAX + 50))
    run = [sys.executable, "-m", "grete.cli", "run", JOB, f"--directory={place / 'job'}"]
    for number, text in enumerate((f"to be or not to be\nrefuse {SECRET}\n", f"{words} to\n")):
        lines = place / f"lines{number}.txt"
        lines.write_text(text)
        subprocess.run(
            [*run, f"--input=lines={lines}"], check=True, timeout=LIMIT_S, capture_output=True, cwd=Path.cwd(),
            env={**os.environ, "PAGE_JOB_ARCHIVE": str(place / "archive")},
        )  # fmt: skip
        if not number:
            with closing(EmbeddedReader(place / "job" / "log.db")) as log:
                (place / "job" / "first").write_text(str(id_of_all(snapshots(log, load_job(JOB)))))
    with closing(EmbeddedLog(place / "job" / "log.db")) as log:
        headers = encode_headers([("who", SECRET.encode())])
        log.produce(0, 0, [ExternalRecord(TopicPartition("lines", 0), None, b"of a customer", 1, headers)])
        log.poll()
    return place / "job"


def monitor_of(directory: Path, show: ShowRecords = "all") -> Monitor:
    """Return a monitor with the page of the job in a directory, and a view of it."""
    job = load_job(JOB)
    browse = Browse(job, directory / "state", lambda: EmbeddedReader(directory / "log.db"))
    return Monitor(60, Page(graph_of(job, Settings(show_records=show)), browse))


def asked(url: str, path: str) -> Any:
    """Return the JSON of an answer that is none of an error."""
    code, body = get(url, path)
    assert code == 200, body
    return json.loads(body)
