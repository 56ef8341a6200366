"""On Kafka: the state of ``benchmarks.restoring`` comes back, and Kafka Streams restores as many keys there.

The same broker, partitions, keys and values, in key order in both changelogs, without compression; Kafka Streams with
its standard store and settings, exactly once, a thread for each partition in one process, where ours has a process for
each. Its JVM has been started when its clock starts, and its newest keys are in memory when it stops; ours are on disk.
"""

import json
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.reading import PARTITIONS
from benchmarks.restoring import restoring, value_of
from grete.spark.java import call, find_java
from grete.testing.broker import find_broker

SOURCES = Path(__file__).with_name("kafka_streams")
FETCH_S_MAX = 600.0
LIMIT_S = 1_800.0
CHANGELOG = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}


def on_kafka(directory: Path, keys: int, cores: int) -> dict[str, float]:
    """Measure both, on a broker of their own."""
    with find_broker(directory / "broker", loaded=True) as broker:
        result = restoring(directory, keys, cores, f"kafka://{broker.bootstrap}")
        if shutil.which("mvn") is None:  # a broker by Docker does without
            return result
        return result | _streams(directory, broker.bootstrap, keys)


def _streams(directory: Path, bootstrap: str, keys: int) -> dict[str, float]:
    """Return the seconds from its start() to RUNNING with all keys in RocksDB, on an empty disk.

    Its changelog is written here, each key once: what Kafka Streams itself would have written, without its hour.
    """
    libraries = directory / "libraries"
    fetch = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:copy-dependencies"]
    call("Kafka Streams", [*fetch, f"-DoutputDirectory={libraries}"], FETCH_S_MAX, "fetching its jars with Maven")
    name = f"keep-{uuid.uuid4().hex}"
    _fill(bootstrap, name, keys)
    command = [find_java(), "-Xmx1g", "-cp", f"{libraries}/*", str(SOURCES / "KeepNewest.java")]
    with tempfile.TemporaryDirectory(dir=directory) as state:
        arguments = [bootstrap, name, state, f"{name}-pairs", str(PARTITIONS)]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        size = sum(file.stat().st_size for file in Path(state).rglob("*") if file.is_file()) / (1 << 20)
    if done.returncode:
        raise SystemExit(f"Kafka Streams failed:\n{done.stderr[-4000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["restored"] < keys:
        raise SystemExit(f"{found['restored']} records of {keys} were restored: the measurement does not count")
    return {"streams_s": found["seconds"], "streams_cpu_s": found["cpu"], "streams_mib": size}


def _fill(bootstrap: str, name: str, keys: int) -> None:
    """Make the topics, and the changelog with each key once; it is not compacted while it is read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    changelog = f"{name}-kept-changelog"
    compacted = NewTopic(changelog, PARTITIONS, 1, config=CHANGELOG)
    for made in admin.create_topics([NewTopic(f"{name}-pairs", PARTITIONS, 1), compacted]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(keys):
        while True:
            try:
                producer.produce(
                    changelog, key=b"key-%012d" % number, value=value_of(number), partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(600):
        raise SystemExit(f"the broker has not taken {left:,} records of Kafka Streams' changelog")
