"""The commands read a job's commits on a real Kafka broker as of a checkpoint; they rebuild, fork and rescale it."""

import shutil
from pathlib import Path

import pytest

from grete.job.loader import load_job
from grete.logs.address import LogAddress, open_address
from grete.state.read.checkpoints.snapshots import id_of_all, snapshots
from grete.testing.broker import Broker
from tests.cli.test_kafka import Cluster, Shell
from tests.cli.test_run import grete
from tests.support.kafka_topics import widen

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]  # workers start and end many times

CUSTOMERS = [f"customer {number}" for number in range(30)]


class Moving:
    """A job on a broker, and commands for it."""

    def __init__(self, broker: Broker, folder: Path, shell: Shell) -> None:
        self.cluster, self._shell = Cluster(broker.bootstrap, folder), shell
        self.cluster.make(self.cluster.orders, 2)
        self.log = f"--log={self.cluster.log}"

    def code(self, name: str, **changes: str) -> str:
        """Write the job's code with other words in it; return its path."""
        text = (self.cluster.folder / "totals.py").read_text()
        for old, new in changes.items():
            text = text.replace(f"{old}=2" if old == "partitions" else f'"{self.cluster.name}{old}"', new)
        (self.cluster.folder / name).write_text(text)
        return name

    def run(self, code: str, amount: int = 0) -> dict[str, int]:
        """Order for each customer, let workers use it up; return the state."""
        if amount:
            self.cluster.order(dict.fromkeys(CUSTOMERS, amount))
        assert "all input is processed" in grete("run", code, self.log, cwd=self.cluster.folder)
        return self.scan(code)

    def scan(self, code: str, *more: str) -> dict[str, int]:
        """Return the names and totals that ``state scan`` prints."""
        lines = (line.split("\t") for line in self("state", "scan", code, "sums", *more))
        return {name: int(total) for name, total in lines}

    def checkpoint_id(self, code: str) -> int:
        """Return the newest checkpoint that all tasks have."""
        log = open_address(LogAddress(self.cluster.log), Path())
        found = id_of_all(snapshots(log, load_job(code)))
        log.close()
        return found

    def __call__(self, *arguments: str) -> list[str]:
        """Run a command; return the lines that it prints."""
        return self._shell(*arguments, self.log)

    def error(self, *arguments: str) -> str:
        """Run a command that is refused; return what it says."""
        return self._shell.error(*arguments, self.log)


@pytest.fixture
def moving(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Moving:
    """Return a job with a topic of two partitions."""
    monkeypatch.chdir(tmp_path)
    return Moving(kafka_broker, tmp_path, Shell(monkeypatch, capsys))


def all_have(total: int) -> dict[str, int]:
    """Return the state in which each customer has ordered so much."""
    return dict.fromkeys(CUSTOMERS, total)


def test_the_history_on_a_broker_is_read_rebuilt_and_forked(moving: Moving) -> None:
    """State is read as of a checkpoint, the stores are rebuilt from the changelogs.

    A second job reads on from a checkpoint.
    """
    name = moving.cluster.name
    assert moving.run("totals.py", 1) == all_have(1)
    checkpoint_id = moving.checkpoint_id("totals.py")
    assert moving.run("totals.py", 2) == all_have(3)
    assert moving.scan("totals.py", f"--checkpoint={checkpoint_id}") == all_have(1)
    assert moving("state", "get", "totals.py", "sums", CUSTOMERS[0], f"--checkpoint={checkpoint_id}") == ["1"]
    shutil.rmtree(next((moving.cluster.folder / ".grete").glob(f"{name}-*")) / "state")
    assert moving("replay", "totals.py")[0].startswith("total-0\t")
    assert moving.scan("totals.py") == all_have(3)
    second = moving.code("second.py", **{"": f'"{name}-second"', "-totals": f'"{name}-second-totals"'})
    assert moving("fork", "totals.py", second, f"--checkpoint={checkpoint_id}") == ["total/sums\t30 entries"]
    assert moving.scan(second, f"--checkpoint={moving.checkpoint_id(second)}") == all_have(1)
    assert moving.run(second) == all_have(3)  # both read the same orders
    assert moving.run(second, 4) == all_have(7)
    assert moving.run("totals.py") == all_have(7)
    assert "has run" in moving.error("fork", "totals.py", second)
    assert moving.cluster.read_totals(90) == {
        customer: [1, 3, 7] for customer in CUSTOMERS
    }  # of the first job, each once


def test_a_job_on_a_broker_is_rescaled(moving: Moving) -> None:
    """Once the topic of its input has the partitions; then each total goes on where its customer's orders are now.

    Down it goes as another job, whose orders come in another topic.
    """
    assert moving.run("totals.py", 1) == all_have(1)
    asked = ["rescale", "totals.py", "--partitions=3"]
    assert f"kafka-topics.sh --alter --topic {moving.cluster.orders} --partitions 3" in moving.error(*asked)
    widen(moving.cluster.admin, moving.cluster.orders, 3)
    assert moving(*asked) == ["total/sums\t30 entries"]
    three = moving.code("three.py", partitions="partitions=3")
    assert moving.run(three, 2) == all_have(3)
    assert moving.run(three, 3) == all_have(6)
    assert "partitions" in moving.error("run", "totals.py")
    assert "topics cannot lose any" in moving.error("rescale", three, "--partitions=2")
    name, orders = moving.cluster.name, f"{moving.cluster.name}-fewer-orders"
    named = {"": f'"{name}-fewer"', "-totals": f'"{name}-fewer-totals"'}
    same = moving.code("same.py", **named)
    assert "has 3 partitions, and job" in moving.error("fork", three, same)
    fewer = moving.code("fewer.py", **named, **{"-orders": f'"{orders}"'})
    assert "there is no topic" in moving.error("fork", three, fewer)
    moving.cluster.make(orders, 2)
    assert moving("fork", three, fewer) == ["total/sums\t30 entries"]
    moving.cluster.orders = orders
    assert moving.run(fewer, 4) == all_have(10)
    assert moving.run(three) == all_have(6)
