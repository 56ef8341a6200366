"""Output recovery: a restarted task reads which of its outputs are visible before it makes them again (D5)."""

from collections import deque

from grete.errors import OffsetOutOfRange
from grete.execution.deterministic.differing import seq_of
from grete.execution.deterministic.outputs import LogicalOutputs
from grete.execution.deterministic.remade import Recovered
from grete.execution.limits import SLOW_LOOK_MS
from grete.logs.partition_reader import PartitionReader
from grete.ports import Log, LogRow
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition


class OutputRecovery:
    """Reads the records behind the offsets that the state knows, in every partition that the task may write to.

    A predecessor that is not dead, or messages of a dead one that arrive later, come after what is read here: the same
    records with the same seqs, for readers to drop.
    """

    def __init__(self, log: Log, bytes_max: int, outputs: LogicalOutputs) -> None:
        """``outputs`` knows the offsets, and gets the records that were found."""
        self._log = log
        self._bytes_max = bytes_max
        self._outputs = outputs
        self._left: deque[PartitionReader] = deque()  # what is still to be read
        self._found: dict[TopicPartition, Recovered] = {}  # records of this task
        self._turn: deque[TopicPartition] = deque()  # which end to look for next
        self._looked_ms = 0.0

    def begin(self, last: Commit | None) -> None:
        """Note what is to be read. Without a commit of a worker no output of it is visible."""
        is_first = last is None or last.bulk_write_id is not None
        for partition, place in self._outputs.places.items():
            start, end = self._log.bounds(partition)
            if is_first:
                self._outputs.note_end(partition, end)
            elif place < end:  # else the topic was created again, and nothing of ours is in it
                self._left.append(PartitionReader(self._log, partition, max(place, start), end))

    def look(self, now_ms: float) -> None:
        """Now and then, just before a freeze, move one of the offsets on; else a restart reads all that others wrote.

        The checkpoint's state tells of the records sent before the freeze; records sent after it come behind the
        present end.
        """
        if now_ms - self._looked_ms < SLOW_LOOK_MS:
            return
        self._looked_ms = now_ms
        if not self._turn:
            self._turn.extend(self._outputs.places)
        if self._turn:
            partition = self._turn.popleft()
            self._outputs.note_end(partition, self._log.bounds(partition)[1])

    @property
    def pending(self) -> bool:
        """Whether something is left to read: until then nothing may be made again."""
        return bool(self._left)

    def step(self) -> bool:
        """Read on; False if there is nothing left to read, or nothing that can be read yet.

        Raises TransientError if nothing comes for too long, though the log has more.
        """
        if not self._left:
            return False
        reader = self._left[0]
        partition = reader.partition
        try:
            rows = reader.read(self._bytes_max)
        except OffsetOutOfRange:  # its retention has gone on
            start = self._log.bounds(partition)[0]
            self._left[0] = PartitionReader(self._log, partition, max(reader.position, start), reader.end)
            return True
        if rows is None:
            return False
        for row in rows:
            self._look_at(partition, row)
        if rows and reader.position < reader.end:
            return True
        self._left.popleft()
        self._log.leave(partition)
        if not self._left:
            for found in self._found.items():
                self._outputs.recover(*found)
        return True

    def _look_at(self, partition: TopicPartition, row: LogRow) -> None:
        seq = seq_of(row.headers, self._outputs.producer_name)
        if seq is not None:
            self._found.setdefault(partition, Recovered()).add(seq, row.offset, row.key, row.value, row.headers or b"")
