"""The steps of an attempt at a checkpoint, in their order: the recorder keeps them, the oracle replays them."""

from typing import NamedTuple

from grete.execution.timing.event_time import TimeSource
from grete.protocol.ids import TopicPartition

TOLD, QUIET = -1, -2  # instead of a draw: the step is a watermark; a source that has become idle
ALARM = -3  # likewise: wall-clock timers have fired, up to a time; and in aligned mode at most how many
SLICE = -4  # likewise: a call begins that fires this number of timers and leaves others; or with ALL leaves none
ALL = -1
OUTSIDE = -1  # instead of a producer id: the record came from an external topic
TIME = -2  # instead of a producer id: no record came, event time may have moved
NOWHERE = TopicPartition("", 0)


NOT_TAKEN = -1  # the offset of a record that comes again: timers were left before its turn in a batch that failed


class Step(NamedTuple):
    """One record as an attempt processed it: where it came from, what it was, and what was drawn for it."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    draw: int
    timestamp: int = 0  # ms
    key: bytes | None = None
    more: bool = False  # another record follows in the same batch, of a task that takes batches
    ended: bool = False  # the source is not idle alone


class LogicalStep(NamedTuple):
    """One record as a deterministic task processed it."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    t: int
    source: int
    timestamp: int  # ms
    key: bytes | None
    draw: int = 0  # it is no watermark
    ended: bool = False


class TimeStep(NamedTuple):
    """Watermarks as they were merged, or that an external ``partition`` became idle, or has ``ended``."""

    partition: TopicPartition
    producer: int
    offset: int
    value: bytes
    t: int
    marks: tuple[tuple[TimeSource, int, bool], ...]
    draw: int = -1
    ended: bool = False
