"""Resources that a standby opens ahead for the worker that takes its place."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.errors import ConfigError
from grete.job.directory import JobDirectory
from grete.ports import Reads
from grete.settings import Settings
from grete.worker.life import opening
from grete.worker.life.opening import OpenedAhead, open_log, open_worker, reads_of
from grete.worker.pipes.status_pipe import StatusPipe
from tasks import deterministic
from tasks.word_count import job
from tests.worker.workers import word_log


@pytest.fixture
def pipe() -> Iterator[StatusPipe]:
    """The pipe to a supervisor that reads nothing yet."""
    reader, writer = os.pipe()
    yield StatusPipe(writer)
    os.close(reader)
    os.close(writer)


def test_a_worker_takes_the_log_that_was_opened_ahead(tmp_path: Path, pipe: StatusPipe) -> None:
    """It is opened once, however often it is asked for, and taken once."""
    word_log(tmp_path / "job")
    ahead, job_directory = OpenedAhead(), JobDirectory(tmp_path / "job")
    assert ahead.take((0,)) is None
    ahead.open(job, (0,), job_directory, Settings(), pipe)
    ahead.open(job, (0,), job_directory, Settings(), pipe)
    opened = ahead.take((0,))
    assert opened is not None
    worker = open_worker(job, (0,), job_directory, Settings(), opened=opened)
    assert worker.patience is opened.patience
    worker.close()
    assert ahead.take((0,)) is None


@pytest.mark.parametrize("why", ["old", "others"])
def test_what_was_opened_for_others_or_long_ago_is_of_no_use(
    tmp_path: Path, pipe: StatusPipe, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """A worker of more partitions has more to check, and what was found a minute ago may not be so any more."""
    word_log(tmp_path / "job")
    ahead = OpenedAhead()
    ahead.open(job, (0,), JobDirectory(tmp_path / "job"), Settings(), pipe)
    if why == "old":
        monkeypatch.setattr(opening, "KEPT_S", 0.0)
    assert ahead.take((0,) if why == "old" else (0, 1)) is None


def test_what_cannot_be_opened_ahead_is_left_to_the_worker(
    tmp_path: Path, pipe: StatusPipe, caplog: pytest.LogCaptureFixture
) -> None:
    """The standby goes on, and the worker ends by the error, where a supervisor sees it."""
    job_directory = JobDirectory(tmp_path / "job")
    (tmp_path / "job" / "log.db").mkdir()
    with pytest.raises(ConfigError):
        open_log(job, (0,), job_directory, Settings())
    ahead = OpenedAhead()
    ahead.open(job, (0,), job_directory, Settings(), pipe)
    assert "nothing was opened ahead" in caplog.text
    assert ahead.take((0,)) is None


def test_records_may_be_late_where_no_output_is_seen_before_its_checkpoint() -> None:
    """Exactly once, a fetch lasts a part of the interval; at least once, and for early outputs, it does not."""
    slow = Settings(checkpoint_interval_ms=1_000)
    assert reads_of(job, 8, slow) == Reads(8, late_ms=25)
    assert reads_of(job, 8, Settings(checkpoint_interval_ms=1_000, processing_guarantee="at-least-once")) == Reads(8)
    assert reads_of(deterministic.job, 8, slow) == Reads(8)
