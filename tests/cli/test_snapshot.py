"""`grete snapshot`: what it prints and refuses, while workers run, when it is killed, twice at once, and on Kafka."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grete.job.directory import JobDirectory
from grete.stores.snapshot_folder import SnapshotFolder
from grete.testing.broker import Broker
from tests.cli.test_kafka import Cluster
from tests.cli.test_run import grete, start
from tests.execution.killed_snapshots import TAKING
from tests.worker.workers import LIMIT_S, TASK, WorkerUnderTest, say, until_committed, word_log

JOB = "tasks.word_count"


class Words:
    """A folder in which the word count has run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.to = folder, folder / "to"
        self.directory = folder / "job"
        self.log = word_log(self.directory)
        self.said = 0
        self.say("to be or not to be")

    def say(self, *sentences: str, **settings: object) -> str:
        """Let a worker commit sentences; return its log."""
        say(self.log, *sentences)
        self.said += len(sentences)
        with WorkerUnderTest(self.directory, *(f"--set={name}={value}" for name, value in settings.items())) as worker:
            worker.running()
            until_committed(self.log, self.said)
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0
            return worker.log_path.read_text()

    def take(self, *options: str) -> str:
        """Take a snapshot."""
        return grete("snapshot", JOB, f"--directory={self.directory}", f"--to={self.to}", *options, cwd=self.folder)

    def refused(self, *arguments: str) -> str:
        """Run a command that is refused; return what it says."""
        process = start("snapshot", JOB, *arguments, cwd=self.folder, stdin=subprocess.DEVNULL)
        _, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 2, err
        return err

    def count(self, word: str) -> int:
        """Return the count of a word, as the store on this machine has it."""
        return int(grete("state", "get", JOB, "counts", word, f"--directory={self.directory}", cwd=self.folder))

    def snapshots(self) -> list[int]:
        """Return the checkpoints of all snapshots, the newest first."""
        folder = SnapshotFolder(str(self.to), "word-count")
        return [folder.manifest(TASK, name).checkpoint_id for name in folder.manifests(TASK)]


@pytest.fixture
def words(tmp_path: Path) -> Words:
    """Return it."""
    return Words(tmp_path)


def test_a_line_says_what_was_written_and_for_how_long_it_is_of_use(words: Words) -> None:
    """For people and for programs; the second time nothing is written, and the retention is the one of the setting."""
    line = words.take("--set=changelog_retention_ms=3600000")
    assert line.startswith(f"{TASK}\tcheckpoint ")
    assert "from its local store: 0.0 of 0.0 MiB written" in line
    found = json.loads(words.take("--json", "--set=changelog_retention_ms=3600000"))
    assert found["uploaded"] is None
    assert abs(found["of_use_until_ms"] - 3_600_000 - found["checkpoint_id"]) < 10_000
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(found["of_use_until_ms"] / 1000))
    assert f"of use until {until} (changelog_retention_ms), or longer" in line
    shutil.rmtree(words.directory / "state")
    assert "state taken from a snapshot" in words.say("to", snapshot_url=words.to)
    assert words.count("to") == 3


def test_old_snapshots_go(words: Words) -> None:
    """The newest ones stay, three by default."""
    for _ in range(4):
        words.say("and")
        words.take()
    assert len(before := words.snapshots()) == 3
    words.take("--keep=1")
    assert words.snapshots() == before[:1]


def test_mistakes_are_told(words: Words) -> None:
    """No folder is named, a partition that the job has not, a url of no known kind, a job that has not run."""
    where = f"--directory={words.directory}"
    assert "give --to URL, or the setting snapshot_url" in words.refused(where)
    assert "--partition 3: job 'word-count' has partitions 0 to 0" in words.refused(where, "--to=x", "--partition=3")
    assert "nowhere://x" in words.refused(where, "--to=nowhere://x")
    assert "no job has run" in words.refused("--directory=another", "--to=x")
    lock = JobDirectory(words.directory).lock_snapshot(TASK)
    assert lock > 0
    assert f"takes a snapshot of {TASK}" in words.refused(where, "--to=x")


STEPS = [(step, 0) for step in TAKING] + [
    ("before a file is written", 2),
    ("before a manifest is read or written", 1),
    ("within a file", 5),
]


@pytest.mark.parametrize(("step", "number"), STEPS)
def test_a_kill_leaves_the_snapshot_before_or_the_new_one(words: Words, step: str, number: int) -> None:
    """Never a part of one: a machine with an empty disk goes on from what there is; the next snapshot is whole."""
    words.take()
    words.say("to")
    old = words.snapshots()
    command = [sys.executable, "-m", "tests.execution.killed_snapshots", step, str(number), "snapshot", JOB]
    command += [f"--directory={words.directory}", f"--to={words.to}", "--keep=1"]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    shutil.rmtree(words.directory / "state")
    text = words.say("to", snapshot_url=words.to)
    assert "state taken from a snapshot" in text
    assert "cannot be used" not in text
    assert words.count("to") == 4
    assert "MiB written" in words.take("--keep=1")
    assert [newest := max(words.snapshots())] == words.snapshots()
    assert newest > old[0]
    assert not (words.directory / "snapshots" / TASK).exists()


def test_workers_run_meanwhile_and_two_take_snapshots_at_once(words: Words) -> None:
    """Each of them is whole: the newest has what was committed before it began. One may have no store of its own."""
    none = f"--state-directory={words.folder / 'none'}"
    with WorkerUnderTest(words.directory, "--set=checkpoint_interval_ms=20") as worker:
        worker.running()
        for _ in range(6):
            say(words.log, *["to"] * 50)
            words.said += 50
            until_committed(words.log, words.said)
            both = [
                start("snapshot", JOB, f"--directory={words.directory}", f"--to={words.to}", *more, cwd=words.folder)
                for more in ([], ["--partition=0", none])
            ]
            ended = [(process.communicate(timeout=LIMIT_S), process.returncode) for process in both]
            codes = sorted(code for _, code in ended)
            assert codes in ([0, 0], [0, 2]), ended  # the lock of a task: the second one is told, and does no harm
        worker.signal(signal.SIGTERM)
        assert worker.ends() == 0
    shutil.rmtree(words.directory / "state")
    assert "state taken from a snapshot" in words.say("to", snapshot_url=words.to)
    assert words.count("to") == 2 + 300 + 1


@pytest.mark.kafka
def test_a_new_machine_on_kafka_takes_snapshots(kafka_broker: Broker, tmp_path: Path) -> None:
    """Two partitions, a settings file, another job directory: sums go on, and no changelog is read as a whole.

    So a new standby.
    """
    cluster = Cluster(kafka_broker.bootstrap, tmp_path)
    cluster.make(cluster.orders, 2)
    (tmp_path / "grete.toml").write_text(f'snapshot_url = "folder"\n[log]\nlog = "{cluster.log}"\n')
    customers = [f"customer {number}" for number in range(30)]
    cluster.order(dict.fromkeys(customers, 2))
    grete("run", "totals.py", cwd=tmp_path)
    lines = grete("snapshot", "totals.py", cwd=tmp_path).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["total-0", "total-1"]
    assert all("from its local store" in line for line in lines)
    cluster.order(dict.fromkeys(customers, 3))
    grete("run", "totals.py", cwd=tmp_path)
    grete("run", "totals.py", "--directory=new", cwd=tmp_path)
    for partition in range(2):
        text = (tmp_path / "new" / "logs" / f"worker-{partition}.log").read_text()
        events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        (ready,) = [each for each in events if each["event"] == "ready"]
        assert ready["restored"] < 60
        assert "state taken from a snapshot" in [each["event"] for each in events]
    rows = [
        line.split("\t")
        for line in grete("state", "scan", "totals.py", "sums", "--directory=new", cwd=tmp_path).splitlines()
    ]
    assert {name: int(total) for name, total in rows} == dict.fromkeys(customers, 5)
    again = grete("snapshot", "totals.py", "--directory=third", "--partition=1", cwd=tmp_path).splitlines()
    assert ["from its changelog" in line or "there already" in line for line in again] == [True]
    standby = start("worker", "totals.py", "--partition=0", "--standby", "--directory=fourth", cwd=tmp_path)
    assert standby.stderr is not None
    said = list[str]()
    while not said or said[-1] != "standby has caught up":
        line = standby.stderr.readline()
        assert line, said
        said += [json.loads(line)["event"]] if line.startswith("{") else []
    standby.kill()
    standby.communicate()
    assert "state taken from a snapshot" in said
