"""Workers that are killed in the middle of calls to a real server: each record takes effect once, with one answer."""

import itertools
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.state.read.local_reader import LocalReader
from tests.calls import killed_calls
from tests.support.http_server import CountingServer, serving
from tests.worker.workers import LIMIT_S

ASKED, ANSWERED = TopicPartition("asked", 0), TopicPartition("answered", 0)
RECORDS, KEYS = 150, 20
KILLS = {
    "aligned": [("call", 7), ("record", 150), ("call", 40), ("freeze", 1), ("chunk", 1)],
    "deterministic": [("call", 7), ("results", 2), ("call", 40), ("results", 1), ("freeze", 1), ("chunk", 1)],
}


def run_worker(directory: Path, mode: str, server: CountingServer, where: str, count: int) -> int:
    """Run the job in a process of its own; return how that ended."""
    arguments = [str(directory), mode, server.url, where, str(count)]
    line = [sys.executable, "-m", "tests.calls.killed_calls", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(line, env=environment, timeout=LIMIT_S, check=False).returncode


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", KILLS)
def test_killed_workers_take_each_record_once_with_one_answer(mode: str, tmp_path: Path) -> None:
    """After all kills the outputs and the state hold one answer for each record: the same, and the server's."""
    job, log = killed_calls.open_job(tmp_path, mode)
    numbers = itertools.count(1)
    with closing(log), serving(lambda _: (200, b"%d" % next(numbers))) as server:
        rows = [ExternalRecord(ASKED, b"k%d" % (n % KEYS), b"%d" % n, n, None) for n in range(RECORDS)]
        log.produce(0, 1, rows)
        log.poll()
        for where, count in KILLS[mode]:
            assert run_worker(tmp_path, mode, server, where, count) == -signal.SIGKILL, where
        assert run_worker(tmp_path, mode, server, "freeze", 0) == 0
        found = [(int(row.key or b""), int.from_bytes(row.value or b"")) for row in log.read(ANSWERED, 0, 1 << 30)]
    with LocalReader(JobDirectory(tmp_path).state_directory, job) as reader:
        last = {f"k{n % KEYS}": answer for n, answer in found}
        assert dict(reader.all(killed_calls.Ask.last)) == last
    assert [number for number, _ in found] == list(range(RECORDS))
    answers = dict(found)
    assert len(set(answers.values())) == RECORDS
    again = sum(server.asked.values()) - RECORDS  # a rollback makes all calls since the commit again
    assert (again > 0) if mode == "aligned" else (again <= len(KILLS[mode]) * killed_calls.Ask.in_flight)
