"""Names and numbers that several formats share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.protocol.ids import PARTITIONS_MAX, TopicPartition, check_name, producer_id, split_producer_id


@given(stage=st.integers(0, 32_767), partition=st.integers(0, PARTITIONS_MAX - 1))
def test_producer_ids_survive(stage: int, partition: int) -> None:
    """A producer id fits an INT32 and gives back its stage and partition."""
    producer = producer_id(stage, partition)
    assert 0 <= producer < 2**31
    assert (stage, partition) == split_producer_id(producer)


@pytest.mark.parametrize(("stage", "partition"), [(-1, 0), (32_768, 0), (0, -1), (0, PARTITIONS_MAX)])
def test_producer_ids_out_of_range_are_refused(stage: int, partition: int) -> None:
    """A stage or partition that would run into another's ids is refused, by its value."""
    with pytest.raises(ValueError, match=f"stage {stage}, partition {partition}"):
        producer_id(stage, partition)


def test_partitions_are_named_alike() -> None:
    """A partition is shown as topic[partition]."""
    assert "words[3]" == str(TopicPartition("words", 3))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 120])
def test_good_names_pass(name: str) -> None:
    """A name that can be a topic, a directory and a column family is returned."""
    assert name == check_name("topic", name)


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", "a/b", "a b", "ä", "a\n", "x" * 121])
def test_bad_names_are_refused(name: str) -> None:
    """A name that could not be all three is refused, by its kind."""
    with pytest.raises(ValueError, match="topic name"):
        check_name("topic", name)
