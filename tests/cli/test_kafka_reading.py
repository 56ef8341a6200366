"""Commands that read a job on a real Kafka broker: records and not offsets, what is committed and not what was."""

from collections.abc import Callable
from pathlib import Path

import pytest

from framework.testing.broker import Broker
from tests.cli.test_kafka import Cluster, Shell
from tests.cli.test_run import grete

pytestmark = pytest.mark.kafka

Run = Callable[..., list[str]]


@pytest.fixture
def cluster(kafka_broker: Broker, tmp_path: Path) -> Cluster:
    """Return a cluster whose orders have two partitions."""
    made = Cluster(kafka_broker.bootstrap, tmp_path)
    made.make(made.orders, 2)
    return made


def test_a_machine_that_had_the_worker_once_prints_what_is_committed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Directory A had it, then B; asked in A, on the broker's word: the changelog answers, and so it is said."""
    monkeypatch.chdir(cluster.folder)
    shell, log = Shell(monkeypatch, capfd), f"--log={cluster.log}"
    get = ["state", "get", "totals.py", "sums", "ann", log]
    for directory, amount in (("a", 30_300), ("b", 900)):
        cluster.order({"ann": amount, "bob": 1})
        grete("run", "totals.py", log, f"--directory={directory}", cwd=cluster.folder)
    assert shell(*get, "--directory=a") == ["31200"]
    assert shell(*get, "--directory=b") == ["31200"]
    assert shell(*get, "--directory=never-there") == ["31200"]
    assert sorted(shell("state", "scan", "totals.py", "sums", log, "--directory=a")) == ["ann\t31200", "bob\t2"]
    assert not (cluster.folder / "never-there").exists()


def test_the_last_records_are_counted_without_the_ends_of_transactions(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``topic read -n 1`` prints the last record of each partition: the end of a transaction is behind it."""
    monkeypatch.chdir(cluster.folder)
    shell, log = Shell(monkeypatch, capfd), f"--log={cluster.log}"
    read = ["topic", "read", "totals.py", cluster.totals, log]
    for amount in (1, 2, 4):
        cluster.order({"ann": amount})
        grete("run", "totals.py", log, cwd=cluster.folder)
    last = [[line.split("\t")[2:] for line in shell(*read, *more)] for more in (["-n", "1"], ["-n", "2"], [])]
    assert last == [[["ann", "7"]], [["ann", "3"], ["ann", "7"]], [["ann", "1"], ["ann", "3"], ["ann", "7"]]]
