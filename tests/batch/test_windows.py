"""Windows of each kind in batch: the rest live is as if all had been live (deterministic: test_deterministic.py)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.testing import Kit
from tests.batch.taking_over import live, taken_over
from tests.support import watching

records = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.integers(0, 60)), min_size=1, max_size=60)


@settings(max_examples=12, deadline=None)
@given(records, st.data())
def test_windows_go_on_live_as_if_they_had_been_live_from_their_start(
    history: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Open windows, their timers, and all that is told: the same, wherever each partition's history is cut."""
    both = [Kit(watching.job), Kit(watching.job)]
    for kit in both:
        at = [0, 300, 1_000]  # of the partitions, far apart
        for key, value, gap in history:
            partition = partition_of(key.encode(), 3)
            at[partition] += gap
            kit.feed(watching.events, key, value, timestamp=at[partition])
    ends = {p: len(both[0]._data.partition(p).rows) for p in (TopicPartition("events", n) for n in range(3))}
    # a partition whose history is empty does not hold time back, so older records that come there later may be late
    cut = {p: data.draw(st.integers(min(1, end), end)) for p, end in ends.items()}
    sizes = Settings(batch_bytes_max=data.draw(st.sampled_from([60, 300, 1 << 16])))
    assert taken_over(both[1], cut, sizes) == live(both[0])
