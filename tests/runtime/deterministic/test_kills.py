"""A deterministic job with real workers that are killed: its output is what its sources' decisions make of it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from framework import Job
from framework.logs.open import IN_DIRECTORY, LogAddress
from framework.ports import ExternalRecord
from framework.runtime.local import LocalRun
from framework.runtime.place import Place, load_job
from framework.settings import Settings
from framework.testing.broker import Broker
from protocol.ids import TopicPartition
from tests.runtime.deterministic.reference import expected, sent

LINES = 240
KILL_AT = {40: 0, 90: 1, 140: 0, 141: 1}  # after so many lines → partition
PATIENCE_S = 60.0
WORDS = str(Path(__file__).with_name("words.py"))


def split(line: str) -> list[tuple[str, str]]:
    """Return what stage split makes of a line."""
    return [(word, f"{line}/{word}") for word in line.split()]


def all_running(run: LocalRun) -> bool:
    """Tell whether every task has restored its state."""
    statuses = [worker.status for worker in run.supervisor.workers.values()]
    return all(status and all(task["status"] == "running" for task in status.values()) for status in statuses)


def poll_until(run: LocalRun, done: Callable[[], bool]) -> None:
    """Let the supervisor work until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"the job does not get there: {run.versions()}"
        run.poll(20)


def run_with_kills(job: Job, place: Place) -> None:
    """Run the job, kill workers while lines come in, and compare what stands outside with the reference."""
    (topic,), (output,) = job.topology().externals_of(0), job.external_sinks()
    settings = Settings(interval_ms=300, backoff_ms=20)
    with LocalRun(job, WORDS, place, settings, fed=[topic]) as run:
        log = place.open_log()
        for number in range(LINES):
            line = f"line{number} to be or not to be {number % 7}"
            now = int(time.time() * 1_000)  # Kafka deletes what looks a week old
            log.produce(0, 0, [ExternalRecord(TopicPartition(topic, number % 2), None, line.encode(), now)])
            log.poll()
            run.poll(10)
            if number in KILL_AT:
                poll_until(run, lambda: all_running(run))
                run.supervisor.kill(KILL_AT[number])
        poll_until(run, lambda: run.drained(run.ends()))
        statuses = [worker.status for worker in run.supervisor.workers.values()]
        assert all(task["generation"] > 1 for status in statuses for task in status.values())
        found, wanted = sent(log, output, job.partitions), expected(log, job, split)
        assert found == wanted
        assert sum(map(len, found.values())) > 6 * LINES
        run.stop()
        log.close()


def test_killed_workers_change_no_byte_of_the_output(tmp_path: Path) -> None:
    """D1-D5: each output once, in order, with its seq and time, whoever was killed when, and long before commits."""
    run_with_kills(load_job(WORDS), Place(tmp_path / "job", address=IN_DIRECTORY))


@pytest.mark.kafka
def test_the_same_on_kafka(kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D5 by transactions: a reader of committed records sees each output once."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    run_with_kills(load_job(WORDS), Place(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}")))
