"""User code that blocks is named in the log of its worker, with its stack."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grete.job.loader import load_job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.worker.process.blocking import user_frames
from tests.monitor.test_server import get, url_in
from tests.support.reports import positions
from tests.support.waiting import until
from tests.worker.workers import LIMIT_S, WorkerUnderTest, word_log

CODE = """
import time
from pathlib import Path
from grete import Input, Job, Record, Task, Topic, utf8

def ask_a_service():
    while not Path(__file__).with_name("answer").exists():
        time.sleep(0.01)

class Ask(Task):
    words = Input(Topic("words", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        ask_a_service()

job = Job("asking", stages=[Ask])
"""


def said(worker: WorkerUnderTest) -> list[dict[str, Any]]:
    """Return the lines of the worker's log that say that code blocks."""
    lines = [json.loads(line) for line in worker.log_path.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "your code blocks"]


IN_A_CALL = """
from grete import Call, Output, json

async def question(word):
    ask_a_service()
    return word

class AskInACall(Task):
    name = "ask"
    words = Input(Topic("words", key=utf8, value=utf8))
    question = Call(question, timeout_ms=100_000)
    out = Output(Topic("answers", key=utf8, value=json))

    async def process(self, record: Record[str, str]) -> None:
        self.out.send(None, await self.question(record.value))

job = Job("asking", stages=[AskInACall])
"""


@pytest.mark.chaos
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize(("more", "outermost"), [("", "in process"), (IN_A_CALL, "in question")])
def test_code_that_blocks_is_named_once_with_its_stack(tmp_path: Path, more: str, outermost: str) -> None:
    """The stack begins in the user's own code, also that of an async call; the worker goes on once the code does.

    What it serves says so meanwhile, and /livez that its own loop is stuck: not that of the calls.
    """
    file, directory = tmp_path / "asking.py", tmp_path / "job"
    file.write_text(CODE + more)
    log = word_log(directory, load_job(str(file)))
    log.produce(0, 1, [ExternalRecord(TopicPartition("words", 0), None, b"what", 1) for _ in range(3)])
    log.poll()
    options = "--http=0", "--set=liveness_timeout_ms=8000"
    with WorkerUnderTest(directory, *options, reference=str(file), task="ask-0") as worker:
        until(lambda: said(worker))
        url = until(lambda: url_in(worker.log_path))
        (found,) = until(lambda: json.loads(get(url, "/status.json")[1])["findings"])
        assert (found["what"], "in ask_a_service" in found["value"]) == ("your code blocks", True)
        assert more or until(lambda: get(url, "/livez")[0] == 503)
        file.with_name("answer").touch()
        worker.until(lambda status: positions(status) == {"words[0]": 3})
        (line,) = said(worker)
    stack = line["stack"].splitlines()
    assert stack[0].endswith(outermost)
    assert "in ask_a_service" in line["stack"]
    assert line["since_s"] >= 1


def test_a_stack_without_user_code_blocks_nothing() -> None:
    """Waits of Grete itself, and code that no task's execution has called, are not reported."""
    assert user_frames(sys._getframe()) == []
    assert user_frames(None) == []
