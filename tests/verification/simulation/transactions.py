"""Changelogs of sinks in transactions, as Kafka keeps them (S1): offsets without a message, aborts, time-outs.

A transaction begins with the first message of its holder and ends with the one that has ``sync`` set. No reader sees
any of it before, nor, at times, for a while after it was acknowledged. Behind it is an offset that holds no message.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from grete.logs.kafka.client import endings
from grete.logs.memory import MemoryPartition
from grete.ports import ExternalRecord
from tests.verification.simulation.sends import TransactionalWriter

AGAIN_EVERY = 3  # transactions of which the end is asked for twice
RENEWS_EVERY = 2  # refusals of a holder whose rival has not claimed: the others find the rival busy taking over


class SimPartition(MemoryPartition):
    """A partition with offsets that hold no message, and with messages that cannot be read yet."""

    __slots__ = ("hidden", "hidden_until", "late", "late_until", "next", "open_until")

    def __init__(self) -> None:
        """Start empty, at offset 0."""
        super().__init__()
        self.next = 0  # every offset before it is taken, by a message or by none
        self.late: int | None = None  # the first offset that cannot be read yet
        self.late_until = 0  # time
        self.hidden = 0  # the first offset that reads do not show yet, though the bounds do
        self.hidden_until = 0  # time
        self.open_until = 0  # time at which the transaction ends that a stranger has open

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
        return self.stable_end if self.late is None else self.late

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
    renews: bool = False  # whether who is refused for a rival that has not claimed may take a new epoch
    holder: TransactionalWriter | None = None  # None: who held it is fenced off, and no successor has taken over
    known: list[TransactionalWriter] = field(default_factory=list)  # those that have taken over once
    written: list[Written] = field(default_factory=list)
    since: int = 0  # time at which the open transaction began
    seen: Counter[str] = field(default_factory=Counter)
    epoch: int = 0  # of the holder
    ends: int = 0  # transactions that were ended by their holders
    took_s: float = 0.0  # that the last of these took
    under_way: int | None = None  # the epoch of an end that was asked for twice, and may arrive once more
    cut: dict[TransactionalWriter, list[Written]] = field(default_factory=dict)  # open, of who has a rival
    refusals: int = 0  # of holders whose rival has not claimed

    def takes(self, writer: TransactionalWriter, now: int, *, ends: bool) -> bool:
        """Tell whether a message is taken from a writer. A new one takes the id over.

        An older one may take it back with what ``ends`` its transaction, and then sends all of that again.
        """
        if writer not in self.known:
            self.known.append(writer)
            if self.holder is not None:
                self.cut[self.holder] = list(self.written)
            self._give(writer)
        elif ends and writer is not self.holder and self.holder is not None and self._renews(writer):
            self.seen["rivals that a new epoch fences before they claim"] += 1
            self._give(writer)
            for each in self.cut.pop(writer, ()):
                self.write(each._replace(offset=self.partition.end), now)
        return self.holder is writer

    def keep(self, writer: TransactionalWriter, written: Written) -> None:
        """Keep a message that was not taken: it is sent again where its writer takes the id back."""
        self.cut.setdefault(writer, []).append(written)

    def _give(self, writer: TransactionalWriter) -> None:
        self.abort()
        self.holder, self.epoch, self.took_s = writer, self.epoch + 1, 0.0

    def _renews(self, writer: TransactionalWriter) -> bool:
        """Whether a writer that is refused takes a new epoch, as the client of a worker does (C4).

        It looks first whether anybody has written behind its last transaction: who has claimed keeps the id (S1).
        """
        end = writer.end
        if end is None or not self.renews:  # None: its claim was refused, and it starts again
            return False
        behind = [row.value or b"" for row in self.partition.rows if row.offset >= end]
        if endings.outcome((), behind) is not endings.TransactionOutcome.ABSENT:
            return False
        self.refusals += 1
        return self.refusals % RENEWS_EVERY == 1  # with no draw, so that all else in a world stays as it was

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
            if self.holder is not None:
                self.cut[self.holder] = list(self.written)  # its client has them still
            self.abort()
            self.holder = None
            self.seen["transactions that timed out"] += 1
