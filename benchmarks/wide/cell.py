"""One measurement: a program on a broker of its own, under a steady load or with a backlog.

Cores are processor time by wall time, of all processes of the program and of the broker. The last count of each key
is checked: their sum is the number of records, or the measurement does not count. The broker's JVM compiles quickly
and not well, as those of tests do: compare its cores within a run only.
"""

import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.idle import cpu_s, memory_kib
from benchmarks.peers.tools import TOOLS
from benchmarks.running import tree
from benchmarks.wide.job import written
from tests.verification.chaos.cluster import Cluster

STREAMS = "Kafka Streams"
GRETE = "Grete"
USERS, PAGES = 100_000, 20_000  # of the input; pages are what is counted
STEP_S = 0.02  # between two pieces of a steady load
KIB = 1 << 10
WAIT_S = 300.0  # for the last outputs
STOP_S = 60.0


class Asked(NamedTuple):
    """A cell: who, on how many partitions, with how many processes or threads, with a commit each ``interval_ms``."""

    program: str
    partitions: int
    interval_ms: int = 1_000
    processes: int = 2
    settings: tuple[str, ...] = ()  # of Grete: name=value
    client: tuple[str, ...] = ()  # options of Grete's Kafka clients: name=value
    tasks: int = 0  # of each of Grete's stages; 0: one for each partition
    mode: str = "aligned"  # of Grete's job


class Steady(NamedTuple):
    """Cores under a steady load; ``behind_s``: from the last input to the commit of the last output."""

    job_cores: float
    broker_cores: float
    mib: float
    behind_s: float


class Backlog(NamedTuple):
    """Records a second from the first output to the last, and processor time a record from the start on, in µs."""

    per_s: float
    first_s: float
    job_us: float
    broker_us: float


class Scene:
    """A broker, its two topics, and the program between them. Use it as ``scene(asked)`` gives it."""

    def __init__(self, asked: Asked, folder: Path, cluster: Cluster, linger_ms: int) -> None:
        """Make the topics; the program does not run yet. ``linger_ms``: of the load's producer."""
        self.asked, self._folder, self._cluster = asked, folder, cluster
        self.topics = "wide-clicks", "wide-counts"
        late = {"message.timestamp.type": "LogAppendTime"}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        made = [NewTopic(self.topics[0], asked.partitions), NewTopic(self.topics[1], asked.partitions, config=late)]
        for done in admin.create_topics(made).values():
            done.result(60)
        own = {"linger.ms": linger_ms, "queue.buffering.max.messages": 2_000_000, "log_level": 5}
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, **own})
        self._producer.list_topics(self.topics[0], 60)
        self._random = random.Random(1)  # the same input for all
        self.sent = 0
        self.sent_at: dict[str, list[float]] = defaultdict(list)  # by page, on the monotonic clock
        self._program: subprocess.Popen[bytes] | None = None

    def send(self, count: int) -> None:
        """Send ``count`` records, without a wait."""
        for _ in range(count):
            key, value = f"u{self._random.randrange(USERS)}", f"page-{self._random.randrange(PAGES)}"
            self.sent_at[value].append(time.monotonic())
            self._producer.produce(self.topics[0], value, key)
            self.sent += 1
            if self.sent % 1_000 == 0:
                self._producer.poll(0)
        self._producer.poll(0)

    def load(self, rate: int, seconds: float) -> None:
        """Send ``rate`` records a second for so long."""
        begun_s, sent = time.monotonic(), 0
        while (passed_s := time.monotonic() - begun_s) < seconds:
            self.send(int(passed_s * rate) - sent)
            sent = int(passed_s * rate)
            time.sleep(STEP_S)
        self.flush()

    def flush(self) -> None:
        """Wait until the broker has all that was sent."""
        self._producer.flush(WAIT_S)

    def start(self) -> None:
        """Start the program."""
        with (self._folder / "program.log").open("wb") as said:
            self._program = subprocess.Popen(self._command(), stdin=subprocess.PIPE, stdout=said, stderr=said)

    def used_s(self) -> tuple[float, float]:
        """Return the processor seconds of the program and of the broker."""
        running = set[int]() if self._program is None else tree(self._program.pid)
        return sum(map(cpu_s, running)), sum(map(cpu_s, self._cluster.pids()))

    @property
    def servers(self) -> str:
        """The broker's address."""
        return self._cluster.bootstrap

    @property
    def pid(self) -> int:
        """The program's process, which has the others."""
        return self._started().pid

    def mib(self) -> float:
        """Return the program's memory; what its processes share counts once."""
        return sum(map(memory_kib, tree(self._started().pid))) / KIB

    def stamps(self) -> Sequence[int]:
        """Read all counts that are committed; return when the broker got each, in ms, in order.

        Raises SystemExit if they do not come, or are wrong.
        """
        settings = {"group.id": "reader", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        reader = Consumer({"bootstrap.servers": self._cluster.bootstrap, **settings})
        reader.assign([TopicPartition(self.topics[1], number, 0) for number in range(self.asked.partitions)])
        stamps, last, by = list[int](), dict[bytes, int](), time.monotonic() + WAIT_S
        while len(stamps) < self.sent and time.monotonic() < by:
            for message in reader.consume(5_000, 0.2):
                key, value = message.key(), message.value()
                if message.error() is None and key is not None and value is not None:
                    stamps.append(message.timestamp()[1])
                    last[key] = max(last.get(key, 0), int.from_bytes(value, "big"))
        reader.close()
        if not sum(last.values()) == self.sent == len(stamps):
            log = (self._folder / "program.log").read_text()[-4_000:]
            raise SystemExit(f"{self.asked}: {len(stamps)} outputs, {sum(last.values())} counted of {self.sent}\n{log}")
        return sorted(stamps)

    def stop(self) -> None:
        """End the program."""
        if self._program is not None:
            assert self._program.stdin is not None
            self._program.stdin.close()  # what a peer waits for
            self._program.send_signal(signal.SIGTERM)
            try:
                self._program.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._program.kill()

    def _started(self) -> "subprocess.Popen[bytes]":
        assert self._program is not None, "start it first"
        return self._program

    def _command(self) -> list[str]:
        asked, own, servers = self.asked, self._folder / "own", self._cluster.bootstrap
        if asked.program == GRETE:
            job = written(
                self._folder, "wide", self.topics, asked.partitions, asked.tasks or asked.partitions, asked.mode
            )
            command = [sys.executable, "-m", "grete.cli", "up", str(job), f"--log=kafka://{servers}"]
            command += [f"--directory={own}", f"--processes={asked.processes}"]
            settings = (f"checkpoint_interval_ms={asked.interval_ms}", *asked.settings)
            if asked.client:
                options = self._folder / "client.properties"
                options.write_text("\n".join(asked.client))
                command.append(f"--kafka-config={options}")
            return command + [f"--set={setting}" for setting in settings]
        own.mkdir()
        given = [servers, *self.topics, "wide", str(own), "exactly-once", str(asked.interval_ms)]
        return [*TOOLS[STREAMS].command("Wide"), *given, str(asked.processes), str(asked.partitions)]


@contextmanager
def scene(asked: Asked, folder: Path, linger_ms: int = 50) -> Iterator[Scene]:
    """Yield a scene on a broker of its own; end both."""
    with Cluster(folder / "kafka") as cluster:
        made = Scene(asked, folder, cluster, linger_ms)
        try:
            yield made
        finally:
            made.stop()


def steady(asked: Asked, folder: Path, rate: int, warm_s: float, seconds: float) -> Steady:
    """Measure a steady load for so long, once it was there for ``warm_s``: a JVM compiles until then."""
    with scene(asked, folder) as here:
        here.start()
        here.load(rate, warm_s)
        (job_s, broker_s), begun_s = here.used_s(), time.monotonic()
        here.load(rate, seconds)
        (job_end_s, broker_end_s), took_s = here.used_s(), time.monotonic() - begun_s
        mib, asked_ms = here.mib(), time.time() * 1_000
        behind_s = (here.stamps()[-1] - asked_ms) / 1_000
        return Steady((job_end_s - job_s) / took_s, (broker_end_s - broker_s) / took_s, mib, behind_s)


def backlog(asked: Asked, folder: Path, records: int) -> Backlog:
    """Measure how a backlog is worked off, from the program's start on."""
    with scene(asked, folder) as here:
        here.send(records)
        here.flush()
        (_, broker_s), begun_ms = here.used_s(), time.time() * 1_000
        here.start()
        stamps = here.stamps()
        job_s, broker_end_s = here.used_s()
        per_s = records / max((stamps[-1] - stamps[0]) / 1_000, 0.001)
        to_us = 1e6 / records
        return Backlog(per_s, (stamps[0] - begun_ms) / 1_000, job_s * to_us, (broker_end_s - broker_s) * to_us)
