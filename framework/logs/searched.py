"""A log for a search that comes to the same places again and again, as one for commits by their checkpoint does.

Each place of a log on Kafka costs a seek, which takes 15 ms; a search for the next checkpoint comes to some 150.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Self

from grete.logs.delegating import DelegatingReader
from grete.ports import LogReader, LogRow
from grete.protocol.ids import TopicPartition
from grete.settings import MiB

KEPT_BYTES_MAX = 32 * MiB  # beyond, all that was read is dropped
ROW_BYTES = 48  # what a row counts beside its key and value, as in the logs


class SearchedLog(DelegatingReader):
    """Keeps what was read, in memory, and looks at the log itself for what comes later and for bounds.

    For one search: what is trimmed meanwhile is still found.
    """

    def __init__(self, log: LogReader) -> None:
        """The log stays its owner's: to close this does nothing."""
        super().__init__(log)
        self._kept: dict[TopicPartition, list[tuple[int, list[LogRow]]]] = {}  # (offset asked for, rows), newest first
        self._bytes = 0

    @classmethod
    def of(cls, log: LogReader) -> Self:
        """Return a log that is searched; one that is already is itself."""
        return log if isinstance(log, cls) else cls(log)

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on, as ``LogReader.read`` does; those that are kept, whatever their size."""
        if kept := self._at(partition, offset):
            return kept
        found = self.log.read(partition, offset, max_bytes)
        if found:
            self._bytes += sum(ROW_BYTES + len(row.key or b"") + len(row.value or b"") for row in found)
            if self._bytes > KEPT_BYTES_MAX:
                self._kept, self._bytes = {}, 0
            else:
                self._kept.setdefault(partition, []).insert(0, (offset, found))
        return found

    def _at(self, partition: TopicPartition, offset: int) -> list[LogRow]:
        for begin, rows in self._kept.get(partition, ()):
            if begin <= offset <= rows[-1].offset:
                return rows[bisect_left(rows, offset, key=_offset) :]
        return []

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Tell the log of what is not kept."""
        self.log.expect({each: span for each, span in spans.items() if not self._at(each, span[0])})

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Tell whether it is kept, or the log has it."""
        return bool(self._at(partition, offset)) or self.log.at_hand(partition, offset)

    def leave(self, partition: TopicPartition) -> None:
        """Forget a partition."""
        self._kept.pop(partition, None)
        self.log.leave(partition)

    def close(self) -> None:
        """Do nothing."""


def _offset(row: LogRow) -> int:
    return row.offset
