"""Members on machines, a writer and a reader at the switch: which partitions moved, and how long records waited."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from benchmarks.beside import producer
from benchmarks.cluster.systems import Names, System, words
from benchmarks.on_kafka import make_topic
from grete.protocol.partitioner import partition_of
from tests.verification.chaos.cluster import Cluster
from tests.verification.machines.machine import Machine
from tests.verification.machines.network import Network

RATE = 20.0  # records a second and partition
SETTLED_S = 5.0  # without a move, then it counts as over
LIMIT_S = 400.0  # for anything that must come
TAKEN = 5_000  # messages at once
FILL = "fill"
FED_KEYS = 10_000  # of those that are there, records come for these


def key_of(number: int) -> str:
    """Return a key."""
    return f"key-{number:09}"


@dataclass
class Seen:
    """The records that a reader of committed ones has got, by partition."""

    sent: list[list[float]]
    waits: list[list[tuple[float, float]]]  # (when a record was sent, how long it took)
    machine: list[str]  # that has counted the last record
    moved_s: list[float]  # when that changed last
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    filled: int = 0


@dataclass
class Pause:
    """The longest wait of a record in each partition, in s, and the partitions that another member has since."""

    longest_s: list[float]
    moved: list[int]


class Scene:
    """One system on a network. ``members``: by the name of their machine."""

    def __init__(self, network: Network, system: System, names: Names, keys: int) -> None:
        """``keys``: as many in each partition together."""
        self.network, self.names, self._system, self._keys = network, names, system, keys
        self.members: dict[str, subprocess.Popen[bytes]] = {}
        every = range(names.partitions)
        self.seen = Seen([[] for _ in every], [[] for _ in every], ["" for _ in every], [0.0 for _ in every])
        for topic in (names.events, names.counted):
            make_topic(names.bootstrap, topic, names.partitions)
        self._producer = producer(names.bootstrap)
        self._fed: list[list[str]] = [[] for _ in every]  # keys, by partition
        for key in map(key_of, range(min(keys, FED_KEYS))):
            self._fed[partition_of(key.encode(), names.partitions)].append(key)
        own = {"group.id": "bench", "isolation.level": "read_committed", "enable.auto.commit": False}
        quick = {"fetch.queue.backoff.ms": 5, "fetch.wait.max.ms": 20, "fetch.error.backoff.ms": 10}
        self._consumer = Consumer({"bootstrap.servers": names.bootstrap, **own, **quick})
        self._consumer.assign([KafkaPartition(names.counted, number, 0) for number in every])
        self._fed_from = float("inf")

    def start(self, name: str) -> None:
        """Start a member."""
        self.members[name] = self._system.start(self.network.machines[name], self.names)

    def fill(self) -> float:
        """Give each key once; return the seconds from the first to the last that came out."""
        for number in range(self._keys):
            self._produce(key_of(number), FILL)
            if number % 10_000 == 0:
                self._take(0)
        self._producer.flush(LIMIT_S)
        began = time.monotonic()
        self.until("the state is filled", lambda: self.seen.filled >= self._keys)
        self._fed_from = time.monotonic()
        return time.monotonic() - began

    def rate(self, records: int) -> float:
        """Give records to members that stand still; return how many a second come out once they go on."""
        machines, before, self._fed_from = [self.machine(name) for name in self.members], self.seen.filled, float("inf")
        for machine in machines:
            machine.freeze()
        for number in range(records):
            self._produce(key_of(number % self._keys), FILL)
        self._producer.flush(LIMIT_S)
        for machine in machines:
            machine.thaw()
        began = time.monotonic()
        self.until("all is counted", lambda: self.seen.filled >= before + records)
        return records / (time.monotonic() - began)

    def _produce(self, key: str, value: str) -> None:
        while True:
            try:
                self._producer.produce(self.names.events, value.encode(), key.encode())
                break
            except BufferError:
                self._take(0.01)
        self._producer.poll(0)

    def step(self) -> None:
        """Send the records that are due, and take what has come."""
        now = time.monotonic()
        for partition, sent in enumerate(self.seen.sent):
            while len(sent) < (now - self._fed_from) * RATE:
                keys = self._fed[partition]
                self._produce(keys[len(sent) % len(keys)], str(len(sent)))
                sent.append(now)
        self._take(0.005)

    def _take(self, timeout_s: float) -> None:
        self._producer.poll(0)
        for message in self._consumer.consume(TAKEN, timeout_s):
            if message.error() is None:
                self._count(message.partition() or 0, (message.key() or b"").decode(), message.value() or b"")

    def _count(self, partition: int, key: str, value: bytes) -> None:
        machine, what, count = value.decode().split()
        seen, now = self.seen, time.monotonic()
        seen.counts[partition, key] += 1
        if seen.counts[partition, key] != int(count):
            raise SystemExit(f"{key} is told {count} times after {seen.counts[partition, key] - 1}: nothing counts")
        if machine != seen.machine[partition]:
            seen.machine[partition], seen.moved_s[partition] = machine, now
        if what == FILL:
            seen.filled += 1
            return
        number = int(what)
        if number != len(seen.waits[partition]):
            raise SystemExit(f"record {number} of {partition} behind {len(seen.waits[partition]) - 1}: nothing counts")
        sent = seen.sent[partition][number]
        seen.waits[partition].append((sent, now - sent))

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Go on until something is so. Raises SystemExit if it does not come."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            if time.monotonic() > deadline:
                told = {name: words(self.network.machines[name]) for name in self.members}
                raise SystemExit(f"after {LIMIT_S:.0f} s still not: {what}: {self.seen.machine}: {told}")
            self.step()

    def spread(self, names: set[str]) -> bool:
        """Return whether these members alone share the partitions evenly, none moves, and no older record waits."""
        seen, now = self.seen, time.monotonic()
        counts = Counter(seen.machine)
        evenly = set(counts) == names and max(counts.values()) - min(counts.values()) <= 1
        settled = all(now - moved > SETTLED_S for moved in seen.moved_s)
        return evenly and settled and self.caught_up()

    def caught_up(self) -> bool:
        """Return whether each record that waits was sent within the last second."""
        now = time.monotonic()
        return all(
            len(waits) >= len(sent) or now - sent[len(waits)] < 1.0
            for sent, waits in zip(self.seen.sent, self.seen.waits, strict=True)
        )

    def pause(self, event: Callable[[], None], left: set[str], *, evenly: bool = True) -> Pause:
        """Let something happen and wait until these members have all partitions; return how long records waited."""
        before, began = list(self.seen.machine), time.monotonic()
        firsts = [len(waits) for waits in self.seen.waits]
        event()
        over = (lambda: self.spread(left)) if evenly else (lambda: self._taken_by(left))
        self.until(f"{left} have all partitions", over)
        while time.monotonic() < began + SETTLED_S:
            self.step()
        longest = [max(wait for _, wait in w[first:]) for w, first in zip(self.seen.waits, firsts, strict=True)]
        return Pause(longest, [n for n, name in enumerate(self.seen.machine) if name != before[n]])

    def _taken_by(self, names: set[str]) -> bool:
        now = time.monotonic()
        settled = all(now - moved > SETTLED_S for moved in self.seen.moved_s)
        return set(self.seen.machine) <= names and settled and self.caught_up()

    def leave(self, name: str) -> None:
        """Let a member stop gracefully."""
        process = self.members.pop(name)
        process.send_signal(signal.SIGTERM)

    def die(self, name: str) -> None:
        """Lose a machine as a whole."""
        self.machine(name).lose()
        del self.members[name]

    def machine(self, name: str) -> Machine:
        """Return the machine of a member."""
        return self.network.machines[name]

    def close(self) -> None:
        """Disconnect."""
        self._producer.purge()
        self._consumer.close()


@contextlib.contextmanager
def scene(system: System, machines: int, partitions: int, keys: int) -> Iterator[Scene]:
    """Make a network with a broker and machines m1, m2, … for a system; no member runs yet."""
    system.prepare()
    with tempfile.TemporaryDirectory(prefix="grete-cluster-") as directory:
        names = [f"m{number + 1}" for number in range(machines)]
        with (
            Network(Path(directory), names) as network,
            Cluster(Path(directory) / "kafka", host=network.host) as broker,
        ):
            made = Scene(network, system, Names(broker.bootstrap, os.urandom(4).hex(), partitions), keys)
            with contextlib.closing(made):
                yield made
