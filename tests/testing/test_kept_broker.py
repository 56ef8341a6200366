"""A broker for the demonstration: its data stays; and the one of docker-compose.yml, with workers."""

import re
from pathlib import Path

import pytest

from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.spark.java import cache
from grete.testing.broker import find, find_broker
from grete.testing.broker.settings import KAFKA
from tasks.inverted_index import documents, job


@pytest.mark.kafka
@pytest.mark.parametrize("empty", [False, pytest.param(True, marks=pytest.mark.prove)])  # to write them takes 6 s
def test_a_kept_broker_goes_on_with_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool) -> None:
    """A kept broker's data is there for the next user, at whatever address.

    Made from jars, with an ``empty`` cache, it also leaves the classes of its Java, and the next one starts with them.
    """
    monkeypatch.delenv("GRETE_KAFKA", raising=False)
    partition = TopicPartition("kept", 0)
    jars = cache() / f"kafka-{KAFKA}"
    if empty:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        cache().mkdir()
        (cache() / jars.name).symlink_to(jars)
    for run in range(2):
        with find_broker(tmp_path / "broker", keep=True) as broker:
            log = KafkaLog(broker.bootstrap)
            log.create_topic("kept", 1)
            assert log.bounds(partition) == (0, run)
            log.produce(0, 0, [ExternalRecord(partition, None, b"x", 1)])
            while not log.poll():
                log.wait(1_000)
            log.close()
            if empty and (process := re.search(r"jars, process (\d+)$", broker.how)):
                used = Path(f"/proc/{process[1]}/maps").read_text()
                assert [str(path) in used for path in cache().glob("*.jsa")] == [True] * run
        find._kept[-1].wait()  # else the next run finds this broker


def test_docker_compose_runs_a_worker_for_each_partition() -> None:
    """The workers are those of the demonstration's job, and its input has as many partitions."""
    compose = (Path(__file__).parents[2] / "docker-compose.yml").read_text()
    found = re.findall(
        r"command: worker tasks.inverted_index --partition (\d+) --log kafka://localhost:9092\n", compose
    )
    assert found == [str(number) for number in range(job.partitions)]
    assert f"--topic {documents.name} --partitions {job.partitions}\n" in compose
