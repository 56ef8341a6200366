"""Workers that die by SIGKILL while a web service has their request: it books each output once, in its task's order."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.worker.workers import LIMIT_S

RECORDS = 300  # of each partition
TAKEN, SLOW = "taken", "slow"
PLAN: dict[int, str | int] = {10: TAKEN, 30: 503, 60: SLOW, 110: TAKEN, 150: 429, 180: SLOW, 260: TAKEN, 330: SLOW}
KILLS = sum(isinstance(each, str) for each in PLAN.values())
SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20, batch_bytes_max=256)
JOB = """
from grete import Http, Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8

class Post(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    out = Output(Http({url!r}, json))

    def process(self, record: Record[str, str]) -> None:
        count = self.counts.get("all", 0) + 1
        self.counts.put("all", count)
        self.out.send(None, [record.partition, count, record.value])

job = Job("post", stages=[Post], partitions=2, mode={mode!r})
"""


class Service:
    """The service's process, and the pipes on which it tells of a stop and is told to go on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.url = f"http://127.0.0.1:{int(self._stdout.readline())}/"
        os.set_blocking(self._stdout.fileno(), False)

    def stopped(self) -> str:
        """Return the key of the request that it holds, if it does."""
        return self._stdout.readline().strip()

    def go_on(self) -> None:
        """Let it."""
        self._stdin.write("\n")
        self._stdin.flush()

    def told(self) -> dict[str, Any]:
        """Return the entries that it has booked."""
        with urllib.request.urlopen(self.url) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found


@contextmanager
def serving(plan: Mapping[int, str | int] = PLAN) -> Iterator[Service]:
    """Yield a service; it ends with the block."""
    command = [sys.executable, "-m", "tests.sinks.ledger_service", json.dumps(plan)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Service(process)
        finally:
            process.kill()


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_killed_with_a_request_on_its_way_each_output_is_booked_once(tmp_path: Path, mode: Mode) -> None:
    """The dead worker's request was booked and not answered, or is booked behind its successor's; the key tells."""
    records = [
        ExternalRecord(TopicPartition("lines", partition), b"k", b"line %d" % number, number)
        for partition in range(2)
        for number in range(RECORDS)
    ]
    with serving() as service:
        file = tmp_path / "post.py"
        file.write_text(JOB.format(url=service.url, mode=mode))
        with LocalJob(
            load_job(str(file)), str(file), JobDirectory(tmp_path / "place"), SETTINGS, inputs=OutsideInputs(["lines"])
        ) as local:
            local.log.produce(0, 0, records)
            while not local.log.poll():
                local.log.wait(100)
            killed, deadline = 0, time.monotonic() + LIMIT_S
            while not local.drained(local.ends()):
                assert time.monotonic() < deadline, (service.told()["requests"], local.reports.troubles)
                local.poll(5)
                if key := service.stopped():
                    local.supervisor.kill(int(key.split("/")[1].rpartition("-")[2]))
                    killed, deadline = killed + 1, time.monotonic() + LIMIT_S
                    service.go_on()
            local.stop()
        told = service.told()
    assert killed == KILLS
    booked = [json.loads(body) for _, body in told["booked"]]
    for partition in range(2):
        expected = [[partition, number + 1, f"line {number}"] for number in range(RECORDS)]
        assert [row for row in booked if row[0] == partition] == expected
    bodies = dict(told["booked"])
    assert len(told["repeated"]) >= KILLS, "each kill leaves a request that comes again"
    assert all(bodies[key] == body for key, body in told["repeated"]), "a key is that of one output"
