"""Code that is deployed, and taken back before it has committed anything: the state is that of the code of before.

A start pins its definition, and it binds from the first commit on. The way back that a halt names is walked with real
workers, killed by SIGKILL.
"""

import signal
from contextlib import closing
from pathlib import Path

import pytest

from grete.errors import ConfigError, ExitCode
from grete.logs.embedded import EmbeddedLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from tests.cli.test_plan import plan
from tests.cli.test_state_commands import grete
from tests.support.intervals import just_begun_ms
from tests.support.waiting import until
from tests.worker.workers import WorkerUnderTest

OLD = """
from dataclasses import dataclass, replace
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, json, utf8

@dataclass(frozen=True)
class Total:
    cents: int = 0

payments = Topic("payments", key=utf8, value=int64)
totals = Topic("totals", key=utf8, value=json(Total))

class AddUp(Task):
    payments = Input(payments)
    sums = Store("sums", key=utf8, value=json(Total))
    out = Output(totals)

    def process(self, record: Record[str, int]) -> None:
        before = self.sums.get(record.key, Total())
        after = replace(before, cents=before.cents + record.value)
        self.sums.put(record.key, after)
        self.out.send(record.key, after)

job = Job("add-up", stages=[AddUp], mode="MODE")
"""
FIELD = ("cents: int = 0", "cents: int = 0\n    count: int = 0")
NEW = (FIELD, ("cents=before.cents + record.value", "cents=before.cents + record.value, count=before.count + 1"))
BEHIND = (
    ("    payments = Input(payments)", '    payments = Input(Topic("given", key=utf8, value=int64))'),
    ("stages=[AddUp]", "stages=[Forward, AddUp]"),
    (
        "class AddUp",
        """class Forward(Task):
    payments = Input(payments)
    out = Output(Topic("given", key=utf8, value=int64))

    def process(self, record: Record[str, int]) -> None:
        self.out.send(record.key, record.value)

class AddUp""",
    ),
)
OTHER = (("cents: int = 0", "cents: int = 0\n    last: int = 0"),)
MODES = ("aligned", "deterministic")


def slow() -> str:
    """Return an option with which no commit comes by itself."""
    return f"--set=checkpoint_interval_ms={just_begun_ms()}"


@pytest.fixture(autouse=True)
def _one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deterministic worker that is started by hand asks for it."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")


class Deployed:
    """The job add-up in a directory: its old code has processed and committed one payment."""

    def __init__(self, folder: Path, mode: str, *all_have: tuple[str, str], run: bool = True) -> None:
        """``all_have``: changes of each of its codes; ``run``: whether the old one has."""
        self.folder, self.mode, self.directory, self._all_have = folder, mode, folder / "job", all_have
        self.old, self.new, self.other = self.code("old"), self.code("new", *NEW), self.code("other", *OTHER)
        if not run:
            return
        with WorkerUnderTest(self.directory, reference=self.old, task="add-up-0") as worker:
            worker.running()
            self.pay(1)
            worker.signal(signal.SIGTERM)
            assert worker.ends() == 0
        assert self.run(self.old) == 0

    def code(self, name: str, *changes: tuple[str, str]) -> str:
        """Write the job with other words in it; return its path."""
        text = OLD.replace("MODE", self.mode)
        for old, new in (*self._all_have, *changes):
            assert old in text
            text = text.replace(old, new)
        (self.folder / f"{name}.py").write_text(text)
        return str(self.folder / f"{name}.py")

    def pay(self, *cents: int) -> None:
        """Append payments."""
        with closing(EmbeddedLog(self.directory / "log.db")) as log:
            partition = TopicPartition("payments", 0)
            log.produce_with_meta([ExternalRecord(partition, b"ann", each.to_bytes(8, "big"), 1) for each in cents], {})

    def run(self, reference: str) -> int:
        """Run code over all payments; return the exit code."""
        try:
            grete("run", reference, f"--directory={self.directory}")
        except AssertionError:
            return 1
        return 0

    def killed(self, reference: str, *, outputs: int | None) -> None:
        """Start code, and kill it when that number of outputs are visible; None: when it has begun."""
        with WorkerUnderTest(self.directory, slow(), reference=reference, task="add-up-0") as worker:
            worker.running()
            with closing(EmbeddedLog(self.directory / "log.db")) as log:
                if outputs is not None:
                    totals = TopicPartition("totals", 0)
                    until(lambda: log.bounds(totals)[1] >= outputs, step=lambda: log.wait(100))
            worker.signal(signal.SIGKILL)
            worker.ends()

    def sums(self, reference: str) -> str:
        """Return the content of the store, as it is printed."""
        return grete("state", "scan", reference, "sums", f"--directory={self.directory}").strip()

    def refused(self, reference: str) -> str:
        """Return the reason for which a run is refused."""
        return grete("run", reference, f"--directory={self.directory}", fails=ConfigError)


def test_the_way_back_that_a_halt_names_works(tmp_path: Path) -> None:
    """H031 names the code of before: it starts, commits what it had made, and the new code goes on from there."""
    job = Deployed(tmp_path, "deterministic")
    job.pay(2, 3)
    job.killed(job.old, outputs=3)
    exit_code, rows = plan(job.new, job.directory)
    assert (exit_code, [row["by"] for row in rows]) == (0, ["start"])
    assert "task add-up-0 has processed records since its last commit" in rows[0]["what"]
    with WorkerUnderTest(job.directory, reference=job.new, task="add-up-0") as worker:
        assert worker.ends() == ExitCode.HALTED
    told = worker.log_path.read_text()
    assert "GRETE-H031" in told
    assert "put the code of before back" in told
    assert job.run(job.old) == 0
    assert plan(job.new, job.directory) == (0, [])
    assert job.run(job.new) == 0
    job.pay(4)
    assert job.run(job.new) == 0
    assert job.sums(job.new) == 'ann\t{"cents": 10, "count": 1}'


def test_outputs_ahead_behind_another_stage_are_planned_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequenced stage that reads a stream says nothing in its changelog of what readers outside have seen already."""
    monkeypatch.setenv("GRETE_OUTPUT_DELIVERY", "sequenced")
    job = Deployed(tmp_path, "deterministic", *BEHIND)
    job.pay(2, 3)
    job.killed(job.old, outputs=3)
    planned = [row["what"] for row in plan(job.old, job.directory)[1]]
    assert [text.partition(" has processed")[0] for text in planned] == ["task forward-0", "task add-up-0"]
    assert job.run(job.old) == 0
    assert plan(job.old, job.directory) == (0, [])


@pytest.mark.parametrize("mode", MODES)
def test_code_that_has_committed_nothing_is_taken_back(tmp_path: Path, mode: str) -> None:
    """The old code, or a third one, goes on from the state of the old one; once code has committed, it binds."""
    job = Deployed(tmp_path, mode)
    job.killed(job.new, outputs=None)
    assert job.run(job.old) == 0
    job.killed(job.new, outputs=None)
    job.killed(job.other, outputs=None)
    job.killed(job.new, outputs=None)
    job.pay(2)
    assert job.run(job.other) == 0
    assert job.sums(job.other) == 'ann\t{"cents": 3, "last": 0}'
    for code in (job.old, job.new):
        assert "field 'last' of Total is gone" in job.refused(code)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_code_of_a_job_binds_with_its_first_commit(tmp_path: Path, mode: str) -> None:
    """It has crashed with the first record, so nothing was made of it: code with other fields begins the job."""
    job = Deployed(tmp_path, mode, run=False)
    first = job.code("first", *OTHER, ("        self.sums.put", "        raise ValueError\n        self.sums.put"))
    job.killed(first, outputs=None)
    job.pay(2)
    with WorkerUnderTest(job.directory, slow(), reference=first, task="add-up-0") as worker:
        assert worker.ends() == ExitCode.FAILED
    assert "a start takes this code" in grete("plan", job.new, f"--directory={job.directory}", fails=ConfigError)
    assert job.run(job.new) == 0
    assert job.sums(job.new) == 'ann\t{"cents": 2, "count": 1}'
    assert "field 'count' of Total is gone" in job.refused(job.old)


@pytest.mark.parametrize("mode", MODES)
def test_code_that_has_made_nothing_is_taken_back(tmp_path: Path, mode: str) -> None:
    """Each start commits, but nothing that its code has made, as it waits for input, or crashes with each record."""
    job = Deployed(tmp_path, mode)
    with WorkerUnderTest(job.directory, reference=job.new, task="add-up-0") as worker:
        began = worker.running()["checkpoint_id"]
        worker.until(lambda status: status["checkpoint_id"] > began)
        worker.signal(signal.SIGKILL)
        worker.ends()
    job.pay(2)
    broken = job.code("broken", *NEW, ("        self.sums.put", "        raise ValueError\n        self.sums.put"))
    with WorkerUnderTest(job.directory, reference=broken, task="add-up-0") as worker:
        assert worker.ends() == ExitCode.FAILED
    assert job.run(job.old) == 0
    assert job.sums(job.old) == 'ann\t{"cents": 3}'


@pytest.mark.parametrize("mode", MODES)
def test_code_is_not_taken_back_beside_a_worker_of_it(tmp_path: Path, mode: str) -> None:
    """That worker would commit, and its values would be read by code that does not know them."""
    job = Deployed(tmp_path, mode)
    with WorkerUnderTest(job.directory, slow(), reference=job.new, task="add-up-0") as worker:
        worker.running()
        with WorkerUnderTest(job.directory, reference=job.old, task="add-up-0") as second:
            assert second.ends() == ExitCode.HALTED
    assert "add-up-0 has a worker" in second.log_path.read_text()
