"""Wall-clock timers in worker processes over the embedded log: no record comes, workers die, each fires once."""

import time
from collections import Counter
from pathlib import Path

import pytest

from framework.api.mode import Mode
from framework.job.directory import JobDirectory
from framework.ports import ExternalRecord
from framework.settings import Settings
from framework.worker.local_job import LocalJob
from protocol.ids import TopicPartition
from tests.wall_clock.jobs import ORDERS, REMINDERS, reminding
from tests.worker.workers import LIMIT_S

SETTINGS = Settings(checkpoint_interval_ms=50, restart_backoff_ms=20)
ORDERED = 300  # in each partition


def _sent(local: LocalJob) -> Counter[str]:
    """Return how often each key was reminded of."""
    rows = [row for p in range(2) for row in local.log.read(TopicPartition(REMINDERS.name, p), 0, 1 << 20)]
    return Counter((row.key or b"").decode() for row in rows)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_killed_workers_fire_each_timer_once(tmp_path: Path, mode: Mode) -> None:
    """Two stages, two partitions. Workers are killed by SIGKILL as timers are set and while they fire, between runs."""
    file = tmp_path / "job.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.wall_clock.jobs import RemindBehind, reminding\nRemindBehind.after_ms = 1_500\n"
        f"job = reminding({mode!r}, behind=True, partitions=2)\n"
    )
    job, place = reminding(mode, behind=True, partitions=2), JobDirectory(tmp_path / "place")
    with LocalJob(job, str(file), place, SETTINGS, fed=[ORDERS.name]) as local:
        orders = [(p, f"{p}.{number}") for number in range(ORDERED) for p in range(2)]
        local.log.produce(
            0, 0, [ExternalRecord(TopicPartition(ORDERS.name, p), key.encode(), b"order", 1) for p, key in orders]
        )
        while not local.log.poll():
            local.log.wait(100)
        killed, waited, deadline = 0, 0, time.monotonic() + LIMIT_S
        while len(sent := _sent(local)) < len(orders) or not local.drained(local.ends()):
            assert time.monotonic() < deadline, (len(sent), local.waiting_wall_timers())
            waited = max(waited, local.waiting_wall_timers())
            if killed < 2 or (killed < 5 and len(sent) > ORDERED * (killed - 2) // 2):
                local.supervisor.kill(killed % 2)
                killed += 1
            local.poll(20)
        assert killed == 5
        assert waited > 0
        assert local.waiting_wall_timers() == 0
        local.stop()
        assert _sent(local) == Counter({key: 1 for _, key in orders})
