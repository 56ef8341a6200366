"""The state of one channel of an aligned producer, and the checks of its messages (A3, A5, A6, R2)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from grete.core.halts import halted
from grete.protocol.commit import ChannelCommit
from grete.protocol.envelope import Header
from grete.protocol.ids import TopicPartition


class SkippedRecord(NamedTuple):
    """The first record of a channel that was not admitted for lack of room: it is read again (A5)."""

    checkpoint_id: int
    offset: int


@dataclass(slots=True)
class Channel:
    """One FIFO of one producer in one partition; a function of the last commit and of what was read since."""

    task: str  # for errors
    producer: int
    partition: TopicPartition
    next_seq: int = 1  # admitted next
    included: int = 0  # last seq in the state, open write batch included
    generation: int = 0  # announced last
    marker: int = 0  # all records up to this checkpoint have been read
    ended: bool = False  # the last marker said that its producer's inputs have ended (A2b)
    said: tuple[int, int, int] = -1, 0, -1  # generation, checkpoint and offset of the last marker, or rollback marker
    last: int | None = None  # the checkpoint of a marker that came again: its producer has stopped there (R6)
    skipped: SkippedRecord | None = None
    future: list[tuple[int, int]] = field(
        default_factory=list
    )  # (checkpoint, offset) of markers that a restart must read again

    def announced(self, generation: int, restored: int, offset: int) -> None:
        """Note that a generation has begun, with what it goes back to."""
        self.generation, self.said, self.last = generation, (generation, restored, offset), None

    def says(self, generation: int, checkpoint_id: int, offset: int) -> None:
        """Note a marker; one that says again what the one before has said is the last (R6), unless it is read again."""
        if offset > self.said[2]:
            self.last = checkpoint_id if self.said[:2] == (generation, checkpoint_id) else None
            self.said = generation, checkpoint_id, offset

    def rewind(self, commit: ChannelCommit) -> None:
        """Go back to a commit. Whether its producer has stopped stays known: both its last markers may lie before."""
        self.next_seq, self.included = commit.seq + 1, commit.seq
        self.generation, self.marker, self.ended = commit.generation, max(commit.checkpoint_id, 0), False
        self.skipped, self.future = None, []

    def proves(self, checkpoint_id: int, offset: int, frozen: int) -> None:
        """Note that all records up to ``checkpoint_id`` are before ``offset``."""
        if self.skipped is not None:
            # proves only what lies below the first skipped record
            checkpoint_id = min(checkpoint_id, self.skipped.checkpoint_id - 1)
        elif checkpoint_id > frozen:
            self.future.append((checkpoint_id, offset))
        self.marker = max(self.marker, checkpoint_id)

    def commit(self, checkpoint_id: int, position: int) -> ChannelCommit:
        """Close ``checkpoint_id``; ``position``: of the first message in an early buffer, or of the next to be read."""
        if self.future:
            self.future = [each for each in self.future if each[0] > checkpoint_id]
            position = min(position, self.future[0][1]) if self.future else position  # offsets rise
        if self.skipped is not None:
            position = min(position, self.skipped.offset)
        return ChannelCommit(self.producer, self.generation, checkpoint_id, self.included, position)

    def expects(self, generation: int, seq: int, at_end: int) -> bool:
        """Whether a marker agrees with all that came before it in this channel, and says nothing new of the end."""
        same = generation == self.generation and seq == self.next_seq and at_end == self.ended
        return same and self.skipped is None

    def check_announced(self, offset: int, header: Header) -> None:
        """Raise Halted if the rollback marker that announces this generation is missing: lost by the log (R2, 0011)."""
        if header.generation > self.generation:
            raise halted(
                self.task, self.partition, offset, header, f"generation was never announced (last: {self.generation})"
            )

    def check_complete(self, offset: int, header: Header, what: str) -> None:
        """Raise Halted if a record before this message is missing, other than one that was skipped."""
        if self.skipped is None and header.seq > self.next_seq:
            text = f"expected seq {self.next_seq}: a record before the {what} was lost"
            raise halted(self.task, self.partition, offset, header, text)

    def check_grown(self, offset: int, header: Header, frozen: int) -> None:
        """Raise Halted if the marker of an open checkpoint says fewer records than are in the state (A6)."""
        if header.generation == self.generation and header.checkpoint_id > frozen and header.seq <= self.included:
            text = f"ends checkpoint {header.checkpoint_id} before seq {header.seq}, but {self.included} is processed"
            raise halted(self.task, self.partition, offset, header, f"{text}: its producer's changelog was cut")

    def check_invariants(self, frozen: int) -> None:
        """Raise AssertionError unless this holds between any two steps of a task that has frozen ``frozen``."""
        assert self.skipped is None or self.skipped.checkpoint_id > frozen, self
        assert not self.future or min(self.future)[0] > frozen, self
        assert self.skipped is None or self.marker < self.skipped.checkpoint_id, self  # it proves what is below it
        assert self.next_seq >= 1 and self.included >= 0 <= self.generation, self
        offsets = [offset for _, offset in self.future]
        assert offsets == sorted(offsets), self.future  # as they were read
