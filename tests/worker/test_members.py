"""Several `grete up` of one job on one broker, as on several machines: partitions move, and each record counts once."""

import json
import os
import platform
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from grete.core.graph.task_topology import TaskWiring
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import LogAddress
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.owners import refuse_if_owned
from grete.testing.broker.find import Broker
from grete.worker.members.members_seen import refuse_members
from tests.support.kafka_topics import create
from tests.support.waiting import Patience, until
from tests.worker.watched_members import WatchedMembers

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

PARTITIONS = 4
LIMIT_S = 120.0  # of any wait: far beyond what a slow machine needs
ASK_S = 0.2  # between two looks
LONG_FETCHES = "consumer.fetch.wait.max.ms=100\n"  # else half of the computing is to ask for what is not there
KEYS = [f"key-{number}" for number in range(24)]
CODE = """
import os
from grete import Input, Job, Output, Record, Store, Task, Topic, int64, utf8

lines = Topic("{name}-lines", key=utf8, value=utf8)
counts = Topic("{name}-counts", key=utf8, value=int64)


class Count(Task):
    lines = Input(lines)
    counts = Output(counts)
    seen = Store("seen", key=utf8, value=int64)

    def process(self, record: Record[str, str]) -> None:
        if record.value == "poison" and not os.path.exists("{healed}"):
            raise SystemExit(4)
        count = self.seen.get(record.key, 0) + 1
        self.seen.put(record.key, count)
        self.counts.send(record.key, count)


job = Job("{name}", stages=[Count], partitions=4)
"""


class Machines:
    """One job, a broker, and as many `grete up` as a test starts, each with a directory and a process group."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.name = f"members-{uuid4().hex[:8]}"
        self.directory, self.bootstrap = directory, broker.bootstrap
        self.job = directory / "job.py"
        self.job.write_text(CODE.format(name=self.name, healed=directory / "healed"))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for topic in ("lines", "counts"):
            create(admin, NewTopic(f"{self.name}-{topic}", PARTITIONS, 1))
        self.producer = Producer({"bootstrap.servers": broker.bootstrap})
        self.ups: dict[str, subprocess.Popen[bytes]] = {}
        self.given = 0
        self.options = directory / "kafka.properties"
        self.options.write_text(LONG_FETCHES)
        self.watched = WatchedMembers(broker.bootstrap, self.name)

    def command(self, *arguments: str) -> list[str]:
        """Return a command line of grete about this job."""
        command, *options = arguments
        log = f"--log=kafka://{self.bootstrap}"
        return [sys.executable, "-m", "grete.cli", command, str(self.job), log, *options]

    def up(self, machine: str, *more: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a machine."""
        out = (self.directory / f"{machine}.log").open("ab")
        options = [f"--directory={self.directory / machine}", f"--set=machine={machine}", *more]
        options += [] if any(each.startswith("--kafka-config") for each in more) else [f"--kafka-config={self.options}"]
        with out:
            started = subprocess.Popen(
                self.command("up", *options),
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=self.directory,
                env={**os.environ, **environment},
            )
        self.ups[machine] = started
        return started

    def kill(self, machine: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a machine: to its `grete up` and all of its workers."""
        os.killpg(self.ups[machine].pid, number)

    def give(self, rounds: int = 5) -> None:
        """Add records, some of each key."""
        for _ in range(rounds):
            self.given += 1
            for key in KEYS:
                self.producer.produce(f"{self.name}-lines", key=key, value="line")
        self.producer.flush(LIMIT_S)

    def members(self) -> list[dict[str, object]]:
        """Return the rows of `grete members`: of those that live, and of those that are silent."""
        done = subprocess.run(self.command("members", "--json"), capture_output=True, text=True, check=True)
        return list(map(json.loads, done.stdout.splitlines()))

    def until(self, condition: Callable[[dict[str, list[int]]], bool]) -> dict[str, list[int]]:
        """Wait until the members say something."""
        found = dict[str, list[int]]()

        def is_so() -> bool:
            nonlocal found
            found = self.watched.running()
            return condition(found)

        until(is_so, "what the members say", step=lambda: None, saw=lambda: f"{found}\n{self.logs()}")
        return found

    def shared_by(self, *machines: str) -> Callable[[dict[str, list[int]]], bool]:
        """Return whether just these machines run all partitions, evenly."""

        def condition(found: dict[str, list[int]]) -> bool:
            counts = sorted(map(len, found.values()))
            whole = sorted(p for owned in found.values() for p in owned) == list(range(PARTITIONS))
            return set(found) == set(machines) and whole and counts[-1] - counts[0] <= 1

        return condition

    def until_said(self, machine: str, words: str) -> None:
        """Wait until a machine has printed something."""
        path = self.directory / f"{machine}.log"
        until(lambda: words in path.read_text(), words, saw=self.logs)

    def logs(self) -> str:
        """Return the output of the machines."""
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3_000:]}" for path in self.directory.glob("*.log"))

    def counted(self) -> dict[str, list[int]]:
        """Wait until all records are counted; return key → the outputs, in their order."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "recount", "isolation.level": "read_committed"}
        )
        consumer.assign([KafkaPartition(f"{self.name}-counts", number, 0) for number in range(PARTITIONS)])
        found: dict[str, list[int]] = defaultdict(list)
        patience = Patience(f"{self.given} of each key", lambda: f"{dict(found)}\n{self.logs()}")
        while sum(map(len, found.values())) < self.given * len(KEYS):
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found[(message.key() or b"").decode()].append(int.from_bytes(message.value() or b"", "big"))
            patience.check()
        consumer.close()
        return dict(found)

    def require_exact(self) -> None:
        """Each record was counted once, and the counts of a key came out in their order."""
        assert self.counted() == {key: list(range(1, self.given + 1)) for key in KEYS}

    def close(self) -> None:
        """End what still runs."""
        self.watched.close()
        for started in self.ups.values():
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait(LIMIT_S)


@pytest.fixture
def machines(kafka_broker: Broker, tmp_path: Path) -> Iterator[Machines]:
    """A job on a broker, without a machine yet."""
    with ExitStack() as opened:
        made = Machines(kafka_broker, tmp_path)
        opened.callback(made.close)
        yield made


@pytest.mark.chaos
def test_machines_come_sleep_die_and_go(machines: Machines) -> None:
    """A join moves half, a frozen machine and a killed one lose theirs, a stopped one hands over: all is exact."""
    first = machines.up("a")
    machines.until(machines.shared_by("a"))
    machines.give()
    machines.up("b")
    machines.until(machines.shared_by("a", "b"))
    machines.give()
    machines.kill("a", signal.SIGSTOP)  # it believes that its partitions are its own
    machines.until(machines.shared_by("b"))
    assert [row["partitions"] for row in machines.members() if row["state"] == "silent"] == [{}]  # others run them
    machines.give()
    machines.kill("a", signal.SIGCONT)
    machines.until(machines.shared_by("a", "b"))
    machines.give()
    machines.kill("b")
    machines.until(machines.shared_by("a"))
    machines.up("c")
    machines.give()
    machines.until(machines.shared_by("a", "c"))
    first.send_signal(signal.SIGTERM)
    assert first.wait(LIMIT_S) == 0, machines.logs()
    machines.give()
    machines.until(machines.shared_by("c"))
    machines.require_exact()


@pytest.mark.chaos
def test_a_machine_that_comes_and_goes_again_and_again(machines: Machines) -> None:
    """Each time it takes its share and hands it over, while records come."""
    machines.up("stays")
    machines.until(machines.shared_by("stays"))
    for _ in range(3):
        restless = machines.up("restless")
        machines.until(machines.shared_by("stays", "restless"))
        machines.give()
        restless.send_signal(signal.SIGTERM)
        machines.give()
        assert restless.wait(LIMIT_S) == 0, machines.logs()
    machines.until(machines.shared_by("stays"))
    machines.require_exact()


def test_a_second_folder_with_the_code_of_a_job_joins_it_and_says_so(machines: Machines) -> None:
    """The name is the job: who meant another one reads at the start which members there are, and since when."""
    machines.up("a")
    machines.until(machines.shared_by("a"))
    assert "1 member of the job: a" in (machines.directory / "a.log").read_text()
    elsewhere = machines.directory / "elsewhere"
    elsewhere.mkdir()
    machines.job = machines.job.rename(elsewhere / "job.py")
    machines.up("b")
    machines.until(machines.shared_by("a", "b"))
    first = (machines.directory / "b.log").read_text().splitlines()
    (joins,) = [line for line in first if "joins job" in line]
    assert joins.startswith(f"joins job {machines.name!r}, which runs on a (since 20")
    machines.job.write_text(machines.job.read_text().replace(f'Job("{machines.name}"', f'Job("{machines.name}-2"'))
    machines.up("c")  # of another name: a job of its own
    machines.until_said("c", "1 member of the job: c")
    machines.job.write_text(machines.job.read_text().replace(f'Job("{machines.name}-2"', f'Job("{machines.name}"'))
    began = {row["machine"]: row["since_ms"] for row in machines.members() if row["state"] != "silent"}
    assert set(began) == {"a", "b"}
    assert all(isinstance(since_ms, int) for since_ms in began.values())


def test_only_a_machine_that_did_not_leave_is_watched(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command on another machine knows at once that workers have ended which a member has named when it left.

    Of one that was killed nothing says so: its changelogs are watched.
    """
    watched = list[set[str]]()
    job, settings = load_job(str(machines.job)), Settings()
    address = LogAddress(f"kafka://{machines.bootstrap}")

    def look(_log: object, tasks: Mapping[TaskWiring, object], *_: object) -> None:
        watched.append({wiring.name for wiring in tasks})

    monkeypatch.setattr(platform, "node", lambda: "another-machine")
    monkeypatch.setattr("grete.state.read.owners._watch", look)
    with closing(JobDirectory(machines.directory / "looks", address=address).open_log()) as log:
        for number in (signal.SIGTERM, signal.SIGKILL):
            machines.up("a")
            machines.until(machines.shared_by("a"))
            if number is signal.SIGTERM:
                machines.ups["a"].send_signal(number)  # its workers are stopped by it
            else:
                machines.kill("a", number)
            machines.ups["a"].wait(LIMIT_S)
            refuse_if_owned(log, all_wirings(job), settings, refuse_members(job, address, settings))
    assert watched == [{f"count-{partition}" for partition in range(PARTITIONS)}]


@pytest.mark.parametrize("command", [["run"], ["rescale", "--partitions=8"]])
def test_what_takes_all_partitions_is_refused_beside_members(machines: Machines, command: list[str]) -> None:
    """It would take them from members on other machines: it says who is there, and the way."""
    machines.up("a")
    machines.until(machines.shared_by("a"))
    refused = subprocess.run(
        machines.command(*command, f"--directory={machines.directory / 'other'}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert f"members of job {machines.name!r} run on a" in refused.stderr
    assert "grete members JOB" in refused.stderr
