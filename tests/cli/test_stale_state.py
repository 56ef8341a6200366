"""`grete state` on a machine that has once had the worker: what is committed now is printed, not what was."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from grete.cli import command_line
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import commits
from tasks.word_count import job as word_count
from tests.support.stopping import stop_without_locks
from tests.worker.workers import TASK, WorkerUnderTest, say, until_committed, word_log

JOB = "tasks.word_count"


class Stale:
    """A folder whose local state was of use once: the worker went on in another directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.directory, self.elsewhere = folder / "job", folder / "elsewhere"
        self.log = word_log(self.directory)
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a command; return what it printed, and what it said beside it."""
        self._monkeypatch.setattr("sys.argv", ["grete", *arguments, f"--directory={self.directory}"])
        with pytest.raises(SystemExit) as ended:
            command_line()
        shown = self._capfd.readouterr()
        assert int(ended.value.code or 0) == code, shown
        return shown.out, shown.err

    def take_over(self, sentences: int) -> None:
        """Let a worker with another state directory commit; it ends before anything is read."""
        with WorkerUnderTest(self.directory, f"--state-directory={self.elsewhere}") as successor:
            successor.running()
            until_committed(self.log, sentences)
            successor.signal(signal.SIGTERM)
            successor.ends()


@pytest.fixture
def stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Stale]:
    """Yield the folder of a job."""
    made = Stale(tmp_path, monkeypatch, capfd)
    yield made
    made.log.close()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_directory_that_the_worker_has_left_does_not_answer(stale: Stale, end: signal.Signals) -> None:
    """Its state is of before the take-over: the changelog is read, and standard error says so."""
    say(stale.log, "a b")
    with WorkerUnderTest(stale.directory) as first:
        first.running()
        until_committed(stale.log, 1)
        assert stale("state", "get", JOB, "counts", "a")[0] == "1\n"
        first.signal(end)
        first.ends()
    say(stale.log, "a c")
    stale.take_over(2)
    shown, said = stale("state", "get", JOB, "counts", "a")
    assert shown == "2\n"
    assert f"{TASK}: read from its changelog: the state in" in said
    assert "and checkpoint" in said
    shown, said = stale("state", "scan", JOB, "counts")
    assert shown == "a\t2\nb\t1\nc\t1\n"
    assert said.count("read from its changelog") == 1


def test_a_worker_that_sleeps_through_a_take_over_does_not_answer(stale: Stale) -> None:
    """It holds the lock of its directory, and is not the owner any more."""
    say(stale.log, "a")
    with WorkerUnderTest(stale.directory) as first:
        first.running()
        until_committed(stale.log, 1)
        stop_without_locks(first.process, stale.directory)
        say(stale.log, "a")
        stale.take_over(2)
        assert stale("state", "get", JOB, "counts", "a")[0] == "2\n"


def test_a_worker_at_work_answers_from_its_store(stale: Stale) -> None:
    """Each read while it commits sees what was committed before, and nothing is said of changelogs."""
    with WorkerUnderTest(stale.directory, "--set=checkpoint_interval_ms=20") as worker:
        worker.running()
        for number in range(1, 6):
            say(stale.log, "a")
            until_committed(stale.log, number)
            assert stale("state", "get", JOB, "counts", "a") == (f"{number}\n", "")


def test_a_machine_without_the_state_reads_the_changelog(stale: Stale) -> None:
    """Also where a worker holds nothing but a lock: a store without a commit of this log does not answer."""
    say(stale.log, "a")
    stale.take_over(1)
    shown, said = stale("state", "get", JOB, "counts", "a")
    assert shown == "1\n"
    assert "there is no committed state of it in" in said


def test_what_was_committed_and_not_applied_is_read(stale: Stale, tmp_path: Path) -> None:
    """A store that lacks commits of its own worker, as a kill behind a commit leaves it, does not answer either."""
    state, copy = stale.directory / "state", tmp_path / "copy"
    say(stale.log, "a")
    with WorkerUnderTest(stale.directory) as first:
        first.running()
        until_committed(stale.log, 1)
        assert stale("state", "get", JOB, "counts", "a")[0] == "1\n"  # so it is applied
        stop_without_locks(first.process, stale.directory)
        shutil.copytree(state, copy)
        first.signal(signal.SIGCONT)
        say(stale.log, "a")
        until_committed(stale.log, 2)
        first.signal(signal.SIGKILL)
        first.ends()
    shutil.rmtree(state)
    copy.rename(state)
    assert stale("state", "get", JOB, "counts", "a")[0] == "2\n"


def test_a_checkpoint_that_never_was_is_refused(stale: Stale) -> None:
    """The error names the checkpoints that there are, also of a job of sources only; no empty answer is given."""
    say(stale.log, "a")
    stale.take_over(1)
    checkpoint_ids = [at.commit.checkpoint_id for at in commits(stale.log, all_wirings(word_count)[0])]
    assert stale("state", "get", JOB, "counts", "a", f"--checkpoint={checkpoint_ids[-1]}")[0] == "1\n"
    above = checkpoint_ids[-1] + 5
    between = next(v for v in range(checkpoint_ids[0], checkpoint_ids[-1]) if v not in checkpoint_ids)
    for never in (between, above):
        said = stale("state", "get", JOB, "counts", "a", f"--checkpoint={never}", code=2)[1]
        assert f"checkpoint {never} was not committed by a task of job 'word-count'" in said
        assert f"{checkpoint_ids[0]}, the last {checkpoint_ids[-1]}" in " ".join(said.split())


def test_records_are_counted_and_not_offsets(stale: Stale) -> None:
    """``topic read -n``: on the embedded log, too, where each offset is a record."""
    say(stale.log, "a b")
    stale.take_over(1)
    assert stale("topic", "read", JOB, "word-totals", "-n", "1")[0] == "0\t1\tb\t1\n"
