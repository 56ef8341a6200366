"""A job whose transactions end late: each attempt takes one end off the line and delivers it within the next one."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from grete.protocol.ids import TopicPartition
from grete.testing.broker import Broker
from grete.testing.late_end import LateEndLine, LateStage
from tests.logs.outputs import end_of, visible
from tests.support.kafka_topics import create

LIMIT_S = 30.0  # of any wait: a hang is a failure, and nothing else is
RENEWAL = re.compile(r"has a new epoch, after (\d+) ms")
BATCH = 6  # inputs: two of each of three keys
MODES = {"aligned": "", "transactional": ', mode="deterministic"'}

JOB = """
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

class Count(Task):
    given = Input(Topic("{name}-in", key=utf8, value=utf8))
    totals = Store("totals", key=utf8, value=int64)
    out = Output(Topic("{name}-out", key=utf8, value=utf8))

    def process(self, record: Record[str, str]) -> None:
        n = self.totals.get(record.key, 0) + 1
        self.totals.put(record.key, n)
        self.out.send(record.key, f"{{record.value}} {{n}}")

job = Job("{name}", stages=[Count], partitions=1{mode})
"""


class Found(NamedTuple):
    """The errors in the outputs: inputs that are missing or repeated, and keys whose counts have gaps."""

    lost: tuple[str, ...]
    twice: tuple[str, ...]
    jumps: tuple[str, ...]


class SinkScene:
    """One worker of one job, which reaches its broker at an address of its own; inputs and outputs go past that."""

    def __init__(self, broker: Broker, address: str, folder: Path, mode: str, options: Sequence[str] = ()) -> None:
        """``options`` of the worker's command line."""
        self._broker, self._folder = broker, folder
        self._options = [f"--directory={folder / 'job'}", f"--log=kafka://{address}", *options]
        self.name = f"t{os.urandom(6).hex()}"
        self.changelog, self.out = f"{self.name}.count.changelog", f"{self.name}-out"
        self._out = TopicPartition(self.out, 0)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create(admin, NewTopic(f"{self.name}-in", 1), NewTopic(self.out, 1))
        self._feeder = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
        self._settings = ["checkpoint_interval_ms=100"]
        self._settings += [] if mode == "aligned" else [f"output_delivery={mode}"]
        self._job = folder / "job.py"
        self._job.write_text(JOB.format(name=self.name, mode=MODES[mode]))
        self.fed = 0
        self.ends: list[int] = []  # exit codes of workers that were not killed
        self.log = folder / "worker.log"
        self._worker = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        sets = [each for setting in self._settings for each in ("--set", setting)]
        command = [sys.executable, "-m", "grete.cli", "worker", str(self._job), "--partition=0", *sets]
        return self.launch([*command, *self._options])

    def launch(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Start the worker; what it says goes to its log."""
        with self.log.open("ab") as log:
            environment = os.environ | {"PYTHONHASHSEED": "0"}
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)

    def feed(self) -> None:
        """Append a batch of inputs."""
        for number in range(self.fed, self.fed + BATCH):
            self._feeder.produce(f"{self.name}-in", str(number), f"k{number % 3}", partition=0)
        assert self._feeder.flush(LIMIT_S) == 0
        self.fed += BATCH

    def outputs(self) -> list[tuple[str, int]]:
        """Return the records that a reader of committed ones sees, once the last input is among them."""
        last = str(self.fed - 1)
        for _ in range(int(LIMIT_S / 0.1)):
            found = [value.decode().split() for value in visible(self._broker, self._out)]
            if any(value == last for value, _ in found):
                return [(value, int(n)) for value, n in found]
            try:
                self.ends.append(self._worker.wait(0.1))
            except subprocess.TimeoutExpired:
                continue
            self._worker = self._start()
        raise AssertionError(f"the job does not go on: {self.log.read_text()[-2_000:]}")

    def found(self) -> Found:
        """Return the faults of the outputs."""
        outputs = self.outputs()
        count = Counter(value for value, _ in outputs)
        counts = defaultdict[str, list[int]](list)
        for value, n in outputs:
            counts[f"k{int(value) % 3}"].append(n)
        return Found(
            tuple(str(each) for each in range(self.fed) if not count[str(each)]),
            tuple(value for value, times in count.items() if times > 1),
            tuple(key for key, each in counts.items() if each != list(range(1, self.fed // 3 + 1))),
        )

    def renewals(self) -> list[int]:
        """Return the ms that each new epoch took."""
        return [int(each) for each in RENEWAL.findall(self.log.read_text())]

    def transactions(self) -> int:
        """Return the number of transactions with outputs that were committed: each has left a mark behind them."""
        return end_of(self._broker, self._out) - len(visible(self._broker, self._out))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.kill()
        self._worker.wait()


class LateEndScene(SinkScene):
    """Its worker reaches the broker by a line on which ends come late."""

    def __init__(self, broker: Broker, line: LateEndLine, folder: Path, mode: str) -> None:
        self._line = line
        super().__init__(broker, f"127.0.0.1:{line.port}", folder, mode)

    def attempt(self, *, outputs_first: bool, killed: bool) -> int | None:
        """Let one end come late, and more inputs follow; return the broker's answer to it."""
        first, second = (self.out, self.changelog) if outputs_first else (self.changelog, self.out)
        attempt = self._line.attempt(f"{self.changelog}-0", first, second)
        self.feed()
        assert attempt.reaches(LateStage.REPEATED, LIMIT_S), (attempt.stage, self.log.read_text()[-2_000:])
        self.feed()
        assert attempt.reaches(LateStage.LATE, LIMIT_S), (attempt.stage, self.log.read_text()[-2_000:])
        if killed:
            self._worker.send_signal(signal.SIGKILL)
            self._worker.wait()
            attempt.drop()
            self._worker = self._start()
        else:
            attempt.go_on()
        self.feed()
        self.outputs()
        return attempt.code
