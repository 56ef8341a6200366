"""A task that waits for another one says for whose checkpoint, and since when."""

import io
import logging
import re
from pathlib import Path

import pytest
from rich.console import Console

from framework.cli.progress import Screen
from framework.errors import ExitCode
from framework.job.directory import JobDirectory
from framework.job.topics import create_topics
from framework.settings import Settings
from framework.worker import waiting
from framework.worker.worker import Worker
from grete import Input, Job, Output, Record, Task, Topic, utf8

WORDS = Topic("words", key=utf8, value=utf8)


class Split(Task):
    """Sends each record on."""

    lines = Input(Topic("lines", key=utf8, value=utf8))
    out = Output(WORDS)

    def process(self, record: Record[str, str]) -> None:
        """Send it on."""
        self.out.send(record.key, record.value)


class Count(Task):
    """Reads them."""

    words = Input(WORDS)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


def test_a_task_behind_a_worker_that_is_away_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two partitions one is not started: the task behind both waits for the source that is away, and only for it."""
    monkeypatch.setattr(waiting, "WAIT_MS", 1)
    caplog.set_level(logging.INFO, "grete")
    job = Job("two", stages=[Split, Count], partitions=2)
    directory = JobDirectory(tmp_path / "job")
    log = directory.open_log()
    create_topics(job, log)
    worker = Worker(job, 0, log, directory, Settings(checkpoint_interval_ms=20, shutdown_timeout_ms=1))
    told: list[str] = []

    def report(status: dict[str, object]) -> None:
        assert all(isinstance(task, dict) for task in status.values())
        told.extend(task["waits"] for task in status.values() if isinstance(task, dict) and task["waits"])
        if told:
            worker.stop()

    worker.report = report
    assert worker.run() is ExitCode.FAILED  # a stop cannot commit without the other one
    worker.close()
    assert re.fullmatch(r"for \d+ s for the next checkpoint of split-1 \(last: none yet\)", told[0])
    logged = next(each for each in caplog.records if each.getMessage() == "waits for other tasks")
    assert (logged.__dict__["task"], logged.__dict__["of"]) == ("count-0", {"split-1": "none yet"})


def test_the_screen_says_it_once_a_minute_and_when_it_is_over() -> None:
    """Not with each status, of which there are ten a second."""
    shown = io.StringIO()
    screen = Screen(Console(file=shown, width=200))
    waits = {"count-0": "for 60 s for the next checkpoint of split-1 (last: 2026-01-01 00:00:00 UTC)"}
    for _ in range(5):
        screen.waits(waits)
    screen.waits({})
    assert shown.getvalue().splitlines() == [f"count-0 waits {waits['count-0']}", "count-0 waits no longer"]
