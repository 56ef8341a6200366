"""The worked example of a log: PostgreSQL keeps the shipped contracts, and a job on it is right when it is killed."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from grete.ports import JobMetadata
from grete.testing.contracts import FencedLogContract, LogContract, LogWorld, MetadataContract
from tasks.external.postgres_log import PostgresLog
from tests.verification.chaos.test_kills import kill_some

pytestmark = pytest.mark.postgres

KEYED = """
from grete import Input, Job, Record, Store, Task, Topic, int64, utf8

class Count(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    counts = Store("counts", key=utf8, value=int64)
    def process(self, record: Record[str, str]) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + 1)

job = Job(NAME, stages=[Count], partitions=COUNT)
"""


class TestPostgresLog(LogContract):
    """Each clause of the contract of a log."""

    @pytest.fixture
    def world(self, postgres_database: str) -> LogWorld:
        """Return an empty database."""
        return LogWorld(lambda: PostgresLog(postgres_database))


class TestPostgresFences(FencedLogContract):
    """It compares and appends."""

    @pytest.fixture
    def world(self, postgres_database: str) -> LogWorld:
        """Return an empty database."""
        return LogWorld(lambda: PostgresLog(postgres_database))


class TestPostgresMetadata(MetadataContract):
    """Each clause of the contract of a job's metadata."""

    @pytest.fixture
    def begin(self, postgres_database: str) -> Iterator[Callable[[], JobMetadata]]:
        """Return a job's metadata; each connection ends with the test."""
        with ExitStack() as opened:
            yield lambda: opened.enter_context(closing(PostgresLog(postgres_database))).open_metadata("job")


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kills_on_postgres(postgres_database: str, tmp_path: Path) -> None:
    """Each input comes out once, in order, whatever dies where; and the state says the same."""
    kill_some(tmp_path / "job", address(postgres_database), 6)


def address(database: str) -> str:
    """Return the log in a database, as a command line names it."""
    return f"{PostgresLog.__module__}:{PostgresLog.__name__}:{database}"


@pytest.mark.chaos
def test_the_commands_know_a_log_of_ones_own(postgres_database: str, tmp_path: Path) -> None:
    """A job is looked at before it has run, runs, is forked, gets more partitions, and runs again."""

    def grete(*arguments: str) -> str:
        command = [sys.executable, "-m", "grete.cli", *arguments, f"--log={address(postgres_database)}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(file: str, name: str, partitions: int) -> None:
        (tmp_path / file).write_text(KEYED.replace("NAME", repr(name)).replace("COUNT", str(partitions)))

    def counts(file: str) -> list[str]:
        return sorted(grete("state", "scan", file, "counts").splitlines())

    write("keyed.py", "keyed", 2)
    write("forked.py", "forked", 2)
    (tmp_path / "lines.tsv").write_text("a\t1\nb\t1\na\t2\nc\t1\n")
    assert "this database has no log yet" in grete("doctor", "keyed.py", "--json")
    grete("run", "keyed.py", "--input=lines=lines.tsv", "--keys")
    assert "the last commits of 2 tasks can be read" in grete("doctor", "keyed.py", "--json")
    grete("fork", "keyed.py", "forked.py")
    grete("rescale", "keyed.py", "--partitions=4", "--assume-keyed")
    write("keyed.py", "keyed", 4)
    grete("run", "keyed.py", "--input=lines=lines.tsv", "--keys")
    assert counts("keyed.py") == ["a\t4", "b\t2", "c\t2"]
    assert counts("forked.py") == ["a\t2", "b\t1", "c\t1"]
