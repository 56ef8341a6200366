"""One measurement on Kafka: ``python -m benchmarks.on_kafka NAME BOOTSTRAP key=value …`` prints one JSON object.

What counts is seen from outside: by a consumer that reads committed messages only, and by the broker's clock.
"""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.counting import JOBS, PARTITIONS, Counted, events_topic
from benchmarks.peers.tools import PEERS, Peer
from grete.logs.address import KAFKA
from grete.protocol.report import TaskState, WorkerReport
from grete.settings import Settings, with_texts
from grete.worker.life.process_main import WorkerSpec
from grete.worker.supervisor.process_pool import ProcessPool

KEYS = 10_000
VALUE_BYTES = 80
LIMIT_S = 240.0
CHANGES = 50_000  # between two kills
SETTLE_S = 1.5
PEER_THREADS = 2  # as many as cores: more were slower
STATUS_S = 0.1  # between two statuses of a worker, at most
Result = dict[str, float]


class Watcher:
    """Reads a topic from its start as any consumer would, and notes when it saw what."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Begin to read."""
        config = {"group.id": "watcher", "isolation.level": "read_committed", "enable.auto.commit": False}
        speed = {"fetch.queue.backoff.ms": 10, "fetch.wait.max.ms": 10}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **config, **speed})
        self._consumer.list_topics(topic, timeout=10)  # or its first fetch may wait for a second
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def take(self, wait_s: float = 0.02) -> list[Message]:
        """Return the messages that have come, at the latest after ``wait_s``."""
        return self._consumer.consume(5_000, wait_s)

    def one(self) -> tuple[float, float]:
        """Return the times at which the next message was appended and seen, in s since 1970."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(1.0)
            if message is not None and message.error() is None:
                return message.timestamp()[1] / 1000, time.time()
        raise SystemExit(f"no output after {LIMIT_S:.0f} s")

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()


def make_topic(bootstrap: str, topic: str, partitions: int) -> bool:
    """Make a topic whose times are the broker's; return whether it was not there before."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(topic, partitions, 1, config={"message.timestamp.type": "LogAppendTime"})])
    try:
        made[topic].result(30)
    except KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
        return False
    return True


def send(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes]], **more: Any) -> None:
    """Send all records and wait for them; Kafka's partitioner places them."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random", "enable.idempotence": True}
    )
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, **more)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise SystemExit("the broker does not take the input")


def make_events(bootstrap: str, messages: int) -> None:
    """Make and fill the input of the counting job, once for all runs."""
    topic = events_topic(messages)
    if make_topic(bootstrap, topic, PARTITIONS):
        rng = random.Random(7)
        names = (b"k%05d" % rng.randrange(KEYS) for _ in range(messages))
        text = b'{"id":%d,"key":"%s","amount":%d,"note":"' + b"x" * 40 + b'"}'
        send(bootstrap, topic, ((name, text % (number, name, number % 997)) for number, name in enumerate(names)))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1] for number in range(PARTITIONS)
    ]
    consumer.close()
    if sum(ends) != messages:
        raise SystemExit(f"topic {topic} holds {sum(ends)} messages: delete it, it was not filled to its end")


def spec(
    bootstrap: str, directory: Path, partition: int, job: str = "benchmarks.counting", /, **settings: int | str
) -> WorkerSpec:
    """Return the spec of a worker of a module's job; the environment says which job that is."""
    return WorkerSpec(
        job=job,
        number=partition,
        partitions=(partition,),
        directory=str(directory / "job"),
        log=KAFKA + bootstrap,
        kafka_config=None,
        settings=with_texts(Settings(), {name: str(value) for name, value in settings.items()}),
        output=str(directory / f"worker-{partition}.log"),
    )


def count(bootstrap: str, messages: int, form: str, **settings: int | str) -> Result:
    """Count with one worker for each of four partitions: messages/s, as its readers see it.

    ``form``: a job of ``benchmarks.counting``, "bare" (the bare loop), or the name of a peer.
    """
    run = os.urandom(4).hex()
    topic = f"bench-counted-{run}"
    make_topic(bootstrap, topic, PARTITIONS)
    job = form if form in JOBS else "process"
    os.environ |= {"BENCH_RUN": run, "BENCH_JOB": job, "BENCH_MESSAGES": str(messages)}
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as name:
        directory = Path(name)
        (directory / "job").mkdir()
        watcher = Watcher(bootstrap, topic, PARTITIONS)
        spawner = ProcessPool(fixed_hashes=form == "deterministic")
        began = time.time()
        if form == "bare":
            make_topic(bootstrap, f"{topic}-changelog", PARTITIONS)
            command = [sys.executable, "-m", "benchmarks.bare_kafka", bootstrap, topic, str(messages), name]
            processes = [subprocess.Popen(command)]
        elif form in PEERS:
            processes = [_peer(PEERS[form], bootstrap, (events_topic(messages), topic), directory, **settings)]
        else:
            started = [spawner.start(spec(bootstrap, directory, p, **settings)) for p in range(PARTITIONS)]
            processes = [one.process for one in started]
        try:
            first, last_append, seen = _watch(watcher, messages, processes, directory)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
        watcher.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "messages_per_s": messages / (seen - first),
        "appended_per_s": messages / (last_append - first),
        "startup_s": first - began,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_mib": used.ru_maxrss / 1024,
    }


def _peer(
    peer: Peer, bootstrap: str, topics: tuple[str, str], directory: Path, *, checkpoint_interval_ms: int | str
) -> "subprocess.Popen[bytes]":
    """Start a peer's counting job; it ends with its standard input, so with us."""
    (directory / "peer").mkdir()
    more = [topics[1], str(directory / "peer"), peer.guarantee, str(checkpoint_interval_ms), str(PEER_THREADS)]
    with (directory / "worker-0.log").open("wb") as log:
        return subprocess.Popen(
            [*peer.tool.command("Count"), bootstrap, *topics, *more], stdin=subprocess.PIPE, stdout=log, stderr=log
        )


def _watch(
    watcher: Watcher, messages: int, processes: "Sequence[subprocess.Popen[bytes]]", directory: Path
) -> tuple[float, float, float]:
    """Return the times of the first output, of the last one, and at which all were seen; check that they are right."""
    decode = msgspec.json.Decoder(Counted).decode
    counts: dict[str, int] = {}
    first, last, total = float("inf"), 0.0, 0
    deadline = time.monotonic() + LIMIT_S
    while total < messages:
        for message in watcher.take():
            value, appended = message.value(), message.timestamp()[1] / 1000
            if value is None or message.error() is not None:
                continue
            first, last, total = min(first, appended), max(last, appended), total + 1
            one = decode(value)
            counts[one.key] = expected = counts.get(one.key, 0) + 1
            if one.count != expected:
                raise SystemExit(
                    f"key {one.key}: count {one.count} where {expected} was due: the measurement does not count"
                )
        if time.monotonic() > deadline or any(process.poll() for process in processes):
            logs = "".join(path.read_text()[-2_000:] for path in directory.glob("worker-*.log"))
            raise SystemExit(f"{total} of {messages} outputs, then no more: the measurement does not count\n{logs}")
    return first, last, time.time()


# --- coming back ---


class Statuses(threading.Thread):
    """Reads what a worker says of itself, until it ends: when it began, when it had restored its state, how much."""

    def __init__(self, pipe: int) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self.began = self.restored_at = 0.0
        self.records = 0
        self.restored = threading.Event()
        self.start()

    def run(self) -> None:
        """Read; one status a line."""
        os.set_blocking(self._pipe, True)
        with os.fdopen(self._pipe, "rb") as lines:
            for line in filter(bytes.strip, lines):  # an empty one is a sign of life
                (task,) = msgspec.json.decode(line, type=WorkerReport).tasks
                self.began = self.began or time.monotonic()
                self.records = task.counters.get("restored records", 0)
                if not self.restored_at and task.status is not TaskState.STARTING:
                    self.restored_at = time.monotonic()
                    self.restored.set()


class Restarts:
    """One worker with its state, killed and started in several ways."""

    def __init__(self, bootstrap: str, keys: int, directory: Path, **settings: int | str) -> None:
        """Make topics and state: each key once."""
        run = os.urandom(4).hex()
        os.environ |= {"BENCH_RUN": run, "BENCH_JOB": "keep"}
        self.bootstrap, self.keys, self.directory = bootstrap, keys, directory
        self.values = f"bench-values-{run}"
        for topic in (self.values, f"bench-told-{run}"):
            make_topic(bootstrap, topic, 1)
        (directory / "job").mkdir()
        self.spec = spec(bootstrap, directory, 0, **settings)
        self.spawner = ProcessPool()
        self.watcher = Watcher(bootstrap, f"bench-told-{run}", 1)
        self.rng = random.Random(5)
        self._send(range(keys))
        self._start()
        self._ask()
        self.watcher.one()

    def again(self, *, prewarmed: bool, delete: bool) -> Result:
        """Kill the worker, after 50,000 changes to its state, and start it; return when its first output was there."""
        self._send(self.rng.randrange(self.keys) for _ in range(CHANGES))
        self._ask()
        self.watcher.one()
        if prewarmed:
            self.spawner.warm()
            time.sleep(SETTLE_S)  # it has imported everything by then
        time.sleep(SETTLE_S)  # the checkpoint with the answer is committed and applied
        self._kill()
        if delete:
            shutil.rmtree(self.directory / "job" / "state")
        self._ask()
        began = time.time()
        self._start()
        appended, seen = self.watcher.one()
        told = self.statuses
        told.restored.wait(LIMIT_S)  # it says so a little later than its output is seen
        seconds = told.restored_at - told.began
        return {
            "appended_s": appended - began,
            "visible_s": seen - began,
            "records": told.records,
            "records_per_s": told.records / seconds if seconds > STATUS_S else 0.0,  # too few to tell
        }

    def close(self) -> None:
        """End the worker."""
        self._kill()
        self.spawner.close()
        self.watcher.close()

    def _start(self) -> None:
        self.worker, pipe, _ = self.spawner.start(self.spec)
        self.statuses = Statuses(pipe)

    def _kill(self) -> None:
        self.worker.kill()
        self.worker.wait()
        self.statuses.join()

    def _send(self, numbers: Iterable[int]) -> None:
        send(self.bootstrap, self.values, ((b"key-%012d" % n, b"%0*d" % (VALUE_BYTES, n)) for n in numbers))

    def _ask(self) -> None:
        """Let the worker tell of one key: the output that is waited for."""
        send(self.bootstrap, self.values, [(b"key-%012d" % 0, b"x" * VALUE_BYTES)], headers=[("tell", b"")])


def restart(bootstrap: str, keys: int, **settings: int | str) -> Result:
    """Come back with ``keys`` keys of 80 bytes: a new process or a prewarmed worker, with the state or without."""
    result: Result = {}
    with tempfile.TemporaryDirectory(prefix="grete-bench-") as name:
        restarts = Restarts(bootstrap, keys, Path(name), **settings)
        for label, prewarmed, delete in (
            ("cold", False, False),
            ("prewarmed", True, False),
            ("cold_deleted", False, True),
            ("prewarmed_deleted", True, True),
        ):
            result |= {
                f"{label}_{n}": figure for n, figure in restarts.again(prewarmed=prewarmed, delete=delete).items()
            }
        restarts.close()
    return result


def main(arguments: list[str]) -> None:
    """Run one measurement."""
    name, bootstrap, pairs = arguments[0], arguments[1], dict(text.split("=", 1) for text in arguments[2:])
    if name == "events":
        make_events(bootstrap, int(pairs["messages"]))
        result: Result = {}
    elif name == "count":
        result = count(bootstrap, int(pairs.pop("messages")), pairs.pop("form"), **pairs)
    elif name == "restart":
        result = restart(bootstrap, int(pairs.pop("keys")), **pairs)
    else:
        raise SystemExit(f"no measurement {name!r}: events, count, restart")
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
