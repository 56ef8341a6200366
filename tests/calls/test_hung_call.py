"""A call that does not return: the worker stops all the same, and its successor takes the record again."""

import signal
from pathlib import Path

import pytest

from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from tests.support.reports import positions
from tests.support.waiting import until
from tests.worker.workers import WorkerUnderTest

JOB = """
import time
from pathlib import Path

from grete import Call, Input, Job, Output, Record, Task, Topic, utf8

HERE = Path(__file__).parent


def answer(what: str) -> str:
    (HERE / "asked").touch()
    while what == "hangs" and not (HERE / "gate").exists():
        time.sleep(0.01)
    return what.upper()


class Ask(Task):
    asked = Input(Topic("asked", key=utf8, value=utf8))
    ask = Call(answer, result=utf8, timeout_ms=600_000)
    out = Output(Topic("answered", key=utf8, value=utf8))

    async def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, await self.ask(record.value))


job = Job("asks", stages=[Ask])
"""
STOP_MS = 1_000


@pytest.mark.timeout(900)
def test_a_call_that_hangs_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    """At the bound of a stop the worker ends with 1; nothing was committed, and the next one asks again, in order."""
    path = tmp_path / "asks.py"
    path.write_text(JOB)
    job, log = load_job(str(path)), EmbeddedLog(JobDirectory(tmp_path / "job").directory / "log.db")
    create_topics(job, log, fed=["asked"])
    values = [b"one", b"hangs", b"two"]
    log.produce(0, 1, [ExternalRecord(TopicPartition("asked", 0), b"k", value, 1) for value in values])
    log.poll()
    answered = TopicPartition("answered", 0)
    options = (f"--set=shutdown_timeout_ms={STOP_MS}",)
    with WorkerUnderTest(tmp_path / "job", *options, reference=str(path), task="ask-0") as worker:
        worker.running()
        until((tmp_path / "asked").exists)
        worker.signal(signal.SIGTERM)
        assert worker.ends() == ExitCode.FAILED
        assert '"stop timed out"' in worker.log_path.read_text()
    assert log.bounds(answered) == (0, 0)
    (tmp_path / "gate").touch()
    with WorkerUnderTest(tmp_path / "job", *options, reference=str(path), task="ask-0") as worker:
        worker.until(lambda status: positions(status).get("asked[0]") == len(values))
        worker.signal(signal.SIGTERM)
        assert worker.ends() == ExitCode.DONE
    assert [row.value for row in log.read(answered, 0, 1 << 20)] == [b"ONE", b"HANGS", b"TWO"]
    log.close()
