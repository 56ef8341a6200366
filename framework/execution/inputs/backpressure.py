"""Tells whether the consumers of a source's streams are too far behind for it to go on (B1), and tells producers so.

What counts is what consumers have not processed, not what they have not committed: with a long interval, nothing is
trimmed for long. A consumer reports its positions to the log; those of a crash are stale, which the next ones correct.
"""

from collections.abc import Callable, Sequence

from grete.execution.inputs.input_reader import InputReader
from grete.execution.limits import BACKPRESSURE_LOOK_MS, LAG_PER_PRODUCER, POSITION_REPORT_MS, POSITION_REPORT_PARTS
from grete.ports import Log
from grete.protocol.ids import TopicPartition


def lag_bound(messages_max: int, producers: int) -> int:
    """Return the bound of a partition: markers and progress messages alone must not reach it."""
    return max(messages_max, LAG_PER_PRODUCER * producers)


class Backpressure:
    """Measures the streams when they may be too long, and while they are; else a source never waits for the answer.

    Each producer of a stream measures by itself, so it may send its share of the room before it measures again. One may
    fill the room while another still has its share: a stream holds less than twice the bound.
    """

    def __init__(self, log: Log, streams: Sequence[TopicPartition], messages_max: int, producers: int) -> None:
        """``messages_max``: not processed, in a partition; ``producers``: how many write to each of them."""
        self._log = log
        self._streams = streams
        self._messages_max = lag_bound(messages_max, producers)
        self._producers = producers
        self._room = 0  # messages that may be sent to a partition before the next look
        self._sent = dict.fromkeys(streams, 0)  # since the last one
        self._most = 0  # of those
        self._behind = False
        self._due_ms = 0.0

    def sent(self, partition: TopicPartition) -> None:
        """Count a message to one of the streams."""
        self._sent[partition] = count = self._sent[partition] + 1
        self._most = max(self._most, count)

    def behind(self, now_ms: float) -> bool:
        """Return whether too much of a partition is not processed."""
        if now_ms >= self._due_ms if self._behind else self._most >= self._room:
            left = self._messages_max - self._lag()
            self._behind, self._due_ms = left < 0, now_ms + BACKPRESSURE_LOOK_MS
            self._room = max(1, left // self._producers)
            self._sent, self._most = dict.fromkeys(self._streams, 0), 0
        return self._behind

    @property
    def due_in_ms(self) -> float:
        """The ms until the next look; a minute if consumers are not behind."""
        return BACKPRESSURE_LOOK_MS if self._behind else 60_000.0

    def _lag(self) -> int:
        """Return the most messages of a partition that its consumer has not processed, as far as is known."""
        bounds = self._log.all_bounds(self._streams)
        untrimmed = max((end - start for start, end in bounds.values()), default=0)
        if untrimmed <= self._messages_max // 2:
            return untrimmed
        lags = []
        processed = self._log.processed(self._streams)
        for partition, (start, end) in bounds.items():
            offset = processed.get(partition, start)
            lags.append(end - (max(start, offset) if offset <= end else start))  # behind the end: of an earlier topic
        return max(lags)


class ReportedPositions:
    """Reports how far a task has processed its streams: when it has gone on a good part of the bound, and every 5 s."""

    def __init__(
        self,
        log: Log,
        reader: InputReader,
        processed_offset: Callable[[TopicPartition], int],
        producers: dict[TopicPartition, int],
        messages_max: int,
    ) -> None:
        """``producers``: how many a partition has; the bound of Backpressure is reckoned with the same number."""
        self._log, self._reader, self._processed_offset = log, reader, processed_offset
        self._every = {
            partition: lag_bound(messages_max, count) // POSITION_REPORT_PARTS for partition, count in producers.items()
        }
        self._reported: dict[TopicPartition, int] = {}
        self._asked = 0
        self._due_ms = 0.0

    def forget(self, partition: TopicPartition) -> None:
        """It is read from elsewhere, perhaps again: what was reported may be too high."""
        self._reported.pop(partition, None)

    def look(self, now_ms: float, asked: int = 0) -> None:
        """Report what has changed, and all once another checkpoint is asked for (A9)."""
        due = now_ms >= self._due_ms
        moved = {}
        for partition, every in self._every.items():
            reported = self._reported.get(partition)
            if due or reported is None or self._reader.position(partition) - reported >= every:
                offset = self._processed_offset(partition)
                if reported is None or offset - reported >= (1 if due else every):
                    moved[partition] = offset
        if due:
            self._due_ms = now_ms + POSITION_REPORT_MS
        if asked > self._asked:
            self._asked = asked
            moved = {partition: self._processed_offset(partition) for partition in self._every}
        if moved:
            self._reported |= moved
            self._log.report_processed(moved, asked)
