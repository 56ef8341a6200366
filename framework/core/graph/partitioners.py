"""Finds the partitioner by which the producers of an input place keys, from the keys of one of its partitions.

State is by partition. If two producers place a key in different partitions, its state is split without an error.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import log2
from typing import NamedTuple

from grete.core.limits import EVIDENCE_BITS_MIN
from grete.protocol.partitioner import crc32_partition_of, partition_of


class Partitioner(StrEnum):
    """The partitioner of an input's keys. Null and empty keys prove nothing: some producers place them at random."""

    MURMUR2 = "murmur2"  # Java's default, Grete's own
    CRC32 = "crc32"  # librdkafka's default
    OWN = "own"  # neither: only the producer knows

    def place(self, key: bytes, partitions: int) -> int | None:
        """Return the partition of a key that is not empty, None if only the producer knows."""
        if self is Partitioner.MURMUR2:
            return partition_of(key, partitions)
        return crc32_partition_of(key, partitions) if self is Partitioner.CRC32 else None


class KeyAt(NamedTuple):
    """A key and the offset of a record that has it."""

    key: bytes
    offset: int


@dataclass(frozen=True, slots=True)
class Recognized:
    """The partitioner that the keys show.

    ``two``: some used murmur2, others CRC32; ``examples``: a key of each kind.
    """

    partitioner: Partitioner
    examples: dict[Partitioner, KeyAt]
    two: bool = False


@dataclass(slots=True)
class Recognizer:
    """Reads keys of one partition until they show the partitioner of the input.

    A key tells something if the two partitioners place it differently, or both elsewhere. With n partitions it agrees
    by chance with one of them in 1 of n cases, so it is worth log2(n) bits; each key counts once.
    """

    partition: int
    partitions: int  # at least 2
    _seen: set[bytes] = field(default_factory=set)
    _examples: dict[Partitioner, KeyAt] = field(default_factory=dict)
    _telling: int = 0

    def see(self, key: bytes, offset: int) -> Recognized | None:
        """Take a key; return what the keys show once they are enough, None before."""
        if not key or key in self._seen:
            return None
        self._seen.add(key)
        by = [it for it in (Partitioner.MURMUR2, Partitioner.CRC32) if it.place(key, self.partitions) == self.partition]
        if len(by) == 2:
            return None
        self._telling += 1
        self._examples.setdefault(by[0] if by else Partitioner.OWN, KeyAt(key, offset))
        if self._telling * log2(self.partitions) < EVIDENCE_BITS_MIN:
            return None
        return self._judged()

    def _judged(self) -> Recognized | None:
        found = self._examples
        if len(found) == 1 or Partitioner.OWN in found or self.partitions == 2:
            (only,) = found if len(found) == 1 else (Partitioner.OWN,)
            return Recognized(only, dict(found))
        # Keys of both kinds, none that is neither: of a partitioner of its own, 2 of n keys would agree with one.
        enough = self._telling * log2(self.partitions / 2) >= EVIDENCE_BITS_MIN
        return Recognized(Partitioner.OWN, dict(found), two=True) if enough else None
