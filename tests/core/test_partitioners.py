"""Recognition of the partitioner from the keys of one partition, and the number of keys that takes."""

from collections.abc import Callable
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grete.core.graph.partitioners import KeyAt, Partitioner, Recognized, Recognizer
from grete.core.limits import EVIDENCE_BITS_MIN
from grete.protocol.partitioner import crc32_partition_of, partition_of

MURMUR2, CRC32, OWN = Partitioner
PLACES: dict[Partitioner, Callable[[bytes, int], int]] = {
    MURMUR2: partition_of,
    CRC32: crc32_partition_of,
    OWN: lambda key, partitions: blake2b(key).digest()[0] % partitions,
}
KEYS = [b"customer %d" % number for number in range(2_000)]


def recognized(partitions: int, partition: int, *keys: bytes) -> Recognized | None:
    """Return the partitioner that these keys show, as soon as they are enough."""
    recognizer = Recognizer(partition, partitions)
    return next((found for at, key in enumerate(keys) if (found := recognizer.see(key, at))), None)


def placed(partitioner: Partitioner, partitions: int, partition: int) -> list[bytes]:
    """Return the keys that a partitioner gives a partition."""
    return [key for key in KEYS if PLACES[partitioner](key, partitions) == partition]


@pytest.mark.parametrize("partitions", [2, 3, 4, 7, 64])
@pytest.mark.parametrize("partitioner", list(Partitioner))
def test_a_partitioner_is_recognized_in_each_partition(partitioner: Partitioner, partitions: int) -> None:
    """By a few keys, of whichever partition a task reads."""
    for partition in range(min(partitions, 7)):
        keys = placed(partitioner, partitions, partition)
        found = recognized(partitions, partition, *keys)
        assert found is not None
        assert found.partitioner is partitioner
        assert not found.two


def test_keys_that_both_place_here_tell_nothing() -> None:
    """They may come for ever, as may null and empty keys, and one key again and again."""
    both = [key for key in KEYS if partition_of(key, 4) == crc32_partition_of(key, 4) == 1]
    assert len(both) > 50
    assert recognized(4, 1, *both, b"", *[placed(MURMUR2, 4, 1)[0]] * 100) is None


def test_two_producers_are_told_from_one_of_its_own() -> None:
    """Keys by murmur2 and keys by CRC32, and none that is neither; with two partitions that is no difference."""
    mixed = [key for pair in zip(placed(MURMUR2, 4, 2), placed(CRC32, 4, 2), strict=False) for key in pair]
    found = recognized(4, 2, *mixed)
    assert found is not None
    assert found.two
    assert set(found.examples) == {MURMUR2, CRC32}
    for kind, (key, offset) in found.examples.items():
        assert PLACES[kind](key, 4) == 2
        assert mixed[offset] == key
    of_two = [key for pair in zip(placed(MURMUR2, 2, 0), placed(CRC32, 2, 0), strict=False) for key in pair]
    found = recognized(2, 0, *of_two)
    assert found is not None
    assert (found.partitioner, found.two) == (OWN, False)


@pytest.mark.parametrize("partitions", [2, 4, 16, 4096])
def test_the_evidence_is_counted_in_bits(partitions: int) -> None:
    """Of two partitions 12 telling keys, of four 6: a chance of 1 in 4096 each."""
    telling = [key for key in placed(MURMUR2, partitions, 0) if crc32_partition_of(key, partitions) != 0]
    needed = -(-EVIDENCE_BITS_MIN // (partitions.bit_length() - 1))
    telling = telling or [key for key in (b"%d" % n for n in range(50_000)) if partition_of(key, partitions) == 0]
    assert recognized(partitions, 0, *telling[: needed - 1]) is None
    found = recognized(partitions, 0, *telling[:needed])
    assert found == Recognized(MURMUR2, {MURMUR2: KeyAt(telling[0], 0)})


@given(st.binary(min_size=1, max_size=40), st.integers(2, 500))
def test_a_key_that_is_placed_right_never_speaks_against_it(key: bytes, partitions: int) -> None:
    """No key of a producer of murmur2 or CRC32 is evidence for anything else."""
    for partitioner in (MURMUR2, CRC32):
        place = partitioner.place(key, partitions)
        assert place is not None
        recognizer = Recognizer(place, partitions)
        found = recognizer.see(key, 0)
        assert found is None or set(found.examples) == {partitioner}
