"""What a restarted task looks for outside before it makes its outputs again: which of them stand there already (D5)."""

from collections import deque

from framework.api.reader import PRODUCER, SEQ
from framework.errors import OffsetOutOfRange
from framework.ports import Log
from framework.runtime.deterministic.runner import LogicalRunner
from protocol.commit import Commit
from protocol.frames import decode_headers
from protocol.ids import TopicPartition

LOOK_MS = 1_000  # between two looks where a partition ends


class ReadBack:
    """Reads what stands behind the places that the state knows, in every partition that the task may write to.

    A predecessor that is not dead, or messages of a dead one that arrive later, come after what is read here: the same
    records with the same seqs, for readers to drop.
    """

    def __init__(self, log: Log, bytes_max: int, code: LogicalRunner) -> None:
        """``code`` knows the places and is told what was found."""
        self._log = log
        self._bytes_max = bytes_max
        self._code = code
        self._left: deque[tuple[TopicPartition, int, int]] = deque()  # to be read from an offset to another
        self._found: dict[TopicPartition, int] = {}  # the last seq of this task
        self._turn: deque[TopicPartition] = deque()  # which end to look for next
        self._looked_ms = 0.0

    def begin(self, last: Commit | None) -> None:
        """Note what is to be read. Without a commit of a worker nothing can be out: what there is, others have made."""
        is_first = last is None or last.run_id is not None
        for partition, place in self._code.places.items():
            start, end = self._log.bounds(partition)
            if is_first:
                self._code.stands(partition, end)
            elif place < end:  # else the topic was made anew, and nothing of ours is in it
                self._left.append((partition, max(place, start), end))

    def look(self, now_ms: float) -> None:
        """Move one place on, now and then, just before a version is frozen: else where others write, all is read again.

        Of what is sent before the freeze the version's state tells; what is sent after it stands behind the end of now.
        """
        if now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        if not self._turn:
            self._turn.extend(self._code.places)
        if self._turn:
            partition = self._turn.popleft()
            self._code.stands(partition, self._log.bounds(partition)[1])

    def step(self) -> bool:
        """Read on; False if there is nothing left to read."""
        if not self._left:
            return False
        partition, offset, end = self._left.popleft()
        try:
            rows = self._log.read(partition, offset, self._bytes_max)
        except OffsetOutOfRange:  # its retention has gone on
            self._left.appendleft((partition, max(offset, self._log.bounds(partition)[0]), end))
            return True
        for row in rows:
            self._look_at(partition, row[5])
        if rows and rows[-1][0] + 1 < end:
            self._left.appendleft((partition, rows[-1][0] + 1, end))
            return True
        self._log.leave(partition)
        if not self._left:
            self._code.go_on_after(self._found)
        return True

    def _look_at(self, partition: TopicPartition, cell: bytes | None) -> None:
        if cell is None or self._code.producer_name not in cell:
            return
        headers = dict(decode_headers(cell))
        if headers.get(PRODUCER) == self._code.producer_name and SEQ in headers:
            self._found[partition] = max(int(headers[SEQ]), self._found.get(partition, 0))
