"""Wall-clock timers in worker processes over the embedded log: no record comes, workers die, each fires once."""

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from grete.api.tasks.mode import Mode
from grete.job.directory import JobDirectory
from grete.logs.address import LogAddress
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.replay.determinism.replay import replay
from grete.settings import Settings
from grete.state.read.recorded_task import rows_of
from grete.testing.broker import Broker
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tests.wall_clock.jobs import reminding_soon
from tests.worker.workers import LIMIT_S

SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
ORDERED = 300  # in each partition


def _sent(local: LocalJob) -> Counter[str]:
    """Return the number of reminders of each key."""
    rows = [row for p in range(2) for row in rows_of(local.log, TopicPartition(f"{local.job.name}-reminders", p))]
    return Counter((row.key or b"").decode() for row in rows)


MODES = pytest.mark.parametrize("mode", ["aligned", "deterministic"])


@pytest.mark.timeout(300)
@MODES
def test_killed_workers_fire_each_timer_once(tmp_path: Path, mode: Mode) -> None:
    """Two stages, two partitions. Workers are killed by SIGKILL as timers are set and while they fire, between runs."""
    _remind(tmp_path, mode, JobDirectory(tmp_path / "place"))


@pytest.mark.kafka
@pytest.mark.timeout(300)
@MODES
def test_killed_workers_fire_each_timer_once_on_kafka(kafka_broker: Broker, tmp_path: Path, mode: Mode) -> None:
    """The same, by the broker's clock."""
    _remind(tmp_path, mode, JobDirectory(tmp_path / "place", address=LogAddress(f"kafka://{kafka_broker.bootstrap}")))


def _remind(directory: Path, mode: Mode, place: JobDirectory) -> None:
    name = f"t{os.urandom(6).hex()}"
    file = directory / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.wall_clock.jobs import reminding_soon\njob = reminding_soon({name!r}, {mode!r})\n"
    )
    job = reminding_soon(name, mode)
    with LocalJob(job, str(file), place, SETTINGS, inputs=OutsideInputs([f"{name}-orders"])) as local:
        now_ms = time.time_ns() // 1_000_000
        orders = [(p, f"{p}.{number}") for number in range(ORDERED) for p in range(2)]
        local.log.produce(
            0,
            0,
            [ExternalRecord(TopicPartition(f"{name}-orders", p), key.encode(), b"order", now_ms) for p, key in orders],
        )
        while not local.log.poll():
            local.log.wait(100)
        killed, deadline = 0, time.monotonic() + LIMIT_S
        while len(sent := _sent(local)) < len(orders) or killed < 5 or not local.drained(local.ends()):
            assert time.monotonic() < deadline, (len(sent), local.waiting_wall_timers())
            if killed < 2 or (killed < 5 and len(sent) > ORDERED * (killed - 2) // 2):
                local.supervisor.kill(killed % 2)
                killed += 1
            local.poll(20)
        assert local.waiting_wall_timers() == 0
        local.stop()
        assert _sent(local) == Counter({key: 1 for _, key in orders})
        if mode == "deterministic":  # the log's history alone makes the same outputs, byte for byte
            found = replay(job, local.log, SETTINGS)
            assert (found.halted, found.difference) == (None, None)
            assert found.compared >= len(orders)
