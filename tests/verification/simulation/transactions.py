"""Changelogs of sinks in transactions, as Kafka keeps them (S1): offsets without a message, aborts, time-outs.

A transaction begins with the first message of its holder and ends with the one that has ``sync`` set. No reader sees
any of it before, nor, at times, for a while after it was acknowledged. Behind it is an offset that holds no message.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from grete.logs.kafka import endings
from grete.logs.memory import MemoryPartition
from grete.ports import ExternalRecord

AGAIN_EVERY = 3  # transactions of which the end is asked for twice


class SimPartition(MemoryPartition):
    """A partition with offsets that hold no message, and with messages that cannot be read yet."""

    __slots__ = ("hidden", "hidden_until", "late", "late_until", "next")

    def __init__(self) -> None:
        """Start empty, at offset 0."""
        super().__init__()
        self.next = 0  # every offset before it is taken, by a message or by none
        self.late: int | None = None  # the first offset that cannot be read yet
        self.late_until = 0  # time
        self.hidden = 0  # the first offset that reads do not show yet, though the bounds do
        self.hidden_until = 0  # time

    @property
    def end(self) -> int:
        """The offset of the next message to come."""
        return max(self.next, self.rows[-1].offset + 1 if self.rows else self.start)  # no row lies before the start

    def leave_out(self, offsets: int) -> None:
        """Let the next offsets hold no message."""
        self.next = self.end + offsets

    def has_rows(self, offset: int) -> bool:
        """Tell whether there is a message at an offset or behind it."""
        return bool(self.rows) and self.rows[-1].offset >= offset

    def readable_end(self, now: int) -> int:
        """Return the end as a reader sees it."""
        if self.late is not None and now >= self.late_until:
            self.late = None
        return self.end if self.late is None else self.late

    def hide(self, offset: int, until: int, now: int) -> None:
        """Let reads show nothing from an offset on for a while, unless they lag already."""
        if now >= self.hidden_until:
            self.hidden, self.hidden_until = offset, until

    def truncate(self, end: int) -> int:
        """Lose the messages from ``end`` on; return how many."""
        count = len(self.rows)
        self.rows = [row for row in self.rows if row.offset < end]
        self.next, self.late, self.hidden_until = 0, None, 0
        self.leave_out(max(0, end - self.end))
        return count - len(self.rows)


class Written(NamedTuple):
    """A message of an open transaction: no reader sees it."""

    offset: int
    append_time_ms: int
    token: int
    value: bytes
    outputs: tuple[ExternalRecord, ...]


@dataclass(slots=True)
class Coordinator:
    """The broker's side of one transactional id. Who sends for the first time takes it over."""

    partition: SimPartition
    timeout_ms: float
    holder: object = None  # None: who held it is fenced off, and no successor has taken over
    known: list[object] = field(default_factory=list)  # those that have taken over once
    written: list[Written] = field(default_factory=list)
    since: int = 0  # time at which the open transaction began
    seen: Counter[str] = field(default_factory=Counter)
    epoch: int = 0  # of the holder
    ends: int = 0  # transactions that were ended by their holders
    took_s: float = 0.0  # that the last of these took
    under_way: int | None = None  # the epoch of an end that was asked for twice, and may arrive once more

    def takes(self, writer: object) -> bool:
        """Tell whether a message is taken from a writer."""
        if all(writer is not each for each in self.known):
            self.known.append(writer)
            self.abort()
            self.holder, self.epoch, self.took_s = writer, self.epoch + 1, 0.0
        return self.holder is writer

    def write(self, written: Written, now: int) -> None:
        """Append to the open transaction, or begin one."""
        if not self.written:
            self.since = now
            if endings.may_come_again(self.took_s):  # as the client of a worker does before the next transaction (S1)
                self.epoch, self.took_s = self.epoch + 1, 0.0
        self.written.append(written)
        self.partition.leave_out(1)

    def is_split(self) -> bool:
        """Tell whether a late end of the transaction before ends the open one; some ends are then asked for twice."""
        late, self.under_way = self.under_way, None
        split = late is not None and late == self.epoch
        self.seen["late ends that a new epoch refuses"] += late is not None and not split
        self.ends += 1
        again = self.ends % AGAIN_EVERY == 0  # with no draw, so that all else in a world stays as it was
        self.took_s = endings.ONCE_S if again else 0.0
        self.under_way = self.epoch if again else None
        return split

    def abort(self) -> None:
        """Drop what is open; a mark of the log's own takes one more offset."""
        if self.written:
            self.written = []
            self.partition.leave_out(1)
            self.seen["aborted transactions"] += 1

    def pass_time(self, now: int) -> None:
        """Abort a transaction that is open for too long, and fence its holder off."""
        if self.written and now - self.since > self.timeout_ms:
            self.abort()
            self.holder = None
            self.seen["transactions that timed out"] += 1
