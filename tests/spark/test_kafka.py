"""On a real Kafka broker, Spark writes and reads state, a backfill of the log's own history sends outputs once."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grete.errors import ConfigError
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.spark.format.writer import partitioned
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.snapshots import commits
from grete.state.write.bulk.bulk_write import begin, commit, settle
from grete.testing.broker import Broker
from tests.spark.backfill.scene import SETTINGS, Records, Scene, made, plain
from tests.spark.test_deterministic import MODE
from tests.worker.workers import LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(1_800)]  # the first to come starts Spark


@pytest.fixture
def scene(kafka_broker: Broker, tmp_path: Path) -> Iterator[Scene]:
    """A job of two stages, of which only the second one writes outside."""
    suffix = f"-{random.randrange(1 << 40):x}"
    scene = Scene(tmp_path, suffix, f"kafka://{kafka_broker.bootstrap}", changes=[(", errors=DeadLetter(letters)", "")])
    yield scene
    scene.log.close()


def numbers(count: int, seed: int) -> Records:
    """Return records whose texts are numbers, all of them."""
    return [(key, "0" if text == "x" else text, timestamp) for key, text, timestamp in made(count, seed)]


def told(scene: Scene, count: int) -> int:
    """Return the number of outputs that a reader of what is committed sees, once there are that many."""
    end_s = time.monotonic() + LIMIT_S
    while (found := scene.sent("told")) < count and time.monotonic() < end_s:
        scene.log.wait(100)
    return found


def test_the_history_of_a_topic_sends_its_outputs_once(spark: "SparkSession", scene: Scene) -> None:
    """They go out with the outcome, though the stage that carries it has no outputs of its own; the job goes on."""
    history, live = numbers(200, 11), numbers(80, 12)
    scene.feed(history)
    done = scene.backfill(spark, "kafka", outputs=True)
    assert sum(done.cover.resume.values()) == len(history)
    assert told(scene, len(history)) == len(history)
    scene.feed(live)
    scene.run()
    assert scene.state() == plain(history, live)
    assert told(scene, len(history) + len(live)) == len(history) + len(live)
    assert scene.audit(spark, "kafka").wrong == 0


def test_a_bulk_write_whose_outputs_died_with_it_cannot_count(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its commits stand, its outputs are nowhere: ``--resume`` is refused, ``--abort`` rolls it back."""
    monkeypatch.setattr("grete.logs.kafka.read.reader.SPREAD_S_MAX", 0.5)  # the topic was not just made
    run = begin(scene.log, scene.job, SETTINGS, outputs=True)
    lost = TopicPartition("no-such-topic", 0)
    with pytest.raises(ConfigError, match="there is no partition no-such-topic"):  # dies at the outcome
        commit(scene.log, run, [], settings=SETTINGS, full=True, outputs=[ExternalRecord(lost, b"key", b"value", 1)])
    with pytest.raises(ConfigError, match="was to send outputs, which are lost with its process: run it again"):
        settle(scene.log, scene.job, counts=True)
    assert settle(scene.log, scene.job, counts=False) == (run.bulk_write_id, False)
    assert not any(list(commits(scene.log, wiring)) for wiring in all_wirings(scene.job))


def test_spark_writes_state_that_workers_go_on_from(spark: "SparkSession", scene: Scene) -> None:
    """A table into the changelogs of a job whose outputs are in transactions, read again, and counted on."""
    where = {"job": scene.reference, "log": scene.where.url, "store": "sum/sums"}
    frame = partitioned(spark.createDataFrame([(str(n), 1000) for n in range(10)], "key string, value bigint"), **where)
    frame.write.format("changelog").mode("overwrite").options(**where).save()
    read = spark.read.format("changelog").options(**where).load().collect()
    assert {row.key: row.value for row in read} == {str(number): 1000 for number in range(10)}
    live = numbers(60, 13)
    scene.feed(live)
    scene.run()
    _, sums = plain(live)
    assert scene.state()[1] == {str(number): 1000 + sums.get(str(number), 0) for number in range(10)}


def test_a_deterministic_job_on_a_broker_goes_live(spark: "SparkSession", kafka_broker: Broker, tmp_path: Path) -> None:
    """Its state from the topic's own history, then live: outputs of the live records, each once (decision 0020)."""
    suffix = f"-{random.randrange(1 << 40):x}"
    scene = Scene(tmp_path, suffix, f"kafka://{kafka_broker.bootstrap}", changes=[MODE])
    history, live = made(150, 14), made(80, 15)
    scene.feed(history)
    scene.backfill(spark, "kafka")
    scene.feed(live)
    scene.run()
    assert scene.state() == plain(history, live)
    wanted = sum(text != "x" for _, text, _ in live)
    assert told(scene, wanted) == wanted
    assert scene.audit(spark, "kafka").wrong == 0
    scene.log.close()
