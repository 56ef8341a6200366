"""A worker whose code has child processes, as a pool for computations has, is killed: they outlive it."""

import os
import signal
from pathlib import Path

import pytest

from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.testing.broker.settings import free_port
from tests.support.reports import positions
from tests.worker.workers import WorkerUnderTest

JOB = """
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8

def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()

class Score(Task):
    numbers = Input(Topic("numbers", key=utf8, value=utf8))
    sums = Store("sums", key=utf8, value=int64)
    def init(self) -> None:
        self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("HOW"))
    def process(self, record: Record[str, str]) -> None:
        squared, child = self.pool.submit(square, int(record.value)).result()
        Path("CHILD").write_text(str(child))
        self.sums.put("all", self.sums.get("all", 0) + squared)

job = Job("score", stages=[Score])
"""


@pytest.mark.parametrize("how", ["fork", "forkserver"])  # the default of Linux before Python 3.14, and since
def test_children_of_a_killed_worker_keep_nothing_locked(tmp_path: Path, how: str) -> None:
    """Not its state, nor the address of its page: the successor goes on while they live."""
    path, child, log = tmp_path / "score.py", tmp_path / "child", EmbeddedLog(tmp_path / "job" / "log.db")
    path.write_text(JOB.replace("HOW", how).replace("CHILD", str(child)))
    log.create_topic("numbers", 1)
    page = f"--http=127.0.0.1:{free_port()}"

    def send(number: int) -> None:
        log.produce(0, 0, [ExternalRecord(TopicPartition("numbers", 0), None, b"%d" % number, 1)])
        log.poll()

    send(2)
    with WorkerUnderTest(tmp_path / "job", page, reference=str(path), task="score-0") as first:
        first.until(lambda status: positions(status) == {"numbers[0]": 1})
    pid = int(child.read_text())
    os.kill(pid, 0)  # it lives
    try:
        send(3)
        with WorkerUnderTest(tmp_path / "job", page, reference=str(path), task="score-0") as second:
            second.until(lambda status: positions(status) == {"numbers[0]": 2})
            os.kill(pid, 0)
            os.kill(int(child.read_text()), signal.SIGKILL)
    finally:
        os.kill(pid, signal.SIGKILL)
        log.close()
