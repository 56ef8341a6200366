"""Trims of a task: its changelog, and streams once it has committed, or later for readers outside (K2, K3)."""

from collections import deque

from grete.ports import Log
from grete.protocol.ids import TopicPartition

PARTS = 32  # offsets remembered over the retention: a trim is late by at most a 32nd of it


class StreamTrims:
    """Holds the trims of one task's streams back. After a restart it holds none, so records stay longer, never less."""

    def __init__(self, retention_ms: int) -> None:
        """``retention_ms``: how long what is committed stays; 0: not at all."""
        self._retention_ms = retention_ms
        self._held: dict[TopicPartition, deque[tuple[float, int]]] = {}  # (when it was committed, the first to stay)

    def due(self, partition: TopicPartition, offset: int, now_ms: float) -> int:
        """Take the offset before which nothing is needed any more; return the one to trim before, 0: nothing yet."""
        if not self._retention_ms:
            return offset
        held = self._held.setdefault(partition, deque())
        assert not held or offset >= held[-1][1], f"{partition}: offset {offset} is needed behind {held[-1][1]}"
        if not held or now_ms - held[-1][0] >= self._retention_ms / PARTS:
            held.append((now_ms, offset))
        found = 0
        while held and now_ms - held[0][0] >= self._retention_ms:
            found = held.popleft()[1]
        return found


class Trims:
    """The trims of one task, each partition only forwards."""

    def __init__(self, log: Log, changelog: TopicPartition, retention_ms: int) -> None:
        """``retention_ms``: of streams. What is not the ``changelog`` is one."""
        self._log, self._changelog = log, changelog
        self._streams = StreamTrims(retention_ms)
        self._trimmed: dict[TopicPartition, int] = {}

    def trim(self, partition: TopicPartition, offset: int, now_ms: float) -> None:
        """Trim before the offset, which nothing of this job needs any more, or before one that has been held back."""
        if partition != self._changelog:
            offset = self._streams.due(partition, offset, now_ms)
        if self._trimmed.get(partition, 0) < offset:
            self._log.trim(partition, offset)
            self._trimmed[partition] = offset
