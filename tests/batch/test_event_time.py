"""Event time in batch is that of a live task: behind stages that send out of order nothing is late (E1, E2)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from grete.protocol.ids import TopicPartition
from grete.protocol.partitioner import partition_of
from grete.settings import Settings
from grete.testing import Kit
from tests.batch.taking_over import live, taken_over
from tests.support import delays

records = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 9), st.integers(0, 60)), min_size=1, max_size=60)


@settings(max_examples=8, deadline=None)
@given(records, st.data())
def test_out_of_order_stages_give_in_batch_what_they_give_live(
    history: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    """Partitions of unequal length and time, each cut where it likes: batch, then live, is live over all.

    The tasks fail on a late record, in batch and live.
    """
    both = [Kit(delays.job), Kit(delays.job)]
    for kit in both:
        at = [0, 300, 1_000]  # of the partitions, far apart
        for key, value, gap in history:
            partition = partition_of(key.encode(), 3)
            at[partition] += gap
            kit.feed(delays.events, key, value, timestamp=at[partition])
    ends = {p: len(both[0]._data.partition(p).rows) for p in (TopicPartition("events", n) for n in range(3))}
    # a partition whose history is empty does not hold time back, so older records that come there later may be late
    cut = {p: data.draw(st.integers(min(1, end), end)) for p, end in ends.items()}
    sizes = Settings(batch_bytes_max=data.draw(st.sampled_from([60, 300, 1 << 16])))
    assert taken_over(both[1], cut, sizes) == live(both[0])
