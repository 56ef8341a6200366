"""Checksums over the records that a task takes from files, and over their order, as SQL can add them up, too."""

import zlib
from collections.abc import Iterable, Iterator
from itertools import repeat

import msgspec

from grete.batch.record_order import Piece

PLACES = (1 << 31) - 1  # a prime: the sum of 2^31 such products is below 2^63, as SQL needs it


class RecordSums(msgspec.Struct):
    """The number of records, the sum of their checksums, and of these by the place of each in the order, from 1."""

    records: int = 0
    content: int = 0
    places: int = 0

    def watch(self, pieces: Iterable[Piece], *, timed: bool) -> Iterator[Piece]:
        """Yield the pieces, and add up; ``timed``: the timestamps, too, which are those of the files."""
        for piece in pieces:
            if piece.refused is None:
                batch = piece.batch
                times = map(b"%d".__mod__, batch.timestamps) if timed else repeat(b"")
                for key, value, time in zip(batch.keys, batch.values, times, strict=False):
                    crc = zlib.crc32(b"%b\0%b%b" % (key or b"", value or b"", time))
                    self.records += 1
                    self.content += crc
                    self.places += self.records * crc % PLACES
            yield piece
