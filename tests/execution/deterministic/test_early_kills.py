"""Files and tables that get outputs ahead of their checkpoints, from real workers that are killed (D5)."""

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from grete import Job
from grete.job.directory import JobDirectory
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import Log
from grete.testing.broker import Broker
from tests.execution.deterministic import words
from tests.execution.deterministic.reference import expected
from tests.execution.deterministic.test_kills import run_with_kills, split, the_reference_is_outside

pytestmark = [pytest.mark.chaos, pytest.mark.postgres]

DDL = "CREATE TABLE counted (word TEXT NOT NULL, value TEXT NOT NULL)"
JOB = str(Path(__file__).with_name("words_to_sinks.py"))
Rows = dict[int, list[tuple[str, str]]]  # of each task, in the order of its counts


class Sinks:
    """A directory and two databases, named in the environment of the job."""

    def __init__(self, directory: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self.sqlite, self.server = directory / "out", directory / "rows.db", server
        monkeypatch.setenv("WORDS_FILES", str(self.files))
        monkeypatch.setenv("WORDS_SQLITE", str(self.sqlite))
        monkeypatch.setenv("WORDS_SERVER", server)
        self._in_sqlite(DDL)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(DDL)

    def _in_sqlite(self, statement: str) -> list[Any]:
        connection = sqlite3.connect(self.sqlite, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()

    def lines(self, task: int) -> list[tuple[str, str]]:
        """Return the lines in the files of a task, in the order of their names; each tells which numbers it has."""
        names = sorted(path.name for path in self.files.glob("*.jsonl") if path.name.startswith(f"part-count-{task}-"))
        found: list[tuple[str, str]] = []
        for name in names:
            first, last = (int(number) for number in name.split("-")[4:6])
            rows = [msgspec.json.decode(line) for line in (self.files / name).read_bytes().splitlines()]
            # the task sends each row to three sinks, to the files first
            assert (first, last) == (3 * len(found) + 1, 3 * (len(found) + len(rows))), name
            found += [(row["word"], row["value"]) for row in rows]
        return found

    def tables(self) -> list[list[tuple[str, str]]]:
        """Return the rows of both databases."""
        with psycopg.connect(self.server, autocommit=True) as connection:
            rows = connection.execute("SELECT word, value FROM counted").fetchall()
        return [self._in_sqlite("SELECT word, value FROM counted"), rows]

    def hold_the_reference(self, log: Log, job: Job) -> None:
        """Check that each sink holds each output of a run without failures once; so does the topic."""
        wanted: Rows = {
            task: [(each.key.decode(), each.value.decode()) for each in records]
            for task, records in expected(log, job, split).items()
        }
        assert {task: self.lines(task) for task in wanted} == wanted
        everything = sorted(row for rows in wanted.values() for row in rows)
        assert [sorted(rows) for rows in self.tables()] == [everything, everything]
        the_reference_is_outside(log, job)


@pytest.fixture
def sinks(tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> Sinks:
    """Empty sinks."""
    return Sinks(tmp_path, postgres_database, monkeypatch)


@pytest.mark.parametrize("checkpoint_interval_ms", [50, 2_000])
def test_killed_workers_release_each_output_once(tmp_path: Path, sinks: Sinks, checkpoint_interval_ms: int) -> None:
    """D5: whatever was killed, with many commits and with few: files and tables hold what the decisions make."""
    job_directory = JobDirectory(tmp_path / "job", address=IN_DIRECTORY)
    how: dict[str, Any] = {"sink_delivery": "early", "checkpoint_interval_ms": checkpoint_interval_ms}
    run_with_kills(JOB, job_directory, sinks.hold_the_reference, "transactional", **how)


@pytest.mark.kafka
def test_the_same_on_kafka(tmp_path: Path, sinks: Sinks, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """D5: the log is Kafka; the sinks are the same."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    monkeypatch.delitem(sys.modules, words.__name__)  # the job's file imports it again, with the names of this run
    job_directory = JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    run_with_kills(JOB, job_directory, sinks.hold_the_reference, sink_delivery="early")
