"""Consecutive records of one partition, in columns: what a frame holds, and what a task processes at a time."""

from collections.abc import Sequence
from typing import NamedTuple

from grete.protocol.ids import TopicPartition

NOWHERE = TopicPartition("", -1)  # where a batch was read that was not read from a log


class RecordBatch(NamedTuple):
    """Records in columns of one length, at least 1.

    ``timestamps`` in ms. ``headers``: cells for ``decode_headers``, None where a record has none; or None for all.
    Deterministic mode: ``logical`` is (times in µs, source ids), ``digest`` the channel's before this batch (D1, D3).
    ``source``, ``offset``, ``first``: where it was read. ``offset`` is that of the message that holds all records, or
    of each; ``first`` the index of the first record in its message.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int]
    headers: Sequence[bytes | None] | None = None
    logical: tuple[Sequence[int], Sequence[int]] | None = None
    digest: int = 0
    source: TopicPartition = NOWHERE
    offset: int | Sequence[int] = -1
    first: int = 0

    def offset_at(self, index: int) -> int:
        """Return the offset of the message that holds the record."""
        return self.offset if isinstance(self.offset, int) else self.offset[index]

    def after(self, count: int) -> "RecordBatch":
        """Return the records behind the first ``count`` of one message, where it has no logical time; maybe none."""
        headers = None if self.headers is None else self.headers[count:]
        keys, values, timestamps = self.keys[count:], self.values[count:], self.timestamps[count:]
        return self._replace(keys=keys, values=values, timestamps=timestamps, headers=headers, first=count)
