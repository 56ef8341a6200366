"""The account of the rows that a task takes from files: a log says itself what it holds and in which order."""

from collections.abc import Iterable, Iterator

import msgspec

from grete.batch.record_order import Piece
from grete.protocol.ids import TopicPartition
from grete.spark.backfill.account.record_sums import RecordSums

EXAMPLES_MAX = 3  # of each kind: enough to find the file


class OffsetHole(msgspec.Struct, frozen=True):
    """Offsets that are in no file: begin <= offset < end."""

    begin: int
    end: int


class FileRange(msgspec.Struct):
    """The rows of one partition in one file, their times, and their offsets if it is an archive."""

    file: str
    rows: int
    first_ms: int | None
    last_ms: int | None
    first_offset: int | None = None
    last_offset: int | None = None


class FileRows(msgspec.Struct):
    """One task's records of one external partition, taken from files.

    ``first_ms``, ``reached_ms``: the lowest and the highest time of a record. ``refused``: the first rows that are no
    records, of ``refused_rows``. ``twice``: rows of an offset that had been there. ``next_offset``: behind the last row
    of an archive. ``files``: of rows without offsets, by path. ``known``: the keys that were sought and found.
    """

    topic: str
    partition: int
    records: int = 0
    first_ms: int | None = None
    reached_ms: int | None = None
    refused: list[str] = []
    refused_rows: int = 0
    twice: int = 0
    files: dict[str, FileRange] = {}
    next_offset: int | None = None
    holes: list[OffsetHole] = []
    known: set[bytes] = set()
    sums: RecordSums = msgspec.field(default_factory=RecordSums)  # in an audit

    @property
    def source(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def watch(self, pieces: Iterable[Piece], sought: frozenset[bytes] = frozenset()) -> Iterator[Piece]:
        """Yield the pieces, and count; ``sought``: keys that are looked for."""
        for piece in pieces:
            count = len(piece.batch.keys)
            if self.next_offset is not None:
                self._offsets(piece)
            if piece.refused is None:
                self.records += count
                first, reached = min(piece.batch.timestamps), max(piece.batch.timestamps)
                self.first_ms = first if self.first_ms is None else min(self.first_ms, first)
                self.reached_ms = reached if self.reached_ms is None else max(self.reached_ms, reached)
                if sought:
                    self.known.update(sought.intersection(piece.batch.keys))
            else:
                self.refused_rows += 1
                if len(self.refused) < EXAMPLES_MAX:
                    self.refused.append(f"{piece.refused}: {(piece.batch.values[0] or b'')[:80]!r}")
            yield piece

    def block(self, file: str, rows: int, first_ms: int, last_ms: int) -> None:
        """Count a block of rows of a file, whatever becomes of them."""
        known = self.files.get(file)
        if known is None:
            self.files[file] = FileRange(file, rows, first_ms, last_ms)
            return
        known.rows += rows
        known.first_ms, known.last_ms = min(known.first_ms or 0, first_ms), max(known.last_ms or 0, last_ms)

    def _offsets(self, piece: Piece) -> None:
        count, begin = len(piece.batch.keys), piece.batch.offset_at(0)
        if begin == self.next_offset and piece.batch.offset_at(count - 1) - begin == count - 1:  # they rise
            self.next_offset = begin + count
            return
        for index in range(count):
            offset, expected = piece.batch.offset_at(index), self.next_offset or 0
            if offset > expected:
                self.holes.append(OffsetHole(expected, offset))
            self.next_offset = max(expected, offset + 1)


def by_partition(taken: Iterable[FileRows]) -> dict[TopicPartition, FileRows]:
    """Return the account of each partition; tasks that read the same one have counted the same."""
    found: dict[TopicPartition, FileRows] = {}
    for each in taken:
        found.setdefault(each.source, each)
    return dict(sorted(found.items()))
