"""The order of a task's history in batch: each channel first in, first out, channels merged by event time.

A live task takes its channels as they come; any interleaving is right. Here it is one that can be repeated: by the
highest timestamp or watermark that a channel has reached, then by channel, then by position in it. So windows see all
channels at one time, and few are open at once. Watermarks keep their places in their channels: so what is late does not
depend on this order, as little as live. In deterministic mode the order is that of logical time, as live
(``logical_order.py`` gives a source's records theirs).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import NamedTuple

from grete.core.deterministic.merge_channel import ALL
from grete.execution.task_code.record_times import part_of
from grete.ports import LogRow
from grete.protocol.control import decode_watermark
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition
from grete.protocol.record_batch import RecordBatch

TimeOfValue = Callable[[bytes | None, int], int]  # ms; it never raises

BEFORE_OTHERS = -(1 << 63)  # the start of a piece of an input that is read first (A2c), in aligned mode
RECORDS_MAX = 1_000  # of one piece; also the batch that process_batch is given


class Piece(NamedTuple):
    """Consecutive records of one channel. Sorted by its first three fields, pieces are in an order to read them in.

    ``start``: the highest timestamp or watermark of the channel, its first record here included; in deterministic mode
    the logical time of its first record, in µs. ``channel``: see ``channels.channels_of``. ``first``: number of its
    first record in the channel, where watermarks have numbers, too. ``refused``: why its one row is no record at all.
    ``watermark``: in place of records, what the channel's producer tells of its event time, in ms, and whether it is
    idle (E2). ``ended``: in place of records, that a live source took its input for idle (False) or ended (True).
    ``until``: of records that a live source took in, when the decision on them ended; -1: with the last one.
    """

    start: int
    channel: int
    first: int
    batch: RecordBatch
    refused: str | None = None
    watermark: tuple[int, bool] | None = None
    ended: bool | None = None
    until: int = -1

    def orders(self) -> list[tuple[int, int]]:
        """Return (time, logical source) of each record, or of the watermark: how far its channel was with it."""
        if self.batch.logical is not None:
            return list(zip(*self.batch.logical, strict=True))
        return [(at, 0) for at in accumulate(islice(self.batch.timestamps, 1, None), max, initial=self.start)]


# time, logical source, channel, number in the channel, where the record is
RecordPlace = tuple[int, int, int, int, Piece, int]


class InputPieces:
    """Makes the pieces of one external input, in order."""

    def __init__(self, source: TopicPartition, number: int, bytes_max: int, time_of: TimeOfValue | None = None) -> None:
        """``bytes_max``: of a piece, about; ``time_of``: value, timestamp → the time to order the record by."""
        self._source, self._number, self._bytes_max, self._time_of = source, number, bytes_max, time_of
        self._reached, self._count = -(1 << 63), 0

    def pieces(
        self,
        offsets: Sequence[int],
        timestamps: Sequence[int],
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[bytes | None] | None,
    ) -> Iterator[Piece]:
        """Yield the pieces of the next records, given in columns."""
        for begin, end in self._cuts(keys, values):
            part = slice(begin, end)
            stamps, cells = timestamps[part], None if headers is None else headers[part]
            if self._time_of is not None:
                stamps = list(map(self._time_of, values[part], stamps))
            batch = RecordBatch(keys[part], values[part], stamps, cells, source=self._source, offset=offsets[part])
            yield Piece(max(self._reached, stamps[0]), self._number, self._count, batch)
            self._reached, self._count = max(self._reached, *stamps), self._count + end - begin

    def refused(self, offset: int, value: bytes | None, reason: str) -> Piece:
        """Return the piece of a row that is no record."""
        at = max(self._reached, 0)
        self._count += 1
        return Piece(
            at,
            self._number,
            self._count - 1,
            RecordBatch([None], [value], [at], source=self._source, offset=[offset]),
            reason,
        )

    def _cuts(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> list[tuple[int, int]]:
        count = len(keys)
        total = sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
        if total <= self._bytes_max and count <= RECORDS_MAX:
            return [(0, count)] if count else []
        if total // count * RECORDS_MAX <= self._bytes_max:
            step = RECORDS_MAX
        else:
            step = max(1, min(RECORDS_MAX, self._bytes_max * count // total))
        return [(begin, min(begin + step, count)) for begin in range(0, count, step)]


def pieces_of_rows(
    source: TopicPartition,
    channel: int,
    rows: Iterable[LogRow],
    bytes_max: int = 1 << 16,
    time_of: TimeOfValue | None = None,
) -> Iterator[Piece]:
    """Cut rows of a log, in order, into pieces of about ``bytes_max``; ``time_of``: as of InputPieces."""
    maker, rows = InputPieces(source, channel, bytes_max, time_of), iter(rows)
    while batch := list(islice(rows, RECORDS_MAX)):
        offsets, _, timestamps, keys, values, headers = zip(*batch, strict=True)
        yield from maker.pieces(offsets, timestamps, keys, values, headers if any(headers) else None)


def piece_of_message(
    source: TopicPartition, start: int, channel: int, first: int, message: bytes, *, logical: bool = False
) -> Piece:
    """Return the piece that a frame or a watermark is; ``logical``: its task goes by logical time.

    Records of a stream share the offset of their message, here ``first``.
    """
    if decode_header(message).type is MessageType.WATERMARK:
        told = decode_watermark(message)
        at = ((start,), (ALL,)) if logical else None  # behind all records up to its time
        nothing = RecordBatch((), (), (), logical=at, source=source, offset=first)
        return Piece(start, channel, first, nothing, watermark=(told.watermarks[-1], told.idle))
    batch = decode_columns(message, source, first)
    return Piece(start, channel, first, batch if logical else batch._replace(logical=None))


def before_others(pieces: Iterable[Piece], until: int) -> Iterator[Piece]:
    """Yield the pieces of an input that is read first: its records before offset ``until`` come before all others."""
    for piece, count in cut_at(pieces, until):
        if count:
            yield piece._replace(start=BEFORE_OTHERS, batch=part_of(piece.batch, 0, count))
        if rest := len(piece.batch.keys) - count:
            yield piece._replace(first=piece.first + count, batch=part_of(piece.batch, count, count + rest))


def cut_at(pieces: Iterable[Piece], offset: int) -> Iterator[tuple[Piece, int]]:
    """Yield each piece, and how many of its records are before an offset."""
    for piece in pieces:
        count = len(piece.batch.keys)
        before = count if piece.batch.offset_at(count - 1) < offset else 0
        if not before and piece.batch.offset_at(0) < offset:
            before = sum(piece.batch.offset_at(i) < offset for i in range(count))
        yield piece, before


def merged(pieces: Iterable[Piece], channels: int, first: Collection[int] = ()) -> Iterator[Piece]:
    """Yield the records in their order: pieces in, sorted; pieces out, of one source each, to be taken one by one.

    Holds no more than the pieces whose times overlap. ``first``: channels whose history comes before that of others;
    it has one time, and pieces in their order.
    """
    if channels == 1:
        yield from pieces
        return
    held: list[RecordPlace] = []
    before: Piece | None = None
    for piece in pieces:
        if piece.start <= 0 and piece.channel in first:
            yield piece
            continue
        if before is not None:
            yield from _released(held, before, piece.start)
        before = piece
    if before is not None:
        yield from _released(held, before, None)


def _released(held: list[RecordPlace], piece: Piece, until: int | None) -> Iterator[Piece]:
    """Take a piece in, yield what comes before ``until``, the start of the next one: None is the end."""
    orders = piece.orders()
    if not held and (until is None or orders[-1][0] < until):
        yield piece
        return
    if piece.refused is not None:
        yield piece
        return
    held.extend((*order, piece.channel, piece.first + i, piece, i) for i, order in enumerate(orders))
    held.sort(key=itemgetter(0, 1, 2, 3))
    end = len(held) if until is None else next((i for i, taken in enumerate(held) if taken[0] >= until), len(held))
    ready = held[:end]
    del held[:end]
    for _, same in groupby(ready, _together):
        together = list(same)
        for start in range(0, len(together), RECORDS_MAX):
            yield _piece(together[start : start + RECORDS_MAX])


def _together(taken: RecordPlace) -> tuple[object, ...]:
    """Return the key that the records of one piece share; anything that is no record has a piece for itself."""
    _, _, channel, number, piece, _ = taken
    return piece.batch.source if piece.batch.keys else (channel, number)


def _piece(taken: list[RecordPlace]) -> Piece:
    order, _, channel, number, piece, _ = taken[0]
    if not piece.batch.keys:
        return piece
    places = [(of.batch, i) for *_, of, i in taken]
    cells = [None if of.headers is None else of.headers[i] for of, i in places]
    *_, last, at = taken[-1]
    return Piece(
        order,
        channel,
        number,
        RecordBatch(
            [of.keys[i] for of, i in places],
            [of.values[i] for of, i in places],
            [of.timestamps[i] for of, i in places],
            cells if any(cells) else None,
            None if piece.batch.logical is None else ([at for at, *_ in taken], [by for _, by, *_ in taken]),
            source=piece.batch.source,
            offset=[of.offset_at(i) for of, i in places],
        ),
        until=last.until if at == len(last.batch.keys) - 1 else -1,
    )
