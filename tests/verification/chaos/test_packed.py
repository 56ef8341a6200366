"""Processes that host several partitions die by SIGKILL: the chain job's outputs and states, judged from outside."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from grete.core.supervision.assignment import Assignment, HostedShare, HostedState
from grete.settings import Settings
from grete.state.read.local_reader import LocalReader
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.verification.chaos.chain import PARTITIONS, Chain, Given, Spread
from tests.verification.chaos.checker import Checker
from tests.verification.chaos.outside import Outside, names_at, outside_of, place_of
from tests.worker.workers import LIMIT_S

SOURCES, FEED = 12, 20
BACKLOG_MAX = 200  # inputs given and not yet out
SETTINGS = Settings(checkpoint_interval_ms=60, restart_backoff_ms=20, rocksdb_bytes=16 << 20)

# starts of brokers and workers, on a machine that has other tests to run
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


class Feeder:
    """Feeds the chain job, and takes what leaves it."""

    def __init__(self, outside: Outside) -> None:
        self.checker, self.fed = Checker(), 0
        self._outside, self._rng, self._numbers = outside, random.Random(1), [0] * SOURCES

    def step(self) -> None:
        """Feed a little, unless much is on its way, and read what came out."""
        rows = []
        for _ in range(FEED if self.fed - self.checker.entries < BACKLOG_MAX else 0):
            source = self._rng.randrange(SOURCES)
            self._numbers[source] += 1
            rows.append((b"source-%d" % source, msgspec.json.encode(Given(self._numbers[source]))))
        if rows:
            self._outside.feed(rows)
            self.fed += len(rows)
        self.look()

    def look(self) -> None:
        """Read what came out."""
        for row in self._outside.arrived():
            self.checker.entry(*row)


def judge(directory: Path, log: str, processes: int, kills: int, moves: int = 0) -> None:
    """Kill the processes in turn while the job is fed, let all come out, and compare with inputs and states.

    ``moves``: how often a partition is taken away, and comes again once it is gone, before the last kill.
    """
    place = place_of(directory, log)
    outside = outside_of(place)
    names, feeder = names_at(place), Feeder(outside)
    file = directory.with_name("chain_here.py")
    suffix = names.job.name.removeprefix("chain")
    file.write_text(f"from tests.verification.chaos.chain import chain_job\n\njob = chain_job({suffix!r}).job\n")
    deadline = time.monotonic() + LIMIT_S
    with LocalJob(
        names.job, str(file), place, SETTINGS, inputs=OutsideInputs([names.given]), share=HostedShare(processes)
    ) as local:
        assert sum(len(worker.partitions) for worker in local.supervisor.workers.values()) == PARTITIONS

        def until(condition: Callable[[], bool]) -> None:
            seen = feeder.checker.entries
            while not (condition() and feeder.checker.entries > seen):
                assert time.monotonic() < deadline, (local.supervisor.workers, local.supervisor.news)
                feeder.step()
                local.poll(5)

        def all_run() -> bool:
            return list(local.supervisor.hosted().values()) == [HostedState.RUNNING] * PARTITIONS

        everything = local.supervisor.core.assignment
        for move in range(moves):
            until(all_run)
            away = move % PARTITIONS
            local.supervisor.assign(Assignment(everything.active - {away}))
            while away in local.supervisor.hosted():  # it commits, and the others go on
                assert time.monotonic() < deadline, (local.supervisor.workers, local.supervisor.news)
                feeder.step()
                local.poll(5)
            local.supervisor.assign(everything)
        for kill in range(kills):
            until(all_run)
            local.supervisor.kill(kill % processes)
        while feeder.checker.entries < feeder.fed or not local.supervisor.takes_input:
            assert time.monotonic() < deadline, (feeder.fed, feeder.checker.entries, local.supervisor.news)
            feeder.look()
            local.poll(5)
        local.stop()
        local.require_stopped()
        assert all(
            worker.starts == 1 + (kills + processes - 1 - worker.number) // processes
            for worker in local.supervisor.workers.values()
        )
    for row in outside.all(names.given):
        feeder.checker.input(*row)
    feeder.checker.complete()
    with LocalReader(place.state_directory, names.job) as reader:
        feeder.checker.state("sources", feeder.checker.sources, reader.all(Spread.sources))
        feeder.checker.state("accounts", feeder.checker.accounts, reader.all(Chain.accounts))
    outside.close()
    assert feeder.checker.violations == []


@pytest.mark.parametrize("processes", [1, 2])
def test_packed_processes_die_on_the_embedded_log(tmp_path: Path, processes: int) -> None:
    """Each input comes out once, in order, though all tasks of a process end at once; and the state says the same."""
    judge(tmp_path / "job", "embedded", processes, kills=4)


@pytest.mark.kafka
def test_packed_processes_die_on_kafka(tmp_path: Path, kafka_broker: Broker) -> None:
    """The same over one consumer, one plain producer and a transactional producer for each sink task (S1)."""
    judge(tmp_path / "job", f"kafka://{kafka_broker.bootstrap}", 2, kills=3)


@pytest.mark.parametrize("processes", [1, 2])
def test_partitions_move_on_the_embedded_log(tmp_path: Path, processes: int) -> None:
    """Each input comes out once, in order, though tasks leave their process and come again, and it dies as well."""
    judge(tmp_path / "job", "embedded", processes, kills=1, moves=5)


@pytest.mark.kafka
def test_partitions_move_on_kafka(tmp_path: Path, kafka_broker: Broker) -> None:
    """The same over one consumer and one plain producer: a transactional one comes and goes with its sink task (S1)."""
    judge(tmp_path / "job", f"kafka://{kafka_broker.bootstrap}", 2, kills=1, moves=5)
