"""`grete check-determinism` on a Kafka cluster."""

from pathlib import Path

import pytest

from grete.testing.broker import Broker
from tests.cli.test_check_determinism import grete
from tests.cli.test_kafka import Cluster

pytestmark = pytest.mark.kafka


def test_an_output_topic_may_have_more_partitions_than_the_job(kafka_broker: Broker, tmp_path: Path) -> None:
    """The replay writes to as many partitions as the topic has, so each output comes out where it is."""
    cluster = Cluster(kafka_broker.bootstrap, tmp_path)
    code = (tmp_path / "totals.py").read_text().replace("partitions=2)", 'partitions=2, mode="deterministic")')
    (tmp_path / "totals.py").write_text(code)
    cluster.make(cluster.orders, 2)
    cluster.make(cluster.totals, 5)
    for _ in range(2):  # the second replay begins at a commit between the two
        cluster.order({f"customer {number}": number for number in range(20)})
        ran = grete(tmp_path, "run", "totals.py", "--log", cluster.log)
        assert ran.returncode == 0, ran.stderr
    verified = grete(tmp_path, "check-determinism", "totals.py", "--log", cluster.log)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "40 input records replayed, 40 outputs compared" in verified.stdout
    assert "in another process" in verified.stdout
    assert "all of them are the same" in verified.stdout
