"""The number of offsets of external inputs without a record: transaction markers and compacted records."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from grete.ports import LogRow
from grete.protocol.ids import TopicPartition


class InputHoles:
    """Of one task, since its process began to read."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}  # offset to be read next
        self._passed = Counter[TopicPartition]()
        self._frozen: deque[tuple[int, Counter[TopicPartition]]] = deque([(-1, Counter())])  # by checkpoint id

    def read(self, partition: TopicPartition, first: int, rows: Sequence[LogRow]) -> None:
        """Note rows; ``first``: where reading began, of the first ones since a start or a rollback."""
        end = rows[-1].offset + 1
        self._passed[partition] += end - self._next.get(partition, first) - len(rows)
        self._next[partition] = end

    def dropped(self, partition: TopicPartition, first: int, rows: int) -> None:
        """Note that the last rows, those from offset ``first`` on, are read again."""
        self._passed[partition] -= self._next[partition] - first - rows
        self._next[partition] = first

    def froze(self, checkpoint_id: int) -> None:
        """Note that this checkpoint holds what was read so far."""
        self._frozen.append((checkpoint_id, self._passed.copy()))

    def rolled_back(self) -> None:
        """Note that what was read since the last checkpoint is read again."""
        self._next.clear()
        self._passed = self._frozen[-1][1].copy()

    def committed(self, checkpoint_id: int) -> Mapping[TopicPartition, int]:
        """Return the number by partition below the offsets of a commit; later questions are about later commits."""
        while len(self._frozen) > 1 and self._frozen[1][0] <= checkpoint_id:
            self._frozen.popleft()
        return self._frozen[0][1]
