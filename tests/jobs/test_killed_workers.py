"""The eight jobs on real workers, which are killed while they work, before a rescale by the command and after it."""

import random
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grete.api.serdes.key import partition_by
from grete.job.directory import JobDirectory
from grete.job.loader import load_job
from grete.ports import ExternalRecord
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.worker.supervisor.local_job import LocalJob, OutsideInputs
from tasks.demo.kills import is_running, kill_worker, wipe_state
from tests.cli.test_run import grete
from tests.jobs import budgets, orders
from tests.jobs.recounts import JOBS, Given, check
from tests.state.moving_host import ReadJob
from tests.support.waiting import until

KILLS = 3  # before the rescale, and after it
SETTINGS = Settings(checkpoint_interval_ms=50, restarts_max=1000, restart_backoff_ms=20, restart_backoff_ms_max=200)
IN_TEST = {orders, budgets}  # timers and ids; a stream between two stages


def _feed(local: LocalJob, given: Sequence[Given]) -> None:
    count, records = local.job.partitions, list[ExternalRecord]()
    for topic, key, value, at in given:
        raw_key, raw_value = topic.key.encode(key), None if value is None else topic.value.encode(value)
        place = TopicPartition(topic.name, partition_by(topic.key)(raw_key, count))
        records.append(ExternalRecord(place, raw_key, raw_value, at))
    local.metadata.produce_with_meta(records, {})


def _work(local: LocalJob, given: Sequence[Given], rng: random.Random, *, drain: bool) -> None:
    """Let workers process it, and kill one after each part is there; every second one comes back without its state."""
    workers, size = local.supervisor.workers, -(-len(given) // (KILLS + 1))
    for number, begin in enumerate(range(0, len(given), size)):
        until(lambda: all(is_running(local, each) for each in workers), "workers", step=lambda: local.poll(20))
        _feed(local, given[begin : begin + size])
        if number == KILLS:
            break
        if number:
            local.poll(20)  # with some of it processed, or committed
        kill_worker(local, victim := rng.choice(sorted(workers)))
        if number % 2:
            wipe_state(local, victim)
    ends = local.ends()
    until(lambda: local.drained(ends), "all processed", step=lambda: local.poll(20))
    if drain:
        local.drain(ends)
        until(lambda: local.drained(ends), "the end", step=lambda: local.poll(20))
    local.stop()
    local.require_stopped()


@pytest.mark.chaos
@pytest.mark.timeout(600)  # two workers and six are started, and six more in place of those that were killed
@pytest.mark.parametrize(
    "of",
    [pytest.param(of, marks=() if of in IN_TEST else pytest.mark.prove) for of in JOBS],
    ids=lambda of: of.__name__.rsplit(".", 1)[-1],
)
def test_a_job_whose_workers_are_killed_is_rescaled(of: ModuleType, tmp_path: Path) -> None:
    """State and outputs are those of a recount of the whole input, and each entry is where its key belongs."""
    given, recount = JOBS[of](random.Random(6))
    rng, code = random.Random(7), Path(of.__file__ or "").read_text()
    place = JobDirectory(tmp_path / ".grete" / of.job.name)
    for partitions, some in ((2, given[: len(given) // 2]), (6, given[len(given) // 2 :])):
        path = tmp_path / f"job{partitions}.py"
        path.write_text(code.replace("partitions=2", f"partitions={partitions}"))
        if partitions == 6:
            grete("rescale", "job2.py", "--partitions=6", "--assume-keyed", cwd=tmp_path)
        job: Any = load_job(str(path))
        inputs = OutsideInputs({topic.name for topic, *_ in given})
        with LocalJob(job, str(path), place, SETTINGS, inputs=inputs) as local:
            _work(local, some, rng, drain=partitions == 6)
            if partitions == 6:
                check(ReadJob(job, local.log), of, recount)
