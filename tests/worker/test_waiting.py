"""A task that waits for another one says for whose checkpoint, and since when."""

import io
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from grete import Input, Job, Output, Record, Task, Topic, utf8
from grete.api.jobs.dropped import DroppedParts
from grete.cli.output.progress import Screen
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs import patience
from grete.protocol.ids import TopicPartition
from grete.protocol.report import WorkerReport
from grete.settings import Settings
from grete.worker.process import waiting
from grete.worker.process.worker import OpenedLog, Worker

BOTH = pytest.mark.parametrize("scene", ["aligned", "deterministic"], indirect=True)
WHAT = {"aligned": "next checkpoint", "deterministic": "stream"}
DATE = r"2\d\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
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


@dataclass
class Scene:
    """A job of two stages and two partitions, whose workers a test runs one at a time."""

    job: Job
    directory: JobDirectory

    def run(self, partition: int, until: Callable[[Worker, WorkerReport], bool]) -> None:
        """Run a worker until ``until`` says of what it reports that it may stop."""
        log = self.directory.open_log()
        create_topics(self.job, log)
        settings = Settings(checkpoint_interval_ms=20, shutdown_timeout_ms=1)
        worker = Worker(self.job, [partition], OpenedLog(log), self.directory, settings)

        def report(said: WorkerReport) -> None:
            if until(worker, said):
                worker.stop()

        worker.reports.send = report
        worker.run()
        worker.close()


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a job in the mode that the test is given; a wait is said at once, and that the log does not answer."""
    monkeypatch.setattr(waiting, "WAIT_MS", 1)
    monkeypatch.setattr(patience, "FIRST_S", 0)
    return Scene(Job("two", stages=[Split, Count], partitions=2, mode=request.param), JobDirectory(tmp_path / "job"))


def waits_of(said: WorkerReport) -> str:
    """Return the wait of the task behind both sources, "" for none; no other task waits for any."""
    assert all(task.waits is None for task in said.tasks if task.name != "count-0")
    return next(task.waits or "" for task in said.tasks if task.name == "count-0")


@BOTH
def test_a_task_behind_a_worker_that_is_away_names_it(
    scene: Scene, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two partitions one is not started: the task behind both waits for the source that is away, and only for it.

    It looks whether something has come that the log's client has not fetched.
    """
    looked = set[TopicPartition]()
    monkeypatch.setattr(Worker, "_look", lambda _, partition: looked.add(partition))
    caplog.set_level(logging.INFO, "grete")
    what = WHAT[scene.job.modes]
    wait = re.compile(rf"for \d+ s for the {what} of split-1 \(last: none yet\)")
    scene.run(0, lambda _, said: wait.fullmatch(waits_of(said)) is not None)
    logged = [each.__dict__ for each in caplog.records if each.getMessage() == "waits for other tasks"][-1]
    assert (logged["task"], logged["for"], logged["of"]) == ("count-0", what, {"split-1": "none yet"})
    assert looked == {TopicPartition(stream.topic, 0) for stream in scene.job.topology().streams}


@BOTH
def test_a_stage_that_was_dropped_keeps_its_number_in_names(scene: Scene) -> None:
    """A task that waits for one of a stage behind it is told that stage's name: by number, not by place."""
    what = WHAT[scene.job.modes]
    scene.job.pin({}, {}, DroppedParts(stages={0: ("before", scene.job.stages[0].mode)}))
    wait = re.compile(rf"for \d+ s for the {what} of split-1 \(last: none yet\)")
    scene.run(0, lambda _, said: wait.fullmatch(waits_of(said)) is not None)


@BOTH
def test_it_says_how_far_the_other_one_had_come(scene: Scene) -> None:
    """The worker that is away has run before: when its last checkpoint was, or up to when its stream is known."""

    def is_known(worker: Worker, said: WorkerReport) -> bool:
        """Whether split-1 has committed, and count-1 has read its marker, which leaves behind the commit."""
        [count] = [each for each in worker.drivers if each.wiring.name == "count-1"]
        is_read = any(t > 0 for _, t in count.core.inputs.reached_by_channel())
        return is_read and any(task.checkpoint_id > 0 for task in said.tasks if task.name == "split-1")

    scene.run(1, is_known)
    last = re.compile(rf"for \d+ s for the {WHAT[scene.job.modes]} of split-1 \(last: {DATE}\)")
    scene.run(0, lambda _, said: last.fullmatch(waits_of(said)) is not None)


@BOTH
def test_a_task_that_something_else_holds_up_waits_for_no_task(scene: Scene) -> None:
    """While the log does not answer, and while too much that it has sent is not answered, no other task is named."""
    silent: list[str] = []
    held_up: list[str] = []

    def until(worker: Worker, said: WorkerReport) -> bool:
        waits, [count] = waits_of(said), [each for each in worker.drivers if each.wiring.name == "count-0"]
        if not silent and waits:
            worker.patience.waits("the log", "")
        elif worker.patience.silent:
            silent.append(waits)
            worker.patience.answered("the log")
            count.parts.sends.pending.produced(1 << 30, time.monotonic() * 1_000)
        elif count.mode.held_up:
            held_up.append(waits)
        return len(held_up) == 3

    scene.run(0, until)
    assert silent == [""]
    assert not any(held_up[1:])  # the one before was perhaps held up later than its status was made


def test_the_screen_says_it_once_a_minute_and_when_it_is_over() -> None:
    """Not with each status, of which there are ten a second."""
    shown = io.StringIO()
    screen = Screen(Console(file=shown, width=200))
    waits = {"count-0": "for 60 s for the next checkpoint of split-1 (last: 2026-01-01 00:00:00 UTC)"}
    for _ in range(5):
        screen.waits(waits)
    screen.waits({})
    assert shown.getvalue().splitlines() == [f"count-0 waits {waits['count-0']}", "count-0 waits no longer"]
