"""A large job through an outage: `python -m tests.worker.outage_prove --seconds 240`. Long: not for pytest.

Three stages of 64 tasks each run in a few processes under `grete up`. The only broker is frozen or killed, for less
than `send_timeout_ms`, and comes back. No worker is to end in that time, and each input is counted once. It prints
what `grete up` said, how each worker ended, and how long the job took to go on. It ends by itself.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.testing.broker import settings
from tests.support.kafka_topics import create
from tests.verification.chaos.cluster import NOTICED_SOON, Cluster

INPUTS = 640  # ten for each partition, each time
START_S_MAX, BACK_S_MAX = 400.0, 400.0  # on a machine of two cores that does other work, too
STEP_S, BEHIND_S = 0.5, 10.0  # of a read; of reads for what is there twice
LINE_MAX = 300  # letters of an error

JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8
first, second = Topic("first", key=utf8, value=int64), Topic("second", key=utf8, value=int64)

class Read(Task):
    ticks = Input(Topic("ticks", key=utf8, value=utf8))
    out = Output(first)
    def process(self, record: Record[str, str]) -> None:
        self.out.send(record.key, 1)

class Pass(Task):
    given = Input(first)
    seen = Store("seen", key=utf8, value=int64)
    out = Output(second)
    def process(self, record: Record[str, int]) -> None:
        self.seen.put(record.key, self.seen.get(record.key, 0) + 1)
        self.out.send(record.key, record.value)

class Count(Task):
    given = Input(second)
    total = Store("total", key=utf8, value=int64)
    out = Output(Topic("counts", key=utf8, value=utf8))
    def process(self, record: Record[str, int]) -> None:
        n = self.total.get(record.key, 0) + 1
        self.total.put(record.key, n)
        self.out.send(record.key, f"{record.key} {n}")

job = Job("outage", stages=[Read, Pass, Count], partitions=PARTITIONS)
"""


def main(arguments: list[str]) -> int:
    """Run it; return 1 if an input is lost or counted twice, if the job does not go on, or if a worker has ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.worker.outage_prove", description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=240.0, help="for which the broker is away")
    parser.add_argument("--away", choices=("frozen", "dead"), default="frozen")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the job")
    given = parser.parse_args(arguments)
    settings.ANSWER_S_MAX = BACK_S_MAX  # beside many workers a broker takes longer than alone
    with tempfile.TemporaryDirectory() as name, Cluster(Path(name) / "kafka", changed=NOTICED_SOON) as cluster:
        return int(not Outage(cluster, Path(name), given).run())


class Outage:
    """One job and its broker."""

    def __init__(self, cluster: Cluster, folder: Path, given: argparse.Namespace) -> None:
        self._cluster, self._folder, self._given, self._fed = cluster, folder, given, 0
        self._started = time.monotonic()
        partitions: int = given.partitions
        self._counts = Counter[str]()  # what readers have seen
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create(admin, *[NewTopic(each, partitions) for each in ("ticks", "counts")])
        options = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
        self._reader = Consumer({"bootstrap.servers": cluster.bootstrap, **options})
        self._reader.assign([KafkaPartition("counts", number, 0) for number in range(partitions)])
        (folder / "job.py").write_text(JOB.replace("PARTITIONS", str(partitions)))

    def run(self) -> bool:
        """Run the job through the outage; tell whether all went well."""
        given, said = self._given, self._folder / "up.txt"
        sets = [each for setting in given.set for each in ("--set", setting)]
        options = [f"--log=kafka://{self._cluster.bootstrap}", f"--directory={self._folder / 'job'}", *sets]
        command = [sys.executable, "-m", "grete.cli", "up", str(self._folder / "job.py"), *options]
        with said.open("w") as out:
            job = subprocess.Popen([*command, f"--processes={given.processes}"], stdout=out, stderr=subprocess.STDOUT)
        try:
            self._feed()
            if not self._wait(self._is_done, job, START_S_MAX, "the job works"):
                return False
            self._leave()
            time.sleep(given.seconds)
            self._come_back()
            self._feed()
            went_on = self._wait(self._is_done, job, BACK_S_MAX, "all is counted")
        finally:
            job.send_signal(signal.SIGTERM)
            try:
                code = job.wait(BACK_S_MAX)
            except subprocess.TimeoutExpired:
                job.kill()
                code = job.wait()
        ends = self._ends()
        self._tell(f"grete up ended with {code}, and said:\n{said.read_text()}")
        self._tell(f"{given.away} for {given.seconds:.0f} s, {given.processes} processes; workers that ended: {ends}")
        return went_on and self._right() and code == 0 and not ends

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "partitioner": "murmur2_random"})
        for number in range(INPUTS):
            producer.produce("ticks", b"tick", b"k%d" % number)
        assert producer.flush(60) == 0
        self._fed += 1

    def _leave(self) -> None:
        self._tell(f"the broker is {self._given.away}")
        (self._cluster.freeze if self._given.away == "frozen" else self._cluster.kill)(0)

    def _come_back(self) -> None:
        (self._cluster.thaw if self._given.away == "frozen" else self._cluster.start)(0)
        self._tell("the broker is back")

    def _is_done(self) -> bool:
        """Read what is there now; a broker that is away has nothing."""
        messages = self._reader.consume(INPUTS, STEP_S)
        self._counts.update((message.value() or b"").decode() for message in messages if not message.error())
        return self._counts.total() >= self._fed * INPUTS

    def _right(self) -> bool:
        """Whether each input was counted once."""
        wanted = {f"k{number} {n}" for number in range(INPUTS) for n in range(1, self._fed + 1)}
        counts, behind = self._counts, time.monotonic() + BEHIND_S
        while time.monotonic() < behind:  # is there more than that?
            self._is_done()
        self._reader.close()
        self._tell(f"{len(wanted - set(counts))} counts are missing, {counts.total() - len(counts)} are there twice")
        return set(counts) == wanted and counts.total() == len(wanted)

    def _wait(self, condition: Callable[[], bool], job: "subprocess.Popen[bytes]", seconds: float, what: str) -> bool:
        began = time.monotonic()
        while not condition():
            if job.poll() is not None or time.monotonic() > began + seconds:
                self._tell(f"waited in vain until {what}")
                return False
        self._tell(f"{what}, after {time.monotonic() - began:.1f} s")
        return True

    def _ends(self) -> Counter[str]:
        """Return the signs that a worker has ended: errors, lines of libraries, and starts after the first.

        One that gave up waiting or was ended by a signal has started again.
        """
        found, starts = Counter[str](), Counter[str]()
        for path in sorted((self._folder / "job" / "logs").glob("worker-*.log")):
            for line in path.read_text().splitlines():
                said = json.loads(line) if line.startswith("{") else {"level": "ERROR", "event": line}
                starts[path.stem] += said.get("id") == "worker-started"
                ours = "id" in said or not line.startswith(("{", "%"))
                ours = ours and said.get("id") != "kafka-client"  # the client tells of its connections
                if ours and said["level"] in ("ERROR", "CRITICAL"):
                    found[f"{path.stem}: {said['event']} {said.get('error', '')}"[:LINE_MAX]] += 1
        return found + Counter({f"{name}: started again": count - 1 for name, count in starts.items()})

    def _tell(self, line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - self._started:6.1f} s] {line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
