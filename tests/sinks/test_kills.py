"""Worker processes killed or put to sleep between commit, application and what makes it visible (S2)."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grete.errors import ExitCode
from grete.job.directory import JobDirectory
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.state.pins.prepare import prepare
from grete.state.read.checkpoints.commits import last_commit
from tests.contracts.sinks import DeclaredWorld, files_world, postgres_world, sqlite_world
from tests.sinks.killed_worker import (
    ASKED,
    EARLY_POINTS,
    HOLD,
    KILL,
    NUMBERS,
    POINTS,
    RELEASING,
    SHOWN,
    job_writing,
    settings_of,
)
from tests.support.stopping import stop_without_locks
from tests.support.waiting import Patience, until

pytestmark = pytest.mark.chaos

LIMIT_S = 180.0  # of any wait: far beyond what a slow machine needs
BATCH = 20


class Story:
    """A job with a sink, its lives one after another, and the numbers fed so far."""

    def __init__(self, world: DeclaredWorld, directory: Path, sink_delivery: str) -> None:
        self.world = world
        self.target = world.target
        self.directory, self.state = directory / "job", directory / "state"
        self.fed = 0
        self._lives: list[subprocess.Popen[bytes]] = []
        self._output = directory / "worker.log"
        self.sink_delivery = sink_delivery
        job, job_directory = job_writing(self.target, sink_delivery), JobDirectory(self.directory)
        log = job_directory.open_log()
        assert isinstance(log, EmbeddedLog)
        self.log = log
        prepare(job, log, job_directory, settings_of(sink_delivery))

    def feed(self) -> None:
        """Append the next numbers."""
        numbers = range(self.fed, self.fed + BATCH)
        self.log.produce_with_meta(
            [ExternalRecord(TopicPartition("numbers", 0), None, NUMBERS.value.encode(n), 1) for n in numbers], {}
        )
        self.fed += BATCH

    def live(self, point: str = "", act: str = KILL, state: Path | None = None) -> "subprocess.Popen[bytes]":
        """Start a worker."""
        arguments = [self.target, str(self.directory), str(state or self.state), point, act, self.sink_delivery]
        with self._output.open("ab") as output:
            life = subprocess.Popen(
                [sys.executable, "-m", "tests.sinks.killed_worker", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=os.environ | {"PYTHONHASHSEED": "0"},  # deterministic workers are started with it
            )
        self._lives.append(life)
        return life

    def until_committed(self) -> None:
        """Wait until everything fed is part of a commit."""
        patience = Patience("a commit of all that was fed", self._output.read_text)
        while True:
            last = last_commit(self.log, TopicPartition("job.export.changelog", 0))
            if last is not None and last.commit.external and last.commit.external[0].offset >= self.fed:
                return
            patience.check()
            self.log.wait(100)

    def until_shown(self) -> None:
        """Wait until everything fed is in the sink."""
        shown = {"a": list(range(self.fed))}
        until(
            lambda: self.world.content() == shown,
            step=lambda: self.log.wait(20),
            saw=lambda: (self.world.content(), self._output.read_text()),
        )

    def ends(self, life: "subprocess.Popen[bytes]") -> int:
        """Wait for the end of a life; return its exit code."""
        try:
            return life.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._output.read_text()) from None

    def survive(self, points: Iterable[str]) -> None:
        """Kill a life at each point, every third one with its disk; two more lives, and each output is there once."""
        for number, point in enumerate(points):
            self.feed()
            assert self.ends(self.live(point)) == -signal.SIGKILL, point
            if number % 3 == 2:
                shutil.rmtree(self.state)
        for _ in range(2):
            self.feed()
            life = self.live()
            self.until_committed()
            life.send_signal(signal.SIGTERM)
            assert self.ends(life) == ExitCode.DONE
            assert self.world.content() == {"a": list(range(self.fed))}

    def close(self) -> None:
        """End what still lives."""
        for life in self._lives:
            life.kill()
            life.wait()
            for pipe in (life.stdin, life.stdout):
                assert pipe is not None
                pipe.close()
        self.log.close()


KINDS = ["files", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def story_of(request: pytest.FixtureRequest, tmp_path: Path, sink_delivery: str) -> Iterator[Story]:
    """Yield a job for the kind of sink that a fixture is asked for."""
    makers: dict[str, Callable[[], Any]] = {
        "files": lambda: files_world(tmp_path / "out"),
        "sqlite": lambda: sqlite_world(tmp_path / "numbers.db"),
        "postgres": lambda: postgres_world(request.getfixturevalue("postgres_database")),
    }
    made = Story(makers[request.param](), tmp_path, sink_delivery)
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """A job for each kind of sink, which gets checkpoints."""
    yield from story_of(request, tmp_path, "checkpoint")


@pytest.fixture(params=KINDS)
def early(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    """A deterministic job for each kind of sink, which gets outputs ahead of their checkpoints."""
    yield from story_of(request, tmp_path, "early")


@pytest.mark.timeout(600)  # eight starts of a worker, one after another
def test_killed_at_every_point_each_output_is_there_once(story: Story) -> None:
    """One life after another is killed at the next point, every third one loses its disk; two more repeat nothing."""
    story.survive(POINTS)


def test_a_worker_that_sleeps_over_its_application_changes_nothing(story: Story) -> None:
    """It wakes up after a successor has applied its checkpoint and later ones; it gives way, and nothing is doubled."""
    story.feed()
    point = SHOWN if Path(story.target).is_dir() else POINTS[0]  # a database waits for one in the middle
    zombie = story.live(point, HOLD)
    assert zombie.stdin is not None
    assert zombie.stdout is not None
    assert zombie.stdout.readline() == b"held\n"
    stop_without_locks(zombie, story.directory)
    successor = story.live(state=story.state.with_name("elsewhere"))
    story.feed()
    story.until_committed()
    successor.send_signal(signal.SIGTERM)
    assert story.ends(successor) == ExitCode.DONE
    before = story.world.content()
    zombie.stdin.write(b"\n")
    zombie.stdin.flush()
    zombie.send_signal(signal.SIGCONT)
    assert story.ends(zombie) == ExitCode.FENCED
    assert story.world.content() == before == {"a": list(range(story.fed))}


@pytest.mark.timeout(600)  # a start of a worker for each point and twice more
def test_killed_at_every_point_of_a_release_each_output_is_there_once(early: Story) -> None:
    """D5: one life after another dies at the next point, every third one loses its disk; two more repeat nothing."""
    early.feed()
    for number, point in enumerate(EARLY_POINTS):
        assert early.ends(early.live(point)) == -signal.SIGKILL, point
        if number % 3 == 2:
            shutil.rmtree(early.state)
        early.feed()
    for _ in range(2):
        early.feed()
        life = early.live()
        early.until_shown()
        life.send_signal(signal.SIGTERM)
        assert early.ends(life) == ExitCode.DONE
        assert early.world.content() == {"a": list(range(early.fed))}


@pytest.mark.parametrize("point", [ASKED, RELEASING])
def test_a_worker_that_sleeps_over_a_takeover_releases_nothing(early: Story, point: str) -> None:
    """D5: paused before a step towards its sink, it wakes up behind its successor's releases: the sink refuses it."""
    early.feed()
    zombie = early.live(point, HOLD)
    assert zombie.stdin is not None
    assert zombie.stdout is not None
    assert zombie.stdout.readline() == b"held\n"
    stop_without_locks(zombie, early.directory)
    successor = early.live(state=early.state.with_name("elsewhere"))
    early.until_shown()
    early.feed()
    early.until_shown()
    before = early.world.content()
    zombie.stdin.write(b"\n")
    zombie.stdin.flush()
    zombie.send_signal(signal.SIGCONT)
    assert early.ends(zombie) == ExitCode.FENCED
    assert zombie.stdout.read() in (b"Fenced\n", b"TransientError\n"), "how the step that was held ended"
    assert early.world.content() == before
    successor.send_signal(signal.SIGTERM)
    assert early.ends(successor) == ExitCode.DONE
    assert early.world.content() == before == {"a": list(range(early.fed))}
