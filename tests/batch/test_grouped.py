"""A topic with more partitions than tasks in batch (A2f): the state is that of tasks that were live, in both modes."""

import pytest

from grete import Job
from grete.api.jobs.graph import RESERVED_STORES
from grete.api.tasks.mode import Mode
from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from tests.state.moving_host import SETTINGS, MovableJob
from tests.support.local_batch import run_job
from tests.support.parity import Visits
from tests.support.parity_records import fed_visits
from tests.support.parity_topics import PARTITIONS, visits


@pytest.mark.parametrize("mode", ["aligned", "deterministic"])
def test_tasks_that_read_several_partitions_have_the_same_state_in_batch(mode: Mode) -> None:
    """With windows, whose time is the least of the partitions: each task reads its own, each once."""
    job = Job("visiting", [Visits], partitions=PARTITIONS, mode=mode)
    lives = MovableJob(job)
    for _, key, value, at in fed_visits(0, 150):
        place = TopicPartition(visits.name, partition_of(key.encode(), 2 * PARTITIONS))
        lives.host.history.data.append(place, key.encode(), value.to_bytes(8, "big"), at, None)
    lives.host.process()
    lives.host.advance(5 * SETTINGS.checkpoint_interval_ms)
    built = run_job(job, lambda source: lives.log.read(source, 0, 1 << 30), SETTINGS)
    for number in range(PARTITIONS):
        own = {name: store for name, store in job.stages[0].store_ids().items() if name not in RESERVED_STORES}
        found = {(store, key): value for store, key, value in built[0, number].state if store in own.values()}
        assert found == {at: value for at, value in lives.state(number).items() if at[0] in own.values()}
        assert {store for store, _ in found} == {*own.values()}
