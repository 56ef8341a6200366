"""Members that keep standbys for one another: a partition goes on where its standby is, and nothing counts twice."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from os import kill
from pathlib import Path
from typing import Any

import pytest

from grete.testing.broker.find import Broker
from tests.support.waiting import until
from tests.worker.test_members import KEYS, LIMIT_S, PARTITIONS, Machines

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

ALL = set(range(PARTITIONS))


class Pair(Machines):
    """Machines a and b, each with the standbys of the other."""

    standby_replicas = 1

    def start(self, machine: str) -> None:
        """Start a machine that serves its status."""
        replicas = f"--set=standby_replicas={self.standby_replicas}"
        self.up(machine, replicas, "--http=127.0.0.1:0", "--set=checkpoint_interval_ms=100")

    def status(self, machine: str) -> dict[str, Any]:
        """Return the content of /status.json of a machine, with its own processes: each shows those of all."""
        found = re.search(r"health: (http://\S+)", (self.directory / f"{machine}.log").read_text())
        if found is None:
            return {"workers": [], "standbys": []}
        with urllib.request.urlopen(f"{found[1]}/status.json", timeout=LIMIT_S) as answer:
            whole: dict[str, Any] = json.load(answer) or {}
        kinds = "workers", "standbys"
        return whole | {kind: [each for each in whole.get(kind, ()) if not each["host"]] for kind in kinds}

    def ready(self, machine: str) -> set[int]:
        """Return the partitions whose standbys on a machine have all that is committed."""
        tasks = {
            s["partition"]: s["tasks"].get(f"count-{s['partition']}", {}) for s in self.status(machine)["standbys"]
        }
        return {p for p, task in tasks.items() if task.get("status") == "standby" and task["position"] >= 0}

    def share(self) -> tuple[set[int], set[int]]:
        """Start both, give them records, and wait until the standbys have them; return the partitions of a and b."""
        self.start("a")
        self.until(self.shared_by("a"))
        self.give()
        self.start("b")
        found = self.until(self.shared_by("a", "b"))
        self.give()
        self.counted()
        if self.standby_replicas:
            others = set(found["b"]), set(found["a"])
            until(lambda: (self.ready("a"), self.ready("b")) == others, saw=self.logs)
        return set(found["a"]), set(found["b"])

    def pids(self, machine: str) -> list[int]:
        """Return the processes that a machine has started."""
        status = self.status(machine)
        return [each["pid"] for each in (*status["workers"], *status["standbys"]) if each["pid"] is not None]

    def require_warm(self, machine: str, partitions: set[int]) -> None:
        """These partitions began on a machine where a standby was: no record but those of the last commits came in."""

        def running() -> dict[str, Any] | None:
            tasks = {name: task for w in self.status(machine)["workers"] for name, task in w["tasks"].items()}
            began = [tasks.get(f"count-{partition}", {}).get("status") == "running" for partition in partitions]
            return tasks if all(began) else None

        tasks = until(running, "the page shows that they run", saw=self.logs)
        for partition in partitions:
            counters = tasks[f"count-{partition}"]["counters"]
            assert (counters.get("restores", 0), counters.get("wipes", 0), counters.get("redos")) == (0, 0, 1)
            assert counters.get("restored records", 0) < len(KEYS)
        (directory,) = {self.directory / machine / "logs"}
        for partition in partitions:
            assert '"standby started"' in (directory / f"standby-{partition}.log").read_text()


@pytest.fixture
def pair(kafka_broker: Broker, tmp_path: Path) -> Iterator[Pair]:
    """Two machines, neither of them started yet."""
    with closing(Pair(kafka_broker, tmp_path)) as made:
        yield made


@pytest.mark.chaos
def test_a_standby_goes_on_when_its_machine_dies(pair: Pair) -> None:
    """A machine dies with all its processes: the other one goes on from its standbys, then keeps none."""
    lost, _ = pair.share()
    pids = pair.pids("a")
    standbys = {each["pid"] for each in pair.status("b")["standbys"]}
    pair.kill("a")
    for pid in pids:
        with suppress(ProcessLookupError):  # it has lost its supervisor, and is ending
            kill(pid, signal.SIGKILL)
    pair.give()
    pair.until(pair.shared_by("b"))
    pair.require_warm("b", lost)
    status = pair.status("b")
    assert {w["pid"] for w in status["workers"] if w["number"] in lost} == standbys  # with all that they have loaded
    assert status["standbys"] == []
    pair.give()
    pair.require_exact()


@pytest.mark.chaos
def test_a_partition_moves_when_a_standby_has_caught_up(pair: Pair) -> None:
    """A join and a stop move no partition cold, also with no standbys to keep: they are made for the move."""
    pair.standby_replicas = 0
    _, moved = pair.share()
    pair.require_warm("b", moved)
    pair.ups["b"].send_signal(signal.SIGTERM)
    pair.give()
    assert pair.ups["b"].wait(LIMIT_S) == 0, pair.logs()
    pair.until(pair.shared_by("a"))
    pair.require_warm("a", moved)
    pair.require_exact()


def test_a_machine_answers_from_its_standbys(pair: Pair) -> None:
    """It has the state of each partition, run here or kept ready: it reads no changelog for a value or for all."""
    pair.share()
    counts = {key: counts[-1] for key, counts in pair.counted().items()}
    for machine in ("a", "b"):
        command = [sys.executable, "-m", "grete.cli", "state", "scan", str(pair.job), "seen", "--json"]
        command += [f"--log=kafka://{pair.bootstrap}", f"--directory={pair.directory / machine}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = map(json.loads, done.stdout.splitlines())
        assert ({row["key"]: row["value"] for row in rows}, done.stderr) == (counts, "")


def test_a_standby_that_fails_stops_no_machine(pair: Pair) -> None:
    """One that cannot open its store is started again, with back-off, and a person is told why; the job goes on."""
    pair.start("a")
    pair.until(pair.shared_by("a"))
    state = pair.directory / "b" / "state"
    state.mkdir(parents=True)
    blocked = {partition: state / f"count-{partition}" for partition in ALL}
    for path in blocked.values():
        path.write_text("no directory")
    pair.start("b")
    again = "standby of partition . has ended, as the last time; restart in"
    until(lambda: re.search(again, pair.logs()), again, saw=pair.logs)
    pair.give()
    pair.require_exact()
    for path in blocked.values():
        path.unlink()
    pair.until(pair.shared_by("a", "b"))
    assert "standby_replicas = 1, and members are on 1 machine: at most 0" in pair.logs()
