"""Scenarios of Kafka brokers: killed, frozen, led by another, refusing. Each starts brokers of its own."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from grete.errors import ExitCode
from grete.logs.address import KAFKA
from tests.verification.chaos.chain import PARTITIONS
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster
from tests.verification.chaos.scene import Failed, Scene, scene

# Short ones, so that a broker can be frozen for longer than all of them.
LONG_FETCHES = ["consumer.fetch.wait.max.ms=100"]  # four workers that ask each broker every 10 ms: a third of it all
TIME_OUTS = ["socket.timeout.ms=3000", "producer.request.timeout.ms=3000", "producer.transaction.timeout.ms=4000"]
FROZEN_S = 6.0
DOWN_S = 1.0
# Of a broker that some scenarios share: a transaction that has timed out is ended soon.
SHARED = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
# Of a broker's troubles, few happen within a commit and most between two: it need not commit as often as it can.
INTERVAL = "checkpoint_interval_ms=1000"
SMALL_BATCH = "250"  # bytes: less than a transaction's batch of entries


@contextlib.contextmanager
def on_cluster(
    directory: Path,
    seed: int,
    shared: Cluster | None = None,
    *,
    brokers: int = 1,
    changed: dict[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[tuple[Cluster, Scene]]:
    """Start the chain job, and let it come to work: on the ``shared`` broker, or on brokers of its own."""
    directory.mkdir(parents=True)
    config = directory / "kafka.properties"
    config.write_text("\n".join([*LONG_FETCHES, *options]))
    with contextlib.ExitStack() as held:
        cluster = shared or held.enter_context(Cluster(directory / "kafka", brokers, changed))
        address = KAFKA + cluster.bootstrap
        stage = held.enter_context(scene(directory / "job", address, seed, INTERVAL, config=config))
        stage.running()
        stage.flow(200)
        yield cluster, stage


def broker_killed(directory: Path, seed: int) -> str:
    """Kill the only broker in mid work and start it again: workers wait for it or come back; all comes out once."""
    with on_cluster(directory, seed, changed=NOTICED_SOON) as (cluster, stage):
        stage.campaign.feed(100)
        stage.campaign.look()
        cluster.kill(0)
        _wait(stage, DOWN_S)
        cluster.start(0)
        return _goes_on(stage, "the broker was killed and came back")


def broker_frozen(directory: Path, seed: int, shared: Cluster | None = None) -> str:
    """Freeze the only broker for longer than every time-out: unknown outcomes are decided by the next claim (C4)."""
    with on_cluster(directory, seed, shared, options=TIME_OUTS) as (cluster, stage):
        stage.campaign.feed(100)
        stage.campaign.look()
        cluster.freeze(0)
        _wait(stage, FROZEN_S)
        cluster.thaw(0)
        return _goes_on(stage, f"the broker stood still for {FROZEN_S:.0f} s")


def leader_killed(directory: Path, seed: int) -> str:
    """Kill the leader of the sink's first partition in a cluster of three: the others go on without it."""
    with on_cluster(directory, seed, brokers=3) as (cluster, stage):
        topic = stage.entries
        leader = _leader(cluster, topic, 0)
        stage.campaign.feed(100)
        stage.campaign.look()
        cluster.kill(leader - 1)
        stage.drained()
        stage.flow(100)
        successor = _leader(cluster, topic, leader)
        cluster.start(leader - 1)
        return _goes_on(stage, f"broker {leader} was killed, {successor} led after it")


def transaction_outlived(directory: Path, seed: int, shared: Cluster | None = None) -> str:
    """Freeze a sink within its transaction until the broker aborts it: the sink finds that, and repeats it (C4, S1)."""
    point = "frozen within a transaction"
    with on_cluster(directory, seed, shared, changed=SHARED, options=TIME_OUTS) as (cluster, stage):
        stage.kill(0, hold=True)
        stage.crew.start(0, point, countdown=3)
        stage.feeding_until(lambda: stage.crew.stopped(0), point)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        written = _ends(admin, stage.entries, IsolationLevel.READ_UNCOMMITTED)

        def aborted() -> bool:
            visible = _ends(admin, stage.entries, IsolationLevel.READ_COMMITTED)
            return all(there >= end for there, end in zip(visible, written, strict=True))

        stage.until(aborted, "the broker aborts the transaction")
        stage.back(0)
        stage.crew.wake(stage.crew.members[0])
        stage.campaign.feed(100)
        return _goes_on(stage, "the sink repeated its transaction")


def oversized(directory: Path, seed: int, shared: Cluster | None = None) -> str:
    """The sink's topic takes no message of that size: the worker halts and names the setting; nothing is half out."""
    with on_cluster(directory, seed, shared) as (cluster, stage):
        _set_size(cluster, stage.entries, SMALL_BATCH)
        stage.campaign.may_end_with = {ExitCode.HALTED}
        stage.campaign.feed(100)
        stage.until(lambda: bool(stage.campaign.held), "halts")
        partition = min(stage.campaign.held)
        words = stage.crew.last_words(partition)
        if "max.message.bytes" not in words and "message.max.bytes" not in words:
            raise Failed(f"the error names no setting: {words}")
        _set_size(cluster, stage.entries, "1048588")

        def all_out() -> bool:
            stage.campaign.held.clear()  # others halt a little later
            return stage.campaign.checker.entries >= stage.campaign.fed

        stage.until(all_out, "all comes out")
        return _goes_on(stage, "a sink halted and named the setting; with room it went on")


def _goes_on(stage: Scene, what: str) -> str:
    stage.drained()
    stage.running()
    stage.flow(100)
    ended = stage.campaign.tally.others["crashed"]
    stage.judge()
    return f"{what}; {ended} workers crashed and came back; nothing lost, nothing twice"


def _wait(stage: Scene, seconds: float) -> None:
    """Let the workers notice; who feeds would wait for the broker, so only they are looked at."""
    ends = time.monotonic() + seconds
    stage.until(lambda: time.monotonic() > ends, "time passes")


def _leader(cluster: Cluster, topic: str, other_than: int) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        leader = admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
        if leader not in (-1, other_than):
            return leader
    raise Failed(f"{topic} has no leader but {other_than}")


def _ends(admin: AdminClient, topic: str, isolation: IsolationLevel) -> list[int]:
    """Return the end of each partition; for a reader of what is committed, the first open transaction."""
    latest = {KafkaPartition(topic, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    found = admin.list_offsets(latest, isolation_level=isolation)
    return [found[partition].result(30).offset for partition in latest]


def _set_size(cluster: Cluster, topic: str, size: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


class Sharing(Protocol):
    """A scenario of a broker that lives on, which may be ``shared`` with others, one after another."""

    def __call__(self, directory: Path, seed: int, shared: Cluster | None = None) -> str: ...


SHARING: dict[str, Sharing] = {
    "broker-frozen": broker_frozen,
    "transaction-outlived": transaction_outlived,
    "oversized": oversized,
}
KILLING: dict[str, Callable[[Path, int], str]] = {"broker-killed": broker_killed, "leader-killed": leader_killed}
SCENARIOS: dict[str, Callable[[Path, int], str]] = {**SHARING, **KILLING}
