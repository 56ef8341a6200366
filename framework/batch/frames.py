"""Frames and watermarks that a task in batch sends into streams, numbered, in the order of processing."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grete.core.events import Advance
from grete.core.graph.task_topology import TaskWiring
from grete.execution.timing.event_time import BEFORE_ALL
from grete.protocol.control import encode_watermark
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.frames import decode_columns
from grete.protocol.ids import TopicPartition


class Frame(NamedTuple):
    """Records of a task for one partition of a stream, as it would hold them, or a watermark.

    ``start``, ``first``: as of a Piece.
    """

    partition: TopicPartition
    start: int
    producer: int
    first: int
    message: bytes


class SentFrames:
    """Numbers the frames of one task. A consumer in deterministic mode takes them by their logical times."""

    def __init__(self, task: TaskWiring) -> None:
        self._producer, self._timed, self._merged = task.producer, task.timed_outputs, task.merged_outputs
        self._next: dict[TopicPartition, tuple[int, int]] = {}  # stream partition → next number, time reached

    def frames(self, taken: Iterable[tuple[TopicPartition, int, bytes]]) -> list[Frame]:
        """Return the frames of (partition, records, body)."""
        frames = []
        for partition, count, body in taken:
            number, reached = self._next.get(partition, (1, BEFORE_ALL))
            message = encode_header(Header(MessageType.FRAME, self._producer, 0, 0, number)) + body
            batch = decode_columns(message)
            if partition in self._merged:
                assert batch.logical is not None
                start = batch.logical[0][0]
            else:
                start, reached = max(reached, batch.timestamps[0]), max(reached, *batch.timestamps)
            frames.append(Frame(partition, start, self._producer, number, message))
            self._next[partition] = number + count, reached
        return frames

    def watermarks(self, told: Sequence[Advance]) -> list[Frame]:
        """Return the event time for consumers behind all that was sent; ``t`` counts in deterministic mode.

        Consumers in aligned mode, which take a channel as it comes, need only the last (E2).
        """
        frames = []
        for partition in self._timed if told else ():
            for advance in told if partition in self._merged else told[-1:]:
                number, reached = self._next.get(partition, (1, BEFORE_ALL))
                reached = max(reached, advance.watermark)
                message = encode_watermark(self._producer, 0, 0, number, advance.idle, (advance.watermark,))
                start = advance.t if partition in self._merged else reached
                frames.append(Frame(partition, start, self._producer, number, message))
                self._next[partition] = number + 1, reached
        return frames
