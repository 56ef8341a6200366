"""The sender of a task: records have a seq in each partition, messages a token over all partitions (A3, A7)."""

from collections.abc import Iterable, Sequence

from grete.core.actions import Action, Produce, Send
from grete.protocol.commit import Commit, OutputCommit
from grete.protocol.envelope import Header, MessageType, encode_header
from grete.protocol.ids import TopicPartition


class Sender:
    """The partitions that a task writes to. Acknowledged are all messages up to the token ``acked``."""

    def __init__(self, producer: int, partitions: Iterable[TopicPartition]) -> None:
        self.next_seq: dict[TopicPartition, int] = dict.fromkeys(partitions, 1)
        self.token = 0  # of the message sent last
        self.acked = 0
        self._producer = producer

    @property
    def all_acked(self) -> bool:
        """Whether the log has everything that was sent."""
        return self.acked >= self.token

    def send(self, partition: TopicPartition, value: bytes) -> Send:
        """Send a message that holds no records."""
        self.token += 1
        return Send(self.token, partition, value)

    def frames(
        self, frames: Sequence[tuple[TopicPartition, int, bytes]], generation: int, checkpoint_id: int
    ) -> list[Action]:
        """Send frames: each is its partition, its number of records and its body, which gets its header here."""
        actions: list[Action] = []
        ours = (MessageType.FRAME, self._producer, generation, checkpoint_id)
        for partition, count, body in frames:
            assert count > 0, f"{partition}: a frame without records"
            header = encode_header(Header(*ours, self.next_seq[partition]))
            self.next_seq[partition] += count
            actions.append(self.send(partition, header + body))
        return actions

    def produce(self, count: int) -> Produce:
        """Send the oldest ``count`` records that wait for topics outside of the job."""
        self.token += 1
        return Produce(self.token, count)

    def commit(self) -> tuple[OutputCommit, ...]:
        """Return the seqs for a commit."""
        return tuple(OutputCommit(p.topic, p.partition, seq) for p, seq in self.next_seq.items())

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        assert 0 <= self.acked <= self.token, (self.acked, self.token)
        assert min(self.next_seq.values(), default=1) >= 1, self.next_seq

    def resume(self, commit: Commit) -> None:
        """Go back to the seqs of a commit: what came after it is made again, or taken back."""
        self.next_seq |= {TopicPartition(o.topic, o.partition): o.next_seq for o in commit.outputs}
