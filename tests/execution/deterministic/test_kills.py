"""Deterministic stages with real workers that are killed: their output is what the sources' decisions make of it."""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from grete import Job, Once
from grete.core.supervision.assignment import HostedShare
from grete.errors import Halted
from grete.execution.limits import UNPACED_PARTITIONS_MAX
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.logs.address import IN_DIRECTORY, LogAddress
from grete.ports import ExternalRecord, Log
from grete.protocol.ids import TopicPartition
from grete.protocol.report import TaskState
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.execution.deterministic.reference import expected, rows_of, sent

pytestmark = pytest.mark.chaos

LINES = 240
KILL_AT = {40: 0, 90: 1, 140: 0, 141: 1}  # after that many lines → partition
PATIENCE_S = 180.0
DAY_MS = 86_400_000  # checkpoints close at its multiples, which tests do not meet as they meet those of 10 minutes
OutputDelivery = Literal["transactional", "sequenced"]
WORDS, MIXED, DRAWN = (str(Path(__file__).with_name(name)) for name in ("words.py", "mixed_words.py", "drawn_lines.py"))


def split(line: str) -> list[tuple[str, str]]:
    """Return the words that stage split makes of a line."""
    return [(word, f"{line}/{word}") for word in line.split()]


def all_running(run: LocalJob) -> bool:
    """Tell whether every task has restored its state."""
    statuses = [worker.reports.tasks for worker in run.supervisor.workers.values()]
    return all(status and all(task.status is TaskState.RUNNING for task in status.values()) for status in statuses)


def poll_until(run: LocalJob, done: Callable[[], bool]) -> None:
    """Let the supervisor work until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"the job does not get there: {run.checkpoint_ids()}"
        run.poll(20)


def run_with_kills(
    reference: str,
    job_directory: JobDirectory,
    check: Callable[[Log, Job], None],
    output_delivery: OutputDelivery = "transactional",
    processes: int | None = None,
    **besides: Any,
) -> None:
    """Run the job, kill workers while lines come in, and check what is outside."""
    job = load_job(reference)
    (topic,) = job.topology().externals_of(0)
    usual = {"checkpoint_interval_ms": 300, "restart_backoff_ms": 20, "output_delivery": output_delivery}
    settings = Settings(**usual | besides)
    with LocalJob(
        job, reference, job_directory, settings, inputs=OutsideInputs([topic]), share=HostedShare(processes)
    ) as run:
        log = job_directory.open_log()
        for number in range(LINES):
            line = f"line{number} to be or not to be {number % 7}"
            now = int(time.time() * 1_000)  # Kafka deletes what looks a week old
            log.produce(
                0, 0, [ExternalRecord(TopicPartition(topic, number % job.partitions), None, line.encode(), now)]
            )
            log.poll()
            run.poll(10)
            if number in KILL_AT:
                poll_until(run, lambda: all_running(run))
                run.supervisor.kill(KILL_AT[number])
        poll_until(run, lambda: run.drained(run.ends()))
        statuses = [worker.reports.tasks for worker in run.supervisor.workers.values()]
        assert all(task.generation > 1 for status in statuses for task in status.values())
        check(log, job)
        run.stop()
        log.close()


def the_reference_is_outside(log: Log, job: Job) -> None:
    """Check that the outputs are those of a run without failures, byte for byte."""
    (output,) = job.external_sinks()
    found, wanted = sent(log, output, job.partitions), expected(log, job, split)
    assert found == wanted
    assert sum(map(len, found.values())) > 6 * LINES


def the_reference_for_once(log: Log, job: Job) -> None:
    """The same for a reader that drops what it has seen: of a dead worker, messages may arrive late."""
    (output,) = job.external_sinks()
    once, found = Once(), sent(log, output, job.partitions)
    for partition, records in found.items():
        ours = [[("grete", f"{record.seq} {record.t} {record.producer}".encode())] for record in records]
        found[partition] = [
            record for record, headers in zip(records, ours, strict=True) if once.is_new(output, partition, headers)
        ]
    assert found == expected(log, job, split)


def each_is_outside_once(log: Log, job: Job) -> None:
    """Check that the aligned stages have taken each record of the deterministic ones once, in order, in one attempt."""
    (output,) = job.external_sinks()
    wanted: dict[bytes, list[str]] = defaultdict(list)
    for records in expected(log, job, split).values():
        for record in records:
            wanted[record.key].append(record.value.decode())
    found: dict[bytes, list[list[str]]] = defaultdict(list)
    for partition in range(job.partitions):
        for _, _, _, key, value, _ in rows_of(log, TopicPartition(output, partition)):
            found[key or b""].append((value or b"").decode().split("|"))
    assert {key: [value for *_, value in each] for key, each in found.items()} == wanted
    for each in found.values():
        counts, before, marks, _ = zip(*each, strict=True)
        assert [int(count) for count in counts] == list(range(1, len(each) + 1))  # by the state of the last stage
        assert before == ("", *marks[:-1])  # by that of the one before: its state and its outputs are of one attempt


def test_killed_workers_change_no_byte_of_the_output(tmp_path: Path) -> None:
    """D1-D5: each output once, in order, with its seq and time, whatever was killed, and long before commits."""
    run_with_kills(WORDS, JobDirectory(tmp_path / "job", address=IN_DIRECTORY), the_reference_is_outside)


def test_killed_workers_find_what_they_have_sent(tmp_path: Path) -> None:
    """D5 without releases: what is outside is recovered, and nothing comes twice."""
    job_directory = JobDirectory(tmp_path / "job", address=IN_DIRECTORY)
    run_with_kills(WORDS, job_directory, the_reference_is_outside, "sequenced")


def test_aligned_stages_take_what_deterministic_ones_make_once(tmp_path: Path) -> None:
    """A2b: stages that draw at random behind deterministic ones hold each record once, whatever was killed."""
    run_with_kills(MIXED, JobDirectory(tmp_path / "job", address=IN_DIRECTORY), each_is_outside_once)


def halts_at_what_it_makes_again(job_directory: JobDirectory, output_delivery: OutputDelivery) -> None:
    """Kill the worker of a job that draws at random, and look for the halt; what is visible stays as it is."""
    job = load_job(DRAWN)
    (topic,), (output,) = job.topology().externals_of(0), job.external_sinks()
    out = TopicPartition(output, 0)
    with LocalJob(
        job,
        DRAWN,
        job_directory,
        Settings(checkpoint_interval_ms=DAY_MS, restart_backoff_ms=20, output_delivery=output_delivery),
        inputs=OutsideInputs([topic]),
    ) as run:
        log = job_directory.open_log()
        # The first checkpoint closes at once: lines that came before it would be committed, and nothing made again.
        poll_until(run, lambda: all_running(run) and min(run.checkpoint_ids().values()) > 0)
        now = int(time.time() * 1_000)
        for number in range(5):
            log.produce(0, 0, [ExternalRecord(TopicPartition(topic, 0), None, b"line %d" % number, now)])
            log.poll()
        poll_until(run, lambda: len(rows_of(log, out)) == 5)
        before = rows_of(log, out)
        run.supervisor.kill(0)
        with pytest.raises(Halted, match=r"draw-0 is not deterministic: .*Seq 1, at offset \d+: value b'.* is visible"):
            poll_until(run, lambda: len(rows_of(log, out)) > 5)
        assert rows_of(log, out) == before
        log.close()


@pytest.mark.parametrize("output_delivery", ["transactional", "sequenced"])
def test_a_worker_that_draws_at_random_halts(tmp_path: Path, output_delivery: OutputDelivery) -> None:
    """D5: it makes other outputs than those that its predecessor has let out, and says which one."""
    halts_at_what_it_makes_again(JobDirectory(tmp_path / "job", address=IN_DIRECTORY), output_delivery)


@pytest.mark.kafka
@pytest.mark.parametrize("output_delivery", ["transactional", "sequenced"])
def test_a_worker_that_draws_at_random_halts_on_kafka(
    tmp_path: Path, output_delivery: OutputDelivery, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D5: the same on Kafka, where a worker that may read the output topic names the record."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    job_directory = JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    halts_at_what_it_makes_again(job_directory, output_delivery)


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("reference", "check", "output_delivery"),
    [
        (WORDS, the_reference_is_outside, "transactional"),
        (WORDS, the_reference_for_once, "sequenced"),
        (MIXED, each_is_outside_once, "transactional"),
    ],
)
def test_the_same_on_kafka(
    reference: str,
    check: Callable[[Log, Job], None],
    output_delivery: OutputDelivery,
    kafka_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D5: by transactions a reader of committed records sees each output once, without them one that uses Once."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    job_directory = JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    run_with_kills(reference, job_directory, check, output_delivery)


@pytest.mark.kafka
def test_tasks_that_announce_together_are_killed_on_kafka(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: with more partitions the tasks of a process announce progress in one message; what it held dies with it."""
    monkeypatch.setenv("WORDS_RUN", os.urandom(4).hex())
    monkeypatch.setenv("WORDS_PARTITIONS", str(UNPACED_PARTITIONS_MAX + 2))
    job_directory = JobDirectory(tmp_path / "job", address=LogAddress(f"kafka://{kafka_broker.bootstrap}"))
    run_with_kills(WORDS, job_directory, the_reference_is_outside, processes=2)
