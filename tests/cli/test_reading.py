"""Commands that read leave a job's directory, its sinks and its topics as they were, whatever they find there."""

import ast
import contextlib
import hashlib
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from grete.errors import ConfigError
from grete.logs.embedded import EmbeddedLog, EmbeddedReader
from grete.logs.kafka import KafkaLog, KafkaReader
from grete.logs.kafka.write.job_metadata import KafkaMetadataReader
from grete.ports import JobLog, JobLogReader
from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from tests.cli.test_kafka import Cluster
from tests.cli.test_run import ROOT, grete, start
from tests.support import forking
from tests.worker.workers import LIMIT_S

JOB = """
import msgspec

from grete import Files, Input, Job, Output, Record, Store, Table, Task, Topic, int64, json, utf8

lines = Topic("NAMElines", key=utf8, value=utf8)
words = Topic("NAMEwords", key=utf8, value=utf8)


class Row(msgspec.Struct):
    word: str
    line: str


class Split(Task):
    lines = Input(lines)
    out = Output(words)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.split():
            self.out.send(word, record.value)


class Write(Task):
    words = Input(words)
    counts = Store("counts", key=utf8, value=int64)
    files = Output(Files("words", utf8))
    rows = Output(Table("words.db", "words", json(Row), key=["word"]))
    out = Output(Topic("NAMEout", key=utf8, value=int64))

    def process(self, record: Record[str, str]) -> None:
        n = self.counts.get(record.key, 0) + 1
        self.counts.put(record.key, n)
        self.files.send(None, record.key)
        self.rows.send(None, Row(record.key, record.value))
        self.out.send(record.key, n)


job = Job("NAMEwriting", [Split, Write], partitions=2, mode="MODE")
"""

READING = [
    ["checkpoints", "job.py"],
    ["state", "get", "job.py", "counts", "be"],
    ["state", "get", "job.py", "counts", "be", "--checkpoint", "CHECKPOINT"],
    ["state", "scan", "job.py", "counts"],
    ["changelog", "tail", "job.py", "write", "0"],
    ["changelog", "verify", "job.py"],
    ["topic", "read", "job.py", "NAMEout"],
    ["topic", "read", "job.py", "NAMElines", "-n", "1"],
    ["incident", "job.py", "--task=write-0", "--output=OUTSIDE"],
]
VERIFY = ["check-determinism", "job.py"]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands print whole numbers."""
    monkeypatch.setenv("COLUMNS", "300")


def written(folder: Path, name: str = "", mode: str = "deterministic") -> None:
    """Write the job, its input and its database."""
    (folder / "job.py").write_text(JOB.replace("NAME", name).replace("MODE", mode))
    (folder / "input.txt").write_text("to be or\nnot to be\n" * 20)
    with contextlib.closing(sqlite3.connect(folder / "words.db")) as database:
        database.execute("CREATE TABLE words (word TEXT PRIMARY KEY, line TEXT)")


def last_checkpoint(folder: Path, *log: str) -> str:
    """Return a checkpoint that all tasks have, as `grete checkpoints` shows them."""
    rows = grete("checkpoints", "job.py", *log, cwd=folder).splitlines()[1:]
    return str(min(int(row.split()[2]) for row in rows))


def contents(folder: Path) -> dict[str, str]:
    """Return path → digest of every file; SQLite's shared index, in which readers note themselves, is left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        for path in sorted(folder.rglob("*"))
        if not path.name.endswith("-shm") and "__pycache__" not in path.parts
    }


@contextlib.contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Assert that the block makes, changes and deletes no file in a folder."""
    before = contents(folder)
    yield
    after = contents(folder)
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == set()


def filled(command: Sequence[str], name: str, checkpoint_id: str) -> list[str]:
    """Return a command with its names."""
    names = {"NAME": name, "CHECKPOINT": checkpoint_id, "OUTSIDE": f"{tempfile.mkdtemp()}/incident.zip"}
    return [reduce(lambda text, each: text.replace(*each), names.items(), word) for word in command]


KILLED = """
import os, signal, sys
from pathlib import Path

from grete.logs.embedded import EmbeddedLog

log = EmbeddedLog(Path(sys.argv[1]), create=False)
log.produce_with_meta([], {"left": b"in the WAL"})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module", params=["ended", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the job has run; its log was closed, or the last process that wrote to it was killed."""
    made = tmp_path_factory.mktemp(request.param)
    written(made)
    grete("run", "job.py", "--input", "lines=input.txt", cwd=made)
    if request.param == "killed":
        log = made / ".grete/writing/log.db"
        command = [*forking.TEXT, KILLED, str(log)]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
        assert log.with_name("log.db-wal").stat().st_size
    return made


@pytest.mark.parametrize("command", [*READING, VERIFY], ids=" ".join)
def test_a_command_that_reads_changes_no_file(folder: Path, command: list[str]) -> None:
    """After an end and after a kill: no lock, no directory, no WAL that is copied back, nothing at the sinks."""
    words = filled(command, "", last_checkpoint(folder))
    with unchanged(folder):
        grete(*words, cwd=folder)


def test_a_command_that_reads_makes_nothing_where_no_job_has_run(tmp_path: Path) -> None:
    """A mistyped directory stays missing."""
    written(tmp_path)
    with unchanged(tmp_path):
        for command in (*READING, VERIFY):
            asked = start(*filled(command, "", "1"), "--directory=other", cwd=tmp_path)
            _, err = asked.communicate(timeout=LIMIT_S)
            assert asked.returncode == 2
            assert "no job has run in other" in err


def test_a_reader_has_no_method_that_writes() -> None:
    """The log of a reading command has no method that makes a topic, sends, claims or trims."""

    def methods(of: type) -> set[str]:
        return {name for base in of.__mro__ if base is not object for name in vars(base) if not name.startswith("_")}

    writing = (methods(EmbeddedLog) | methods(KafkaLog) | methods(JobLog)) - methods(JobLogReader)
    assert {"create_topic", "send", "produce", "trim", "transactional", "poll", "produce_with_meta"} <= writing
    for reader in (EmbeddedReader, KafkaReader, KafkaMetadataReader):
        assert not writing & methods(reader) - {"connect", "meta_get", "meta_items", "offset_at", "share", "skipped"}


def test_an_embedded_reader_is_refused_by_sqlite_itself(tmp_path: Path) -> None:
    """Neither a clean file nor one with a WAL can be written through its connection."""
    log = EmbeddedLog(tmp_path / "log.db")
    log.create_topic("a", 1)
    for state in ("with a WAL", "clean"):
        if state == "clean":
            log.close()
        reader = EmbeddedReader(tmp_path / "log.db")
        assert reader.bounds(TopicPartition("a", 0)) == (0, 0)
        for statement in ("DELETE FROM meta", "INSERT INTO partition (topic, partition) VALUES ('b', 0)"):
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reader.file.sql.execute(statement)
        reader.close()
    with pytest.raises(ConfigError, match="there is no such log"):
        EmbeddedReader(tmp_path / "none" / "log.db")
    assert not (tmp_path / "none").exists()


def test_the_modules_of_reading_commands_open_no_log_to_write() -> None:
    """Each gets its log from ``NamedJob.read``; `topic write`, beside `topic read`, is no reading command."""
    for module in ("check_determinism", "checkpoints", "changelog", "topic", "state", "incident"):
        tree = ast.parse((ROOT / "framework" / "cli" / "commands" / f"{module}.py").read_text())
        tree.body = [each for each in tree.body if getattr(each, "name", "") != "topic_write"]
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert not names & {"open_log", "open_address", "JobDirectory", "Log", "JobLog"}
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_named(node.value)}
        assert "read" in used
        assert not used & {"write", "change", "target"}


def _is_named(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "named"


def cluster_state(admin: AdminClient, prefix: str) -> dict[str, Any]:
    """Return the ends of the topics of one test, and the consumer groups of its that have positions."""
    topics = {name: each for name, each in admin.list_topics(timeout=LIMIT_S).topics.items() if name.startswith(prefix)}
    partitions = [KafkaPartition(name, number) for name, each in topics.items() for number in each.partitions]
    found: dict[str, Any] = {}
    for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
        answers = admin.list_offsets(dict.fromkeys(partitions, spec))
        for at, answer in answers.items():
            found[f"{at.topic}[{at.partition}] {type(spec).__name__} {spec._value}"] = answer.result().offset
    groups = admin.list_consumer_groups().result().valid
    found["groups"] = sorted(group.group_id for group in groups if group.group_id.startswith(prefix))
    found["all groups"] = sorted(group.group_id for group in groups if group.group_id.startswith("grete"))
    return found


@pytest.mark.kafka
def test_a_command_that_reads_changes_no_topic(kafka_broker: Broker, tmp_path: Path) -> None:
    """No topic is made, no end moves, no consumer group is made, and no directory either."""
    cluster = Cluster(kafka_broker.bootstrap, tmp_path)
    name = f"{cluster.name}-"
    written(tmp_path, name)
    cluster.make(f"{name}lines", 2)
    log = f"--log={cluster.log}"
    grete("run", "job.py", "--input", f"{name}lines=input.txt", log, cwd=tmp_path)
    checkpoint_id = last_checkpoint(tmp_path, log)
    topics = cluster_state(cluster.admin, cluster.name)
    elsewhere = [*filled(READING[1], name, checkpoint_id), "--directory=other"]  # a machine without state
    for command in (*(filled(command, name, checkpoint_id) for command in (*READING, VERIFY)), elsewhere):
        with unchanged(tmp_path):
            grete(*command, log, cwd=tmp_path)
        assert cluster_state(cluster.admin, cluster.name) == topics, command
