"""`grete run` and what reads after it: real processes, as a person types them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from grete.cli import command_line
from grete.job.loader import load_job
from grete.logs.embedded import EmbeddedLog
from grete.protocol.ids import TopicPartition
from grete.state.read.local_reader import LocalReader
from tests.support.waiting import bounded, pause, until
from tests.worker.workers import LIMIT_S, WorkerUnderTest

ROOT = Path(__file__).parents[2]

TWO_STAGES = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
documents = Topic("documents", key=utf8, value=utf8)
lines = Topic("lines", key=utf8, value=utf8)

class Split(Task):
    texts = Input(documents)
    out = Output(lines)
    def process(self, record: Record[str, str | None]) -> None:
        self.out.send(record.key, record.value)

class Measure(Task):
    texts = Input(lines)
    sizes = Store("sizes", key=utf8, value=int64)
    def process(self, record: Record[str, str | None]) -> None:
        if record.value is None:
            self.sizes.delete(record.key)
        else:
            self.sizes.put(record.key, len(record.value))

job = Job("sizes", stages=[Split, Measure])
"""

WINDOWED = """
from grete import Input, Job, Output, Record, Task, Topic, TumblingWindow, Window, int64, utf8

class Count(Task):
    lines = Input(Topic("lines", key=utf8, value=utf8))
    minute = TumblingWindow("minute", 60_000, key=utf8, value=int64)
    out = Output(Topic("counts", key=utf8, value=int64))
    def process(self, record: Record[str, str]) -> None:
        self.minute.update(record.key, record.timestamp, lambda n: (n or 0) + 1)
    def on_window(self, window: Window[str, int]) -> None:
        self.out.send(window.key, window.value)

job = Job("windowed", stages=[Count], partitions=2)
"""
PASS = """
class Pass(Task):
    lines = Input(Topic("given", key=utf8, value=utf8))
    out = Output(Topic("lines", key=utf8, value=utf8))
    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, record.value)

class Count"""
WINDOWED_BEHIND = WINDOWED.replace("\nclass Count", PASS).replace("[Count]", "[Pass, Count]")


def start(*arguments: str, cwd: Path, module: str = "grete.cli", **options: object) -> "subprocess.Popen[str]":
    """Start a command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]  # options go through untyped
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def grete(*arguments: str, cwd: Path, stdin: str = "", module: str = "grete.cli") -> str:
    """Run a command to its good end; return what it printed."""
    process = start(*arguments, cwd=cwd, stdin=subprocess.PIPE, module=module)
    out, err = process.communicate(stdin, timeout=2 * LIMIT_S)
    assert process.returncode == 0, (out, err)
    return out


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the word count has run."""
    folder = tmp_path_factory.mktemp("words")
    out = grete("run", "tasks.word_count", "--input", "sentences=-", cwd=folder, stdin="so it\nso\n\x1b[2J\n")
    assert "all input is processed; 3 input records" in out
    assert "grete state scan tasks.word_count count-words/counts" in out
    return folder


class Shell:
    """Runs reading commands in this process, in the folder of the word count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.errors = ""  # of the last command

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run a command; return what it printed."""
        self._monkeypatch.setattr(sys, "argv", ["grete", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line()
        assert int(ended.value.code or 0) == code
        printed = self._capsys.readouterr()
        self.errors = printed.err
        return printed.out


@pytest.fixture
def shell(words: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Return a shell in the folder."""
    monkeypatch.chdir(words)
    return Shell(monkeypatch, capsys)


def test_state_can_be_read(shell: Shell) -> None:
    """Keys and values by the store's serdes; nothing that could steer a terminal comes through."""
    assert shell("state", "get", "tasks.word_count", "counts", "so") == "2\n"
    assert shell("state", "scan", "tasks.word_count", "counts") == "\\x1b[2J\t1\nit\t1\nso\t2\n"
    assert shell("state", "scan", "tasks.word_count", "counts", "--prefix", "i") == "it\t1\n"


def test_a_key_that_is_not_there_exits_1(shell: Shell) -> None:
    """For scripts; people read on standard error that it is not there."""
    assert shell("state", "get", "tasks.word_count", "counts", "nothing", code=1) == ""
    assert shell.errors == "grete: store counts has no key 'nothing'\n"


def test_outputs_can_be_read(shell: Shell) -> None:
    """The topic that the job writes, decoded by the job's serdes; and the one it reads."""
    lines = shell("topic", "read", "tasks.word_count", "word-totals").splitlines()
    assert lines == ["0\t0\tso\t1", "0\t1\tit\t1", "0\t2\tso\t2", "0\t3\t\\x1b[2J\t1"]
    assert shell("topic", "read", "tasks.word_count", "sentences", "-n", "2").startswith("0\t1\tnull\tso\n")
    shell("topic", "read", "tasks.word_count", "nothing", code=2)


def test_changelogs_can_be_read_and_verified(shell: Shell) -> None:
    """Claim, data and commit are told apart; a restore would find the log in order."""
    tail = shell("changelog", "tail", "tasks.word_count", "count-words", "0", "-n", "1000")
    assert {line.split("\t")[4] for line in tail.splitlines()} == {"claim", "data", "commit"}
    assert "count-words-0\tok\t" in shell("changelog", "verify", "tasks.word_count")
    shell("changelog", "tail", "tasks.word_count", "count-words", "1", code=2)


def test_checkpoints_are_shown(shell: Shell) -> None:
    """Each task's last commit."""
    shown = shell("checkpoints", "tasks.word_count")
    assert "count-words-0" in shown
    assert "sentences[0] 3 of 3" in shown


def test_a_second_run_goes_on_from_the_first(words: Path, shell: Shell) -> None:
    """State and positions are kept: what was counted is not counted again."""
    grete("run", "tasks.word_count", "--input", "sentences=-", cwd=words, stdin="so\n")
    assert shell("state", "get", "tasks.word_count", "counts", "so") == "3\n"


@pytest.fixture
def following(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Yield a run that follows a folder; it is killed at the end, if it is still there."""
    (tmp_path / "sizes.py").write_text(TWO_STAGES)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a").write_text("four")
    process = start("run", "sizes.py", "--input-dir", "docs", "--follow", cwd=tmp_path)
    yield process
    process.kill()
    process.communicate()


def sizes(folder: Path) -> dict[str, int]:
    """Return the sizes that the job has committed, read beside its workers."""
    job = load_job(str(folder / "sizes.py"))
    try:
        with LocalReader(folder / ".grete" / "sizes" / "state", job) as reader:
            return dict(reader.all(reader.store("sizes")))
    except Exception as error:  # noqa: BLE001  # not there yet, or just being made
        return {"error": len(str(error))}


def until_sizes(folder: Path, expected: dict[str, int]) -> None:
    """Wait until the state is as expected."""
    step = partial(pause, 0.05)  # each look opens the state: the workers need the processor
    until(lambda: sizes(folder) == expected, f"the sizes {expected}", step=step, saw=lambda: sizes(folder))


def test_following_a_folder(
    following: "subprocess.Popen[str]", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edits and deletions go through both stages; a closed terminal ends it gracefully; nothing is done twice."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    until_sizes(tmp_path, {"a": 4})
    second = start("run", "sizes.py", cwd=tmp_path)
    _, error = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 2
    assert f"already has a supervisor (process {following.pid})" in error
    (tmp_path / "docs" / "b").write_text("seven..")
    (tmp_path / "docs" / "a").write_text("fifteen letters")
    until_sizes(tmp_path, {"a": 15, "b": 7})
    (tmp_path / "docs" / "b").unlink()
    until_sizes(tmp_path, {"a": 15})
    under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # then a closed terminal ends nothing
    following.send_signal(signal.SIGTERM if under_nohup else signal.SIGHUP)
    out, error = following.communicate(timeout=LIMIT_S)
    assert (following.returncode, error) == (0, "")
    assert "sizes: stopped" in out
    again = grete("run", "sizes.py", "--input-dir", "docs", cwd=tmp_path)
    assert "read: 1 unchanged" in again or "read: 1 touched" in again
    assert "0 input records" in again


TIMED = """
import time
from grete import Input, Job, Output, Record, Task, Topic, utf8
lines = Topic("lines", key=utf8, value=utf8)
stamped = Topic("stamped", key=utf8, value=utf8)
class Stamp(Task):
    mode = "deterministic"
    lines = Input(lines)
    out = Output(stamped)
    def process(self, record: Record[str, str]) -> None:
        self.out.send("x", f"{time.time()}")
job = Job("stamping", stages=[Stamp], partitions=2)
"""


def test_a_line_that_may_not_be_deterministic_is_shown_once(tmp_path: Path) -> None:
    """On the screen, not only in the logs of the workers, and once though two workers look at it."""
    (tmp_path / "stamping.py").write_text(TIMED)
    out = grete("run", "stamping.py", "--input", "lines=-", cwd=tmp_path, stdin="a\n")
    (said,) = [line for line in out.splitlines() if "time.time" in line]
    assert said.startswith("stamp must be deterministic, and may not be: stamping, line 11: ")
    assert "; instead: " in said


def test_draining_does_not_wait_for_idle_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two partitions is empty: without --drain, the command would wait an hour for it."""
    monkeypatch.setenv("GRETE_EVENT_TIME_IDLE_MS", "3600000")
    (tmp_path / "job.py").write_text(WINDOWED)
    out = grete("run", "job.py", "--drain", "--input", "lines=-", "--keys", cwd=tmp_path, stdin="ann\tx\n")
    assert "draining: firing what waits for a later record (1 timer)" in out
    assert "ann\t1" in grete("topic", "read", "job.py", "counts", cwd=tmp_path)


def test_a_run_whose_last_workers_fail_does_not_say_that_all_is_processed(tmp_path: Path) -> None:
    """A worker may fail as late as in its stop: the exit code is 1, and the last line is no praise."""
    failing = "    def close(self) -> None:\n        raise OSError('the disk is gone')\n\njob ="
    (tmp_path / "job.py").write_text(WINDOWED.replace("\njob =", failing))
    options = ("--drain", "--input", "lines=-", "--keys")
    process = start("run", "job.py", *options, cwd=tmp_path, stdin=subprocess.PIPE)
    out, err = process.communicate("ann\tx\n", timeout=2 * LIMIT_S)
    assert process.returncode == 1, (out, err)
    assert "the disk is gone" in out
    assert "its last outputs may not be written" in out
    assert "all input is processed" not in out


@pytest.mark.parametrize("how", [[], ["--drain"]], ids=["run", "drain"])
def test_the_end_does_not_wait_for_the_idle_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: list[str]
) -> None:
    """Sources that have told that they are idle put further checkpoints off, here for an hour: none is waited for."""
    monkeypatch.setenv("GRETE_EVENT_TIME_IDLE_MS", "200")
    monkeypatch.setenv("GRETE_IDLE_CHECKPOINT_INTERVAL_MS", "3600000")
    (tmp_path / "job.py").write_text(WINDOWED_BEHIND)
    grete("run", "job.py", *how, "--input", "given=-", "--keys", cwd=tmp_path, stdin="ann\tx\nbob\ty\n")
    assert ("ann\t1" in grete("topic", "read", "job.py", "counts", cwd=tmp_path)) == bool(how)


def test_many_partitions_run_in_few_processes(tmp_path: Path) -> None:
    """And are drained as those with a process of their own."""
    (tmp_path / "job.py").write_text(WINDOWED.replace("partitions=2", "partitions=16"))
    records = "".join(f"{number % 40}\tx\n" for number in range(200))
    options = ("--drain", "--processes", "2", "--input", "lines=-", "--keys")
    grete("run", "job.py", *options, cwd=tmp_path, stdin=records)
    assert (
        sum(int(row.split()[-1]) for row in grete("topic", "read", "job.py", "counts", cwd=tmp_path).splitlines())
        == 200
    )
    assert sorted(path.name for path in tmp_path.glob(".grete/*/logs/*")) == ["worker-0.log", "worker-1.log"]


def claimed(directory: Path) -> bool:
    """Return whether a worker of the job in this folder has claimed count-0: its changelog begins with the claim."""
    if not (directory / "log.db").exists():
        return False
    with closing(EmbeddedLog(directory / "log.db")) as log:
        changelog = TopicPartition("windowed.count.changelog", 0)
        return log.partitions(changelog.topic) is not None and log.bounds(changelog)[1] > 0


def test_a_run_whose_partition_another_process_takes_fails(tmp_path: Path) -> None:
    """It cannot see how far that one comes, so it neither waits for it nor says that all is processed."""
    (tmp_path / "job.py").write_text(WINDOWED)
    options = ("--processes=1", "--input", "lines=-", "--keys")
    process = start("run", "job.py", *options, cwd=tmp_path, stdin=subprocess.PIPE)
    directory = tmp_path / ".grete" / "windowed"
    until(lambda: claimed(directory) or process.poll() is not None, "the run's claim of its partition")
    assert process.poll() is None, process.communicate()
    other = f"--state-directory={tmp_path / 'other'}"
    with WorkerUnderTest(directory, other, reference=str(tmp_path / "job.py"), task="count-0") as thief:
        thief.running()
        with bounded("the command to end"):
            out, err = process.communicate("".join(f"{number}\tx\n" for number in range(20)))
    assert process.returncode == 3, (out, err)
    assert "another process has taken" in err
    assert "all input is processed" not in out
