"""Positions of a task in its external topics, and the inputs that are read first (A2, A2b, A2c)."""

from collections.abc import Iterable, Mapping, Sequence

from grete.protocol.commit import Commit, ExternalInput
from grete.protocol.ids import TopicPartition

Bounds = dict[TopicPartition, tuple[int, int]]  # first and next offset of partitions, as of Start


class ExternalInputs:
    """All external partitions of a task; ``position``: the offset of each that is to be read next."""

    def __init__(
        self,
        partitions: Iterable[TopicPartition],
        bootstrap: Sequence[TopicPartition] = (),
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """``bootstrap``: those that are read before all others, to the end that they had when the process started.

        ``starts``: the offset at which a partition begins that no commit has; of others, the first that is there.
        """
        self.position: dict[TopicPartition, int] = {}
        self.ended = dict.fromkeys(partitions, False)
        self._bootstrap = bootstrap
        self._starts = starts or {}
        self._ends: dict[TopicPartition, int] = {}  # of the bootstrap partitions, as of Start

    def begin(self, bounds: Bounds) -> None:
        """Begin where no commit has been (``_first``): the genesis commit pins it (A2)."""
        self.position = {partition: self._first(partition, bounds) for partition in self.ended}
        self._find_ends(bounds)

    def resume(self, commit: Commit, bounds: Bounds) -> None:
        """Go back to a commit; a partition that it does not know begins as in a new job."""
        committed = {TopicPartition(e.topic, e.partition): e.offset for e in commit.external}
        self.position = {p: committed[p] if p in committed else self._first(p, bounds) for p in self.ended}
        self.ended = dict.fromkeys(self.ended, False)
        self._find_ends(bounds)

    def _first(self, partition: TopicPartition, bounds: Bounds) -> int:
        """Return the start offset of a partition: its first record, or its end if the job is to begin there."""
        return max(bounds[partition][0], self._starts.get(partition, 0))

    def _find_ends(self, bounds: Bounds) -> None:
        self._ends = {partition: bounds[partition][1] for partition in self._bootstrap}

    @property
    def read_first(self) -> tuple[TopicPartition, ...]:
        """The partitions before whose ends nothing else may be read (A2c); none: all inputs may be.

        The messages at an end need not be records: the driver tells when nothing more comes.
        """
        return tuple(p for p in self._bootstrap if self.position[p] < self._ends[p] and not self.ended[p])

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        assert not self.position or self.position.keys() == self.ended.keys(), (self.position, self.ended)
        assert min(self.position.values(), default=0) >= 0, self.position

    def needs(self, partition: TopicPartition, offset: int) -> bool:
        """Whether what is at an offset is to be read before all other inputs (A2c)."""
        return offset < self._ends.get(partition, 0)

    def waits(self, partition: TopicPartition) -> bool:
        """Whether an input, external or internal, waits for others to be read to their ends (A2c)."""
        first = self.read_first
        return bool(first) and partition not in first

    @property
    def all_ended(self) -> bool:
        """Whether no partition has a record left, as far as is known."""
        return all(self.ended.values())

    def commit(self) -> tuple[ExternalInput, ...]:
        """Return the positions for a commit."""
        return tuple(ExternalInput(p.topic, p.partition, offset) for p, offset in self.position.items())
