"""The lines of a worker, and a supervisor's report of its end, for a person who is called at night."""

import json
import logging
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from grete.errors import ExitCode
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.worker.logs.own_lines import enable_own
from tests.cli.test_run import start
from tests.worker.workers import LIMIT_S, WorkerUnderTest, say, until_committed, word_log

PAYMENTS = """
from grete import Input, Job, Record, Task, Topic, json, utf8

class AddUp(Task):
    payments = Input(Topic("payments", key=utf8, value=json(dict[str, int])))
    def process(self, record: Record[str, dict[str, int]]) -> None:
        self.add(record.value)
    def add(self, payment: dict[str, int]) -> None:
        payment["cents"]

job = Job("payments", stages=[AddUp])
"""
Failed = tuple[Path, subprocess.CompletedProcess[str]]  # the folder, and what was on the screen
FAILED = 'payments.py", line 9, in add'


def entries(path: Path, event: str) -> list[dict[str, Any]]:
    """Return the log lines of an event."""
    lines = (json.loads(line) for line in path.read_text().splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Failed:
    """Run a job that a record breaks, until it is given up; return its folder and what was on the screen."""
    folder = tmp_path_factory.mktemp("failed")
    (folder / "payments.py").write_text(PAYMENTS)
    process = start(
        *("run", "payments.py", "--input", "payments=-", "--set", "restarts_max=1", "--set", "restart_backoff_ms=1"),
        cwd=folder,
        stdin=subprocess.PIPE,
    )
    out, err = process.communicate('{"dollars": 5}\n', timeout=2 * LIMIT_S)
    return folder, subprocess.CompletedProcess("run", process.returncode, out, err)


def test_the_screen_shows_where_the_code_failed(failed: Failed) -> None:
    """The traceback of the user's own code, without the lines of Grete: once when tried again, once at the end."""
    _, done = failed
    assert done.returncode == ExitCode.HALTED
    assert done.stdout.count(FAILED) == 1
    assert done.stderr.count(FAILED) == 1
    assert "KeyError: 'cents'" in done.stderr
    assert "/grete/" not in done.stdout + done.stderr


def test_the_log_has_the_traceback(failed: Failed) -> None:
    """The line of what ended the worker has it as a key of its own, beside the place of the record."""
    folder, _ = failed
    first, second = entries(folder / ".grete" / "payments" / "logs" / "worker-0.log", "crashed")
    assert FAILED in first["traceback"]
    assert first["traceback"] == second["traceback"]
    assert (first["job"], first["stage"], first["partition"], first["offset"]) == ("payments", "add-up", 0, 0)
    assert second["generation"] > first["generation"] > 0


CONFIGURED = """
import logging.config

logging.config.dictConfig({
    "version": 1,
    "disable_existing_loggers": True,
    "formatters": {"mine": {"format": '{"mine": "%(message)s"}'}},
    "handlers": {"out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "formatter": "mine"}},
    "root": {"level": "WARNING", "handlers": ["out"]},
})
MORE
"""


@pytest.mark.parametrize("more", ["", "logging.disable(logging.CRITICAL)", "logging.getLogger('grete').handlers = []"])
def test_a_configuration_of_logging_hides_no_end_of_a_worker(tmp_path: Path, more: str) -> None:
    """A service's own, as its module has it: the line of the end is there, of Grete's form, once."""
    path, log = tmp_path / "payments.py", EmbeddedLog(tmp_path / "job" / "log.db")
    path.write_text(CONFIGURED.replace("MORE", more) + PAYMENTS)
    log.create_topic("payments", 1)
    log.produce(0, 0, [ExternalRecord(TopicPartition("payments", 0), None, b'{"dollars": 5}', 1)])
    log.poll()
    log.close()
    with WorkerUnderTest(tmp_path / "job", reference=str(path), task="add-up-0") as worker:
        assert worker.ends() == ExitCode.FAILED
    lines = [json.loads(line) for line in worker.log_path.read_text().splitlines() if line.startswith("{")]
    assert not [line for line in lines if "mine" in line]  # its own handler gets its own lines
    assert [line["id"] for line in lines if line["id"] in ("worker-started", "crashed")] == [
        "worker-started",
        "crashed",
    ]
    (crashed,) = [line for line in lines if line["id"] == "crashed"]
    assert (crashed["job"], crashed["offset"], crashed["level"]) == ("payments", 0, "ERROR")
    assert "KeyError: 'cents'" in crashed["traceback"]


AT_ITS_END = """
import os, signal, sys, types

class Last:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
        kill(pid, number)

sys.modules["last"] = types.ModuleType("last")
sys.modules["last"].last = Last()
"""


@pytest.mark.usefixtures("started_by_exec")  # the end of the interpreter itself
def test_a_signal_that_comes_as_the_process_ends_hides_no_code(tmp_path: Path) -> None:
    """A supervisor stops a job while a worker that has failed is ending: it is told of the failure, not of a stop."""
    path, log = tmp_path / "payments.py", EmbeddedLog(tmp_path / "job" / "log.db")
    path.write_text(PAYMENTS + AT_ITS_END)
    log.create_topic("payments", 1)
    log.produce(0, 0, [ExternalRecord(TopicPartition("payments", 0), None, b'{"dollars": 5}', 1)])
    log.poll()
    log.close()
    with WorkerUnderTest(tmp_path / "job", reference=str(path), task="add-up-0") as worker:
        assert worker.ends() == ExitCode.FAILED


def test_loggers_that_a_thread_of_the_job_makes_meanwhile_stop_no_start() -> None:
    """Its import of a library in a thread adds loggers while Grete's are switched on again."""
    loggers = logging.root.manager.loggerDict
    before = set(loggers)

    class Busy(logging.Logger):
        """A logger that makes another one when it is switched on."""

        @property
        def disabled(self) -> bool:
            """Tell that it is off."""
            return True

        @disabled.setter
        def disabled(self, value: bool) -> None:
            if not value and "grete.busy" in loggers:
                logging.getLogger("grete.made")

    loggers["grete.busy"] = Busy("grete.busy")
    try:
        enable_own()
        assert "grete.made" in loggers
    finally:
        for name in set(loggers) - before:
            del loggers[name]


def test_lines_say_whose_they_are_and_ready_is_an_event_of_its_own(tmp_path: Path) -> None:
    """A worker has started before its tasks are ready: what was restored, up to where, as which generation."""
    log = word_log(tmp_path / "job")
    say(log, "a b", "a")
    with WorkerUnderTest(tmp_path / "job") as first:
        first.running()
        until_committed(log, 2)
    with WorkerUnderTest(tmp_path / "job", f"--state-directory={tmp_path / 'elsewhere'}") as second:
        status = second.running()
        until_committed(log, 2)
        second.leave()
        assert second.ends() == ExitCode.DONE
    lines = [json.loads(line) for line in second.log_path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["worker started", "ready", "worker done"]
    assert {(line["job"], line["stage"], line["partition"]) for line in lines} == {("word-count", "count-words", 0)}
    assert lines[0]["generation"] == 0  # nothing is claimed yet
    ready = lines[1]
    assert (ready["generation"], ready["position"]) == (status["generation"], {"sentences[0]": 2})
    assert ready["restored"] == status["counters"]["restored records"] >= 2
    assert ready["checkpoint_id"] > 0


TALKING = """
from grete import Input, Job, Record, Task, Topic, utf8

class Talk(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    def process(self, record: Record[str, str]) -> None:
        print("read", record.value)

job = Job("talk", stages=[Talk])
"""


def test_what_a_task_prints_is_on_the_screen(tmp_path: Path) -> None:
    """As in any program; and the summary's rate leaves the start of the workers out."""
    (tmp_path / "talk.py").write_text(TALKING)
    process = start("run", "talk.py", "--input", "lines=-", cwd=tmp_path, stdin=subprocess.PIPE)
    out, err = process.communicate("to be\nor not\n", timeout=2 * LIMIT_S)
    assert process.returncode == 0, err
    assert [line for line in out.splitlines() if line.startswith("read ")] == ["read to be", "read or not"]
    assert "worker started" not in out
    assert re.search(r"2 input records committed in [\d.]+ s \([\d,]+/s\), after a start of [\d.]+ s", out)
