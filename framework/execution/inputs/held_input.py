"""Input that a task processes only once a valid commit has its position: at most once, or no guarantee (0048, 0111)."""

from collections import Counter, deque
from collections.abc import Callable

from grete.protocol.ids import TopicPartition

HeldWork = Callable[[], "HeldWork | None"]  # runs user code over records; returns what is left behind due timers (E10)
_HeldRead = tuple[TopicPartition, int, HeldWork]


def input_held_back(guarantee: str, *, is_source: bool) -> "HeldInput | None":
    """Return the input that a task with this processing guarantee holds until a commit covers it; None: it does not."""
    return HeldInput() if guarantee == "none" or (guarantee == "at-most-once" and is_source) else None


class HeldInput:
    """Input in the order in which it was read: since the last freeze, in the commit on its way, and covered by one.

    A successor goes on behind the last valid commit, so what is covered is run by this process or by none.
    """

    def __init__(self) -> None:
        self.uncovered_bytes = 0  # read, and in no valid commit yet
        self._read: deque[_HeldRead] = deque()
        self._frozen: deque[_HeldRead] = deque()
        self._covered: deque[_HeldRead] = deque()
        self._counts = Counter[TopicPartition]()  # of all three

    def take(self, partition: TopicPartition, size: int, work: HeldWork) -> None:
        """Keep what was just read; ``size`` in bytes."""
        self._read.append((partition, size, work))
        self._counts[partition] += 1
        self.uncovered_bytes += size

    def froze(self) -> None:
        """A commit begins with the positions of all that was read."""
        assert not self._frozen, "one commit is on its way at a time"
        held = [*self._read, *self._covered]
        assert self.uncovered_bytes == sum(size for _, size, _ in self._read), self.uncovered_bytes
        assert self._counts.total() == len(held), f"{self._counts.total()} are counted, {len(held)} are held"
        assert all(self.holds(partition) for partition, _, _ in held), self._counts
        self._frozen, self._read = self._read, self._frozen

    def committed(self) -> None:
        """The commit is valid: what it covers may run."""
        self.uncovered_bytes -= sum(size for _, size, _ in self._frozen)
        self._covered += self._frozen
        self._frozen.clear()

    @property
    def empty(self) -> bool:
        """Whether all that was read has run."""
        return not (self._read or self._frozen or self._covered)

    def holds(self, partition: TopicPartition) -> bool:
        """Tell whether something that was read of a partition has not run."""
        return self._counts[partition] > 0

    @property
    def may_run(self) -> bool:
        """Whether something is covered and has not run."""
        return bool(self._covered)

    def run(self) -> None:
        """Run the batch, or the frame, that was covered first. What it leaves comes first still."""
        partition, size, work = self._covered.popleft()
        if (rest := work()) is not None:
            self._covered.appendleft((partition, size, rest))
        else:
            self._counts[partition] -= 1
