"""The partitioner is Kafka's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.partitioner import murmur2, partition_of

KAFKA = [  # from the tests of Kafka's Java client
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "hashed"), KAFKA)
def test_hashes_are_those_of_kafka(key: bytes, hashed: int) -> None:
    """The hash of each key is the one that Kafka's Java client computes."""
    assert hashed == murmur2(key)


@pytest.mark.parametrize(("key", "hashed"), KAFKA)
def test_partitions_are_those_of_kafka(key: bytes, hashed: int) -> None:
    """A key goes where Kafka's default partitioner puts it: the sign bit is cleared, not the number negated."""
    for partitions in (1, 7, 16, 65_536):
        assert (hashed & 0x7FFFFFFF) % partitions == partition_of(key, partitions)


@given(key=st.binary(max_size=40), partitions=st.integers(1, 65_536))
def test_partitions_are_in_range_and_stable(key: bytes, partitions: int) -> None:
    """Every key has a partition in range, the same each time, from the cache or not."""
    first = partition_of(key, partitions)
    assert 0 <= first < partitions
    assert first == partition_of.__wrapped__(key, partitions)


@given(key=st.binary(max_size=40))
def test_hashes_are_signed_32_bit(key: bytes) -> None:
    """Every hash is a Java int."""
    assert -(2**31) <= murmur2(key) < 2**31


def test_null_keys_are_refused() -> None:
    """A null key has no partition of its own, and no topic has less than one."""
    for _ in range(2):  # an error is not cached as an answer
        with pytest.raises(ValueError, match="null key"):
            partition_of(None, 4)
    with pytest.raises(ValueError, match="partitions = 0"):
        partition_of(b"k", 0)
