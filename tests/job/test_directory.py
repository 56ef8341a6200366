"""The place of a job, and how its code is found: every mistake is one clear error."""

import os
import sys
from pathlib import Path

import pytest

from grete.errors import ConfigError, GraphError
from grete.job.directory import JobDirectory, directory_of
from grete.job.loader import load_job
from grete.job.metadata import guarantee_entry
from grete.job.topics import create_topics
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.logs.embedded import EmbeddedLog
from grete.settings import Settings
from tasks.word_count import job

GOOD = """
from grete import Input, Job, Record, Task, Topic, utf8
class Read(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    def process(self, record: Record[str, str]) -> None: ...
job = Job("found", stages=[Read], partitions=3)
"""


def test_each_log_has_a_directory() -> None:
    """The job on a second cluster does not begin with the state of the first; where it is may be said."""
    addresses = [IN_DIRECTORY, LogAddress("kafka://a:9092"), LogAddress("kafka://b:9092")]
    found = [directory_of(job, None, address) for address in addresses]
    assert found[0] == Path(".grete/word-count")
    assert len({*found}) == 3
    assert found[1] == directory_of(job, None, addresses[1])  # the same one at the next start
    assert [directory_of(job, Path("here"), address) for address in addresses] == [Path("here")] * 3


def test_a_job_is_found_by_file_and_by_module(tmp_path: Path) -> None:
    """The two ways to name a job."""
    path = tmp_path / "a_job_in_a_file.py"
    path.write_text(GOOD)
    assert load_job(str(path)).name == "found"
    assert load_job("tasks.word_count") is job


@pytest.fixture(autouse=True)
def _search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what loading a file adds to the search path."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"must define job = Job\(...\): its name 'job' is bound to nothing"),
        ("job = 1", "bound to 1"),
        ("job = (", "SyntaxError"),
        ("x = 1\njob = 1 / 0", r"ZeroDivisionError: division by zero \(.*line 2\)"),
        ("import not_there_at_all", "No module named 'not_there_at_all'"),
        ("import sys\nsys.exit(7)", r"it ends the process, with 7 \(.*line 2\): write that below if __name__"),
    ],
)
def test_code_that_cannot_be_loaded_is_named(tmp_path: Path, text: str, words: str) -> None:
    """File, kind of error and line, without a traceback."""
    path = tmp_path / "broken_job.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_job(str(path))


def test_errors_of_the_graph_pass_as_they_are(tmp_path: Path) -> None:
    """They say by themselves what to change."""
    path = tmp_path / "graph_job.py"
    path.write_text(GOOD.replace("partitions=3", "partitions=0"))
    with pytest.raises(GraphError, match="partitions = 0: need 1"):
        load_job(str(path))


@pytest.mark.parametrize("name", ["no_such_module", "no_such_package.module", "missing.py", "tasks.missing", ""])
def test_names_that_lead_nowhere_are_refused(name: str) -> None:
    """The error says what a name looks like."""
    with pytest.raises(ConfigError):
        load_job(name)


def test_a_second_supervisor_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    """Its process id is what one needs to stop it; the lock ends with its holder."""
    job_directory = JobDirectory(tmp_path / "job")
    handle = job_directory.lock_supervisor()
    with pytest.raises(ConfigError, match=f"already has a supervisor \\(process {os.getpid()}\\)"):
        JobDirectory(tmp_path / "job").lock_supervisor()
    os.close(handle)
    os.close(job_directory.lock_supervisor())


def test_directories_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    """A file where the directory should be."""
    path = tmp_path / "file"
    path.write_text("")
    for bad in (path, path / "below"):
        with pytest.raises(ConfigError):
            JobDirectory(bad)


def test_a_job_keeps_its_partitions_and_its_guarantee(tmp_path: Path) -> None:
    """A job's log is bound to the partitions and the guarantee under which it was written."""
    job_directory = JobDirectory(tmp_path / "job")
    log = EmbeddedLog(job_directory.directory / "log.db")
    create_topics(job, log)
    create_topics(job, log)
    log.produce_with_meta([], guarantee_entry(log, job.name, Settings(), job.modes))
    assert guarantee_entry(log, job.name, Settings(), job.modes) == {}
    with pytest.raises(ConfigError, match="made with guarantee exactly-once, not at-least-once"):
        guarantee_entry(log, job.name, Settings(processing_guarantee="at-least-once"), job.modes)
    log.produce_with_meta([], {"guarantee": b"at-most-once"})  # as release 0.3 has pinned what is none now
    with pytest.raises(ConfigError, match=r"made with guarantee none, not at-most-once: .*write .*=none"):
        guarantee_entry(log, job.name, Settings(processing_guarantee="at-most-once"), job.modes)
    assert guarantee_entry(log, job.name, Settings(processing_guarantee="none"), job.modes) == {}
    path = tmp_path / "three_partitions.py"
    path.write_text(GOOD.replace('"found"', '"word-count"').replace('"lines"', '"sentences"'))
    with pytest.raises(ConfigError, match="topic sentences has 1 partitions, not 3"):
        create_topics(load_job(str(path)), log)
    log.close()


def test_state_can_be_on_another_disk(tmp_path: Path) -> None:
    """The state is a cache; the log stays where it is."""
    job_directory = JobDirectory(tmp_path / "job", tmp_path / "fast")
    assert job_directory.state("split-0") == tmp_path / "fast" / "split-0"
    assert job_directory.worker_log(3).parent == tmp_path / "job" / "logs"
