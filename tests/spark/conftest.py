"""One real job with two moments in its history, and one Spark session for all tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from grete.feeds.folder import FolderFeed
from grete.job.directory import JobDirectory
from grete.settings import Settings
from grete.spark.session import local_session
from grete.state.read.checkpoints.snapshots import snapshots
from grete.state.read.local_reader import LocalReader
from grete.worker.supervisor.local_job import LocalJob
from tasks.inverted_index import Index, documents, job
from tests.spark import kept_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFERENCE = "tasks.inverted_index"
FILES = 30
IMPORTED = Path(__file__).parent / "imported"

State = dict[tuple[int, str], Any]  # (partition, key) → value


class FinishedJob(NamedTuple):
    """A job that ran, changed its documents, and ran on; the state of ``Index.words`` at both moments."""

    directory: Path
    first: int  # checkpoint
    at_first: State
    at_last: State


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """Run the job over a small folder, then again after two changes and a deletion."""
    root = tmp_path_factory.mktemp("finished")
    folder, directory = root / "docs", root / "job"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.txt").write_text(f"the words of document {number}, and the word {number % 7}")
    first, at_first = _run(folder, directory)
    (folder / "1.txt").write_text("another text")
    (folder / "2.txt").write_text("")
    (folder / "3.txt").unlink()
    _, at_last = _run(folder, directory)
    return FinishedJob(directory, first, at_first, at_last)


def _run(folder: Path, directory: Path) -> tuple[int, State]:
    job_directory = JobDirectory(directory)
    with LocalJob(job, REFERENCE, job_directory, Settings(checkpoint_interval_ms=50)) as local:
        feed = FolderFeed(local.metadata, documents.name, folder)
        for _ in feed.scan():
            local.poll(0)
        ends = local.ends()
        while not local.drained(ends):
            local.poll(20)
        local.stop()
        checkpoint_id = max(s.commit.checkpoint_id for s in snapshots(local.log, job) if s.task.startswith("index"))
    with LocalReader(job_directory.state_directory, job) as reader:
        return checkpoint_id, {
            (partition, key): (value.documents, value.occurrences)
            for partition in range(job.partitions)
            for key, value in reader.all(Index.words, partition)
        }


@pytest.fixture(scope="module", autouse=True)
def started_soon() -> Iterator[None]:
    """Let each Spark that is started in here begin with kept classes, and its Python processes with their imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(IMPORTED), prepend=os.pathsep)
        for name, value in kept_classes.submitted().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Return a session with two executor threads and real Python worker processes: one for all tests of a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(IMPORTED)
        for name, value in kept_classes.submitted().items():
            patch.setenv(name, value)
        session = local_session("local[2,3]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
