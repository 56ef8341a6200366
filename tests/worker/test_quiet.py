"""A worker whose tasks have nothing to do: none of them has a turn, and what comes ends that at once."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grete import Input, Job, Record, Task, Topic, utf8
from grete.job.directory import JobDirectory
from grete.job.topics import create_topics
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.protocol.report import WorkerReport
from grete.settings import Settings
from grete.worker.pipes.control_pipe import ControlPipe, HostOrder, line_of
from grete.worker.process import reports
from grete.worker.process import worker as module
from grete.worker.process.task_loop import TaskLoop
from grete.worker.process.worker import OpenedLog, Worker

WAITS = 5  # in a row without a round: with a turn at each status there are none
HOUR_MS = 3_600_000


class Look(Task):
    """Reads lines."""

    lines = Input(Topic("lines", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


JOB = Job("quiet", stages=[Look], partitions=2)


class Scene:
    """A worker of one partition, and what its loop did: ``waits`` since the last round."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = JobDirectory(directory)
        log = self.directory.open_log()
        create_topics(JOB, log, fed=["lines"])
        settings = Settings(checkpoint_interval_ms=HOUR_MS, idle_checkpoint_interval_ms=HOUR_MS)
        self.worker = Worker(JOB, [0], OpenedLog(log), self.directory, settings)
        self.waits = 0
        self.steps: Iterator[None] = iter(())
        monkeypatch.setattr(module, "QUIET_MS", HOUR_MS)
        for each in (module, reports):
            monkeypatch.setattr(each, "STATUS_MS", 10)
        monkeypatch.setattr(TaskLoop, "go_round", self._counting_round(TaskLoop.go_round))
        monkeypatch.setattr(EmbeddedLog, "wait", self._counting_wait(EmbeddedLog.wait))

    def run(self, steps: Iterator[None]) -> None:
        """Run the worker; each time that it has become quiet, take the next step."""
        self.steps = steps
        with closing(self.worker):
            self.worker.run()
        assert next(steps, "all are done") == "all are done"

    def _counting_round(self, go_round: Any) -> Any:
        def counting(loop: TaskLoop) -> bool:
            self.waits = 0
            return bool(go_round(loop))

        return counting

    def _counting_wait(self, wait: Any) -> Any:
        def counting(log: EmbeddedLog, timeout_ms: float, *, answers: bool = True) -> bool:
            self.waits += 1
            if self.waits == WAITS:
                next(self.steps, None)
            return bool(wait(log, timeout_ms, answers=answers))

        return counting


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A worker that has not begun."""
    return Scene(tmp_path / "job", monkeypatch)


def test_tasks_without_anything_to_do_have_no_turns(scene: Scene) -> None:
    """A record, what the supervisor asks for and a stop are done while the next round is an hour away."""
    worker, statuses = scene.worker, list[WorkerReport]()
    worker.reports.send = statuses.append
    control, orders = os.pipe()
    worker.control = ControlPipe(control)

    def steps() -> Iterator[None]:
        with closing(scene.directory.open_log()) as other:
            other.produce(0, 0, [ExternalRecord(TopicPartition("lines", 0), b"k", b"v", 1)])
            other.poll()
        yield
        assert [driver.parts.runner.counts["in"] for driver in worker.drivers] == [1]
        assert statuses[-1].tasks[0].rests_ms is None  # it is not committed yet
        os.write(orders, line_of(HostOrder(partitions=(0, 1))))
        yield
        assert [driver.wiring.name for driver in worker.drivers] == ["look-0", "look-1"]
        worker.drain()
        yield
        assert all(driver.parts.inputs.event_time.drained for driver in worker.drivers)
        worker.stop()
        yield

    scene.run(steps())
    os.close(control)
    os.close(orders)
