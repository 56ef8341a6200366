"""Where a task is in the topics outside of the job that it reads, and which of them have ended (A2, A2b)."""

from collections.abc import Iterable

from protocol.commit import Commit, ExternalInput
from protocol.ids import TopicPartition

Bounds = dict[TopicPartition, tuple[int, int]]  # first and next offset of partitions, as of Start


class ExternalInputs:
    """All external partitions of a task; ``position``: the offset of each that is to be read next."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.position: dict[TopicPartition, int] = {}
        self.ended = dict.fromkeys(partitions, False)

    def begin(self, bounds: Bounds) -> None:
        """Begin with the first record that the log holds: the genesis commit pins it (A2)."""
        self.position = {partition: bounds[partition][0] for partition in self.ended}

    def resume(self, commit: Commit, bounds: Bounds) -> None:
        """Go back to a commit; a partition that it does not know begins with its first record."""
        committed = {TopicPartition(e.topic, e.partition): e.offset for e in commit.external}
        self.position = {p: committed.get(p, bounds[p][0]) for p in self.ended}
        self.ended = dict.fromkeys(self.ended, False)

    @property
    def all_ended(self) -> bool:
        """Whether no partition has a record left, as far as is known."""
        return all(self.ended.values())

    def commit(self) -> tuple[ExternalInput, ...]:
        """Return the positions for a commit."""
        return tuple(ExternalInput(p.topic, p.partition, offset) for p, offset in self.position.items())
