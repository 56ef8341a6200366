"""The delay of a job by the number of its stages: ``python -m benchmarks.chain [stages=1,2,4,6] [rate=1000] …``.

Exactly once on Kafka, a commit a second (``interval=1000``), ``partitions=4``, two processes or threads, each cell on a
broker of its own: from the record's production to the moment at which a consumer that reads what is committed has its
output. ``warm=40 seconds=30``: measured once the load was there for so long. ``PEERS=1`` has Kafka Streams beside it.
WRITE=1 puts table and picture into the docs. Every record has to come, once, or the run does not count.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.latency.pictures import begin, figure_of, save
from benchmarks.peers.tools import TOOLS
from benchmarks.results import Cell, Table
from benchmarks.running import console, keep, say_where, taken
from tests.verification.chaos.cluster import Cluster

STREAMS, GRETE = "Kafka Streams", "Grete"
COLUMNS = ["stages", "program", "records", "p50 ms", "p99 ms", "longest ms"]
KEYS = 10_000
STEP_S = 0.005  # between two pieces of the load
WAIT_S, STOP_S = 60.0, 60.0  # for the last outputs, for the program
IMAGES = Path(__file__).parents[1] / "docs" / "images"
JOB = """
from grete import Input, Job, Output, Record, Task, Topic, utf8

TOPICS = [Topic(name, key=utf8, value=utf8) for name in {topics!r}]


def stage(number: int) -> type[Task]:
    class Pass(Task):
        given = Input(TOPICS[number])
        out = Output(TOPICS[number + 1])

        def process(self, record: Record[str, str]) -> None:
            self.out.send(record.key, record.value)

    Pass.__name__ = f"Pass{{number}}"
    return Pass


job = Job("chain", stages=[stage(number) for number in range({stages})], partitions={partitions})
"""


class Chain(NamedTuple):
    """One measurement."""

    program: str
    stages: int
    partitions: int
    interval_ms: int
    rate: int
    warm_s: float
    seconds: float


class Reader:
    """Consumes the outputs in a thread; ``delays``: (when it was produced, s until it was there), in s since 1970."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Begin."""
        own = {"group.id": "reader", "isolation.level": "read_committed", "fetch.queue.backoff.ms": 10}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **own})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.delays, self._over = list[tuple[float, float]](), threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self, count: int) -> None:
        """Wait for this many outputs. Raises SystemExit if there are more or fewer."""
        by = time.monotonic() + WAIT_S
        while len(self.delays) < count and time.monotonic() < by:
            time.sleep(STEP_S)
        time.sleep(1.0)  # what comes twice
        self._over.set()
        self._thread.join()
        self._consumer.close()
        if len(self.delays) != count:
            raise SystemExit(f"{len(self.delays)} outputs of {count} records: the run does not count")

    def _read(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(5_000, 0.05):
                if message.error() is None and (value := message.value()) is not None:
                    made_s = float(value)
                    self.delays.append((made_s, time.time() - made_s))


def measure(chain: Chain, folder: Path) -> list[Cell]:
    """Return records measured, p50, p99 and the longest delay, in ms."""
    topics = "chain-in", "chain-out"
    with Cluster(folder / "kafka") as cluster, (folder / "program.log").open("wb") as said:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for done in admin.create_topics([NewTopic(name, chain.partitions) for name in topics]).values():
            done.result(60)
        command = _command(chain, folder, cluster.bootstrap, topics)
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said)
        try:
            reader = Reader(cluster.bootstrap, topics[1], chain.partitions)
            begun_s = time.time()
            reader.end(_load(cluster.bootstrap, topics[0], chain.rate, chain.warm_s + chain.seconds))
        finally:
            _stop(program)
    first_s = begun_s + chain.warm_s
    taken_ms = sorted(1_000 * delay for made_s, delay in reader.delays if made_s >= first_s)
    cuts = statistics.quantiles(taken_ms, n=100)
    return [len(taken_ms), round(cuts[49]), round(cuts[98]), round(taken_ms[-1])]


def _load(bootstrap: str, topic: str, rate: int, seconds: float) -> int:
    """Send records that name their time, for so long; return their number."""
    producer, keys, sent = (
        Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 5}),
        random.Random(1),
        0,
    )
    begun_s = time.monotonic()
    while (passed_s := time.monotonic() - begun_s) < seconds:
        while sent < int(passed_s * rate):
            producer.produce(topic, key=f"u{keys.randrange(KEYS)}", value=repr(time.time()))
            sent += 1
        producer.poll(0)
        time.sleep(STEP_S)
    producer.flush(WAIT_S)
    return sent


def _command(chain: Chain, folder: Path, bootstrap: str, topics: tuple[str, str]) -> list[str]:
    own = folder / "own"
    if chain.program == GRETE:
        names = [topics[0], *(f"stage-{number}" for number in range(1, chain.stages)), topics[1]]
        job = folder / "chain_job.py"
        job.write_text(JOB.format(topics=names, stages=chain.stages, partitions=chain.partitions))
        command = [sys.executable, "-m", "grete.cli", "up", str(job), f"--log=kafka://{bootstrap}"]
        return [*command, f"--directory={own}", "--processes=2", f"--set=checkpoint_interval_ms={chain.interval_ms}"]
    own.mkdir()
    given = [bootstrap, *topics, "chain", str(own), "exactly-once", str(chain.interval_ms), "2"]
    return [*TOOLS[STREAMS].command("Chain"), *given, str(chain.partitions), str(chain.stages)]


def _stop(program: "subprocess.Popen[bytes]") -> None:
    assert program.stdin is not None
    program.stdin.close()  # what a peer waits for
    program.send_signal(signal.SIGTERM)
    try:
        program.wait(STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()


def _draw(rows: Sequence[Sequence[Cell]], interval_ms: int) -> None:
    begin(IMAGES)
    figure, panels = figure_of(1, 1)
    for program, colour in ((STREAMS, "#6a4fa3"), (GRETE, "#b3541e")):
        own = [row for row in rows if row[1] == program]
        for column, style in ((3, "o-"), (4, "o--")):
            label = f"{program}, {COLUMNS[column].removesuffix(' ms')}"
            panels[0].plot([row[0] for row in own], [row[column] for row in own], style, color=colour, label=label)
    panels[0].set(xlabel="stages of the job", ylabel="ms until a reader has the output", ylim=(0, None))
    panels[0].set_title(f"Exactly once on Kafka, a commit each {interval_ms:,} ms", fontsize=9)
    save(figure, panels, IMAGES / "chain-stages.svg")


def main(given: Mapping[str, str]) -> None:
    """Measure each cell and print its row at once."""
    say_where("confluent-kafka", "rocksdict")
    run, rows = taken("confluent-kafka", "rocksdict"), list[list[Cell]]()
    partitions, interval_ms, rate = (
        int(given.get(*each)) for each in (("partitions", 4), ("interval", 1_000), ("rate", 1_000))
    )
    warm_s, seconds = float(given.get("warm", 40)), float(given.get("seconds", 30))
    for stages in map(int, given.get("stages", "1,2,4,6").split(",")):
        for program in [STREAMS, GRETE] if os.environ.get("PEERS") else [GRETE]:
            chain = Chain(program, stages, partitions, interval_ms, rate, warm_s, seconds)
            with tempfile.TemporaryDirectory(prefix="grete-chain-") as name:
                rows.append([stages, program, *measure(chain, Path(name))])
            console.print(*rows[-1])
    title = (
        f"Until a reader has the output: {partitions} partitions, {rate:,} records/s, commits each {interval_ms:,} ms"
    )
    keep("chain", run, [Table(title, COLUMNS, rows)])
    if os.environ.get("WRITE"):
        _draw(rows, interval_ms)


if __name__ == "__main__":
    main(dict(argument.split("=", 1) for argument in sys.argv[1:]))
