"""The partitioner over a column of keys."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.partitioner import partition_of
from grete.spark.murmur2 import partitions_of


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(1, 1000), st.integers(0, 3))
def test_a_column_is_partitioned_as_each_of_its_keys(keys: list[bytes | None], partitions: int, start: int) -> None:
    """Any slice of any number of keys is partitioned as key by key; a null key has no partition."""
    found = partitions_of(pa.array(keys, pa.binary()).slice(start), partitions).to_pylist()
    assert found == [None if key is None else partition_of(key, partitions) for key in keys[start:]]
