"""The batches that a merge hands out, in the order of their keys (D1); it takes back some behind watermarks (E10)."""

from collections.abc import Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

from grete.core.deterministic.decoded_frame import DecodedFrame
from grete.core.deterministic.logical_watermarks import WaitingWatermark
from grete.core.deterministic.merge_channel import MergeChannel
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch


class FrameSlice(NamedTuple):
    """Records ``start`` to ``stop`` of the first frame of a channel."""

    channel: MergeChannel
    head: DecodedFrame
    start: int
    stop: int

    def give_back(self) -> int:
        """Let the channel have the records again; return how many bytes it takes more."""
        gone = not self.channel.queue or self.channel.queue[0] is not self.head
        if gone:
            self.channel.queue.appendleft(self.head)
        self.head.start, self.channel.processed = self.start, self.head.seq + self.start - 1
        return self.head.size if gone else 0


class ChannelWatermark(NamedTuple):
    """A watermark of a channel."""

    channel: MergeChannel
    watermark: WaitingWatermark

    def give_back(self) -> int:
        """Let the channel have the watermark again; return how many bytes it takes more."""
        return self.channel.watermarks.give_back(self.watermark)


class HandedOut:
    """The records and watermarks of one ``take``, in order."""

    def __init__(self) -> None:
        self._parts: list[FrameSlice | ChannelWatermark] = []
        self._behind: dict[int, int] = {}  # number of batches, the last of which are watermarks → of parts

    def clear(self) -> None:
        """Forget what was handed out: it is processed."""
        self._parts, self._behind = [], {}

    def add(self, parts: Sequence[FrameSlice | ChannelWatermark]) -> None:
        """Note what is handed out next."""
        self._parts += parts

    def mark(self, batches: int) -> None:
        """Note that with this many batches watermarks have been handed out last."""
        self._behind[batches] = len(self._parts)

    def give_back(self, batches: int) -> int:
        """Take back all behind the first ``batches``; return its size in bytes."""
        parts, self._parts = self._parts[self._behind[batches] :], []
        return sum(part.give_back() for part in reversed(parts))


def batches_of(cuts: Sequence[FrameSlice], *, several: bool) -> list[RecordBatch]:
    """Return the records of frames, merged; ``several``: they may be of several partitions."""
    if len(cuts) == 1:
        [(channel, head, start, stop)] = cuts
        return [_batch(channel.partition, _columns(head, start, stop))]
    if not cuts:
        return []
    columns = [list(chain.from_iterable(part)) for part in zip(*(_columns(*cut[1:]) for cut in cuts), strict=True)]
    pairs = list(chain.from_iterable(head.pairs[start:stop] for _, head, start, stop in cuts))
    # stable, and the cuts are in the order of the channels: equal pairs stay in the order of channel and seq
    order = sorted(range(len(pairs)), key=pairs.__getitem__)
    if not several:
        return [_batch(cuts[0].channel.partition, _ordered(columns, order))]
    partitions = [channel.partition for channel, _, start, stop in cuts for _ in range(start, stop)]
    groups = groupby(order, key=partitions.__getitem__)
    return [_batch(partition, _ordered(columns, list(group))) for partition, group in groups]


def _ordered(columns: list[list[Any]], order: list[int]) -> list[Sequence[Any]]:
    if len(order) == 1:
        return [column[order[0] : order[0] + 1] for column in columns]
    pick = itemgetter(*order)
    return [pick(column) for column in columns]


def _columns(head: DecodedFrame, start: int, stop: int) -> tuple[Sequence[Any], ...]:
    """Return offsets, keys, values, timestamps, headers, times, sources of some records of a frame."""
    batch = head.batch
    assert batch.logical is not None
    cells = batch.headers or [None] * len(batch.keys)
    columns: tuple[Sequence[Any], ...] = (batch.keys, batch.values, batch.timestamps, cells, *batch.logical)
    if stop - start < len(batch.keys):
        columns = tuple(column[start:stop] for column in columns)
    return [head.offset] * (stop - start), *columns


def _batch(partition: TopicPartition, columns: Sequence[Sequence[Any]]) -> RecordBatch:
    offsets, keys, values, timestamps, headers, times, sources = columns
    cells = headers if any(headers) else None
    return RecordBatch(keys, values, timestamps, cells, (times, sources), source=partition, offset=offsets)
