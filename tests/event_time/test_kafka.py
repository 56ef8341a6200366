"""Event time on a real broker, in real worker processes, with workers killed in the middle (E1 to E5)."""

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from grete import Job
from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.logs.kafka import KafkaLog
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob
from tests.event_time.jobs import MINUTE, counting, joining, paying
from tests.logs.outputs import visible
from tests.worker.workers import LIMIT_S

pytestmark = pytest.mark.kafka
HOURS_AGO = 3  # where the data begins: a plain topic deletes what is older than a week
STEPS = 30_000
NEVER_MS = 3_600_000  # until an input is idle
SIDES = ("left", "right")


MODES = pytest.mark.parametrize("mode", ["aligned", "deterministic"])


@MODES
def test_a_join_over_an_hour_finds_every_pair(kafka_broker: Broker, tmp_path: Path, mode: Mode) -> None:
    """Two inputs of unequal density, read as a backlog: no partner within ten minutes is missed, kills or not."""
    name, start = _name(), _start_ms()
    ends = [TopicPartition(f"{name}-{side}", 0) for side in ("left", "right")]
    hour = [(number, start + number * 60 * MINUTE // 20_000) for number in range(20_000)]
    rows = [_row(ends[0], f"k{number}", "l" * 100, at) for number, at in hour]
    rows += [_row(ends[1], f"k{number}", "r", at + 9 * MINUTE) for number, at in hour if number % 40 == 0]
    _write(kafka_broker, rows, partitions=1)
    with _run(joining(name, 1, mode), kafka_broker, tmp_path, "joining") as local:
        _work(local, kills=3)
        assert _late(local) == 0
    assert len(visible(kafka_broker, TopicPartition(f"{name}-pairs", 0))) == 500


@MODES
def test_windows_behind_a_repartition_drop_nothing(kafka_broker: Broker, tmp_path: Path, mode: Mode) -> None:
    """Two producers share the partitions of a stream; one has twenty times as much to read. Each record counts."""
    name, start = _name(), _start_ms()
    source = [TopicPartition(f"{name}-in", partition) for partition in range(2)]
    hours = [(number, start + number * 120 * MINUTE // 20_000) for number in range(20_000)]
    rows = [_row(source[0], "x" * 60, f"v{number % 13}", at) for number, at in hours]
    rows += [_row(source[1], "y", f"v{number % 13}", at) for number, at in hours if number % 20 == 0]
    expected = Counter((row.value or b"").decode() for row in rows)
    rows += [_row(each, "z", f"end{number}", start + 130 * MINUTE) for number in range(9) for each in source]
    _write(kafka_broker, rows, partitions=2)
    with _run(counting(name, 2, mode), kafka_broker, tmp_path, "counting") as local:
        _work(local, kills=3)
        assert _late(local) == 0
    counts = Counter[str]()
    for record in _visible_rows(kafka_broker, f"{name}-counts", 2):
        counts[(record[0] or b"").decode()] += int.from_bytes(record[1] or b"", "big", signed=True)
    assert {key: count for key, count in counts.items() if not key.startswith("end")} == expected


@MODES
def test_windows_over_a_join_count_each_pair_once(kafka_broker: Broker, tmp_path: Path, mode: Mode) -> None:
    """Two stages, one partition twenty times as dense as the other, records out of order by up to the grace; kills."""
    name, start = _name(), _start_ms()
    rows, expected = _orders(name, start, 6_000, 300)
    far = start + 150 * MINUTE
    rows += [_row(TopicPartition(f"{name}-{side}", p), "end", "end", far) for p in range(2) for side in SIDES]
    _write(kafka_broker, rows, partitions=2)
    with _run(paying(name, 2, mode), kafka_broker, tmp_path, "paying") as local:
        _work(local, kills=3)
        assert _late(local) == 0
    assert _counted(kafka_broker, name) == expected


@MODES
def test_a_drained_job_tells_of_all_pairs_and_of_all_that_met_none(
    kafka_broker: Broker, tmp_path: Path, mode: Mode
) -> None:
    """A join's unmatched records, and windows over them. Workers die while the end goes through the stages."""
    name = _name()
    rows, expected = _orders(name, _start_ms(), 400, 60)
    _write(kafka_broker, rows, partitions=2)
    with _run(paying(name, 2, mode), kafka_broker, tmp_path, "paying", Settings(event_time_idle_ms=NEVER_MS)) as local:
        local.completion.waits_for_idle = False
        _work(local, kills=1, stops=False)
        assert local.waiting_timers() > 0
        local.drain(local.ends())
        deadline, looks = time.monotonic() + LIMIT_S, 0
        while not local.drained({}):
            assert time.monotonic() < deadline
            local.poll(20)
            looks += 1
            if looks in (1, 10, 40):
                local.supervisor.kill(looks % 2)
        while local.waiting_timers():  # the log has said that all is done; the last statuses come a moment later
            assert time.monotonic() < deadline
            local.poll(20)
        assert _late(local) == 0
        local.stop()
    assert _counted(kafka_broker, name) == expected


def _orders(name: str, start: int, *counts: int) -> tuple[list[ExternalRecord], list[tuple[str, int]]]:
    """Return orders and payments, as many orders in each partition, and the sorted (payer, count) of all windows."""
    rng = random.Random(4)
    rows, expected = list[tuple[int, ExternalRecord]](), Counter[tuple[str, int]]()
    for partition, orders in enumerate(counts):
        left, right = (TopicPartition(f"{name}-{side}", partition) for side in SIDES)
        for number in range(orders):
            key, at, payer = f"{partition}.{number}", start + rng.randrange(100 * MINUTE), f"payer{rng.randrange(9)}"
            paid = at + rng.choice((0, 10 * MINUTE, 10 * MINUTE + 1, rng.randrange(12 * MINUTE)))
            matches = paid <= at + 10 * MINUTE
            for place, value, moment in ((left, "order", at), (right, payer, paid)):
                rows.append((moment + rng.randrange(MINUTE), _row(place, key, value, moment)))
            begin = (paid if matches else at) // (5 * MINUTE) * 5 * MINUTE
            expected.update((payer if matches else "nobody", begin - back) for back in (0, 5 * MINUTE))
    rows.sort(key=lambda each: each[0])
    return [row for _, row in rows], sorted((payer, count) for (payer, _), count in expected.items())


def _counted(broker: Broker, name: str) -> list[tuple[str, int]]:
    found = _visible_rows(broker, f"{name}-counts", 2)
    return sorted(((key or b"").decode(), int.from_bytes(value or b"", "big", signed=True)) for key, value in found)


def _name() -> str:
    return f"t{os.urandom(6).hex()}"


def _start_ms() -> int:
    return (time.time_ns() // 1_000_000 - HOURS_AGO * 60 * MINUTE) // MINUTE * MINUTE


def _row(partition: TopicPartition, key: str, value: str, at: int) -> ExternalRecord:
    return ExternalRecord(partition, key.encode(), value.encode(), at)


def _write(broker: Broker, rows: list[ExternalRecord], *, partitions: int) -> None:
    log = KafkaLog(broker.bootstrap)
    for topic in dict.fromkeys(row.partition.topic for row in rows):
        log.create_topic(topic, partitions, plain=True)
    for begin in range(0, len(rows), STEPS):
        log.produce(0, 0, rows[begin : begin + STEPS])
        while not log.poll():
            log.wait(1_000)
    log.close()


def _run(job: Job, broker: Broker, directory: Path, maker: str, settings: Settings | None = None) -> LocalJob:
    file = directory / "job.py"
    root = Path(__file__).parents[2]
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(root)!r})\n"
        f"from tests.event_time.jobs import {maker}\njob = {maker}({job.name!r}, {job.partitions}, {job.mode!r})\n"
    )
    job_directory = JobDirectory(directory / "place", address=LogAddress(f"kafka://{broker.bootstrap}"))
    return LocalJob(job, str(file), job_directory, settings or Settings())


def _work(local: LocalJob, kills: int, *, stops: bool = True) -> None:
    """Run until all input is processed; kill the workers in turn, each after another share of the input."""
    ends, partitions = local.ends(), itertools.cycle(range(local.job.partitions))
    total, killed = sum(ends.values()), 0
    deadline = time.monotonic() + LIMIT_S
    while not local.drained(ends):
        assert time.monotonic() < deadline, local.committed()
        local.poll(20)
        if killed < kills and sum(local.committed().values()) > total * (killed + 1) // (kills + 2):
            local.supervisor.kill(next(partitions))
            killed += 1
    assert killed == kills
    if stops:
        local.stop()


def _late(local: LocalJob) -> int:
    return sum(local.reports.dropped.get("late", {}).values())


def _visible_rows(broker: Broker, topic: str, partitions: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    log = KafkaLog(broker.bootstrap)
    for number in range(partitions):
        yield from _rows_of(log, TopicPartition(topic, number))
    log.close()


def _rows_of(log: KafkaLog, partition: TopicPartition) -> Iterable[tuple[bytes | None, bytes | None]]:
    position, end = log.bounds(partition)
    deadline = time.monotonic() + LIMIT_S
    while position < end - 1 and time.monotonic() < deadline:  # the last offset is the mark of a transaction
        rows = log.read(partition, position, 1 << 20)
        for row in rows:
            position = row.offset + 1
            yield row.key, row.value
        if not rows:
            log.wait(50)
