"""A deterministic task that was killed, and starts with other code: what is visible must be made again as it is."""

import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from tests.support.intervals import just_begun_ms
from tests.worker.workers import LIMIT_S, WorkerUnderTest

pytestmark = pytest.mark.chaos

CODE = """
from grete import Input, Job, Output, Record, Task, Topic, utf8


class Shout(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    out = Output(Topic("shouted", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value + "!")


job = Job("shouting", stages=[Shout], mode="deterministic")
"""


def shouted(log: EmbeddedLog) -> list[str]:
    """Return the values that are visible outside."""
    return [(row.value or b"").decode() for row in log.read(TopicPartition("shouted", 0), 0, 1 << 20)]


def until(log: EmbeddedLog, lines: list[str]) -> None:
    """Wait until that is visible."""
    deadline = time.monotonic() + LIMIT_S
    while shouted(log) != lines:
        assert time.monotonic() < deadline, shouted(log)
        log.wait(100)


def say(log: EmbeddedLog, line: str) -> None:
    """Append a line."""
    log.produce_with_meta([ExternalRecord(TopicPartition("lines", 0), b"k", line.encode(), 1)], {})


def test_other_code_after_a_kill_is_found_out_and_told_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new code halts before anything differs outside; the old code goes on, and the new one after its stop."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    never = f"--set=checkpoint_interval_ms={just_begun_ms()}"  # no commit but that of a graceful stop
    directory, old, new = tmp_path / "job", tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(CODE)
    new.write_text(CODE.replace('"!"', '"?"'))

    def worker(code: Path) -> WorkerUnderTest:
        return WorkerUnderTest(directory, never, reference=str(code), task="shout-0")

    with closing(EmbeddedLog(JobDirectory(directory).directory / "log.db")) as log:
        log.create_topic("lines", 1, plain=True)
        with worker(old) as running:
            running.running()
            say(log, "a")
            until(log, ["a!"])
            running.signal(signal.SIGKILL)
            running.ends()
        with worker(new) as running:
            assert running.ends() == 4
            text = running.log_path.read_text()
        assert "GRETE-H031" in text
        assert (
            "If its code was changed while it had not stopped gracefully, put the code of before back, stop it" in text
        )
        assert shouted(log) == ["a!"]
        with worker(old) as running:
            running.running()
            running.signal(signal.SIGTERM)
            assert running.ends() == 0
        with worker(new) as running:
            running.running()
            say(log, "b")
            until(log, ["a!", "b?"])
