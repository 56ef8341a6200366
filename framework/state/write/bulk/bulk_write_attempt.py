"""The part of a bulk write that may run in many processes: attempts that write the data of one task each (2.5)."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from grete.execution.limits import MESSAGE_BYTES_MAX
from grete.ports import Log
from grete.protocol.changelog import ChangelogHeader, ChangelogType, encode_data
from grete.state.write.bulk.task_claim import ClaimedTask, append, verify

_OPEN_MESSAGES = 64  # data messages queued before they are handed to the log


@dataclass(frozen=True, slots=True)
class BulkWrite:
    """A bulk write's claims, as plain data, so that it can go to other processes. ``tasks``: as ``all_wirings``."""

    bulk_write_id: str
    checkpoint_id: int
    time_ms: int  # of the log, at the first claim
    tasks: tuple[ClaimedTask, ...]


@dataclass(frozen=True, slots=True)
class AttemptData:
    """The data that one attempt has written for one task: nothing newer is before ``verified``."""

    task: int  # index in BulkWrite.tasks
    attempt: int
    count: int
    digest: int
    verified: int


class Attempt:
    """Writes the data of one task. ``number`` > 0 tells attempts at it apart; only the one committed counts."""

    def __init__(self, log: Log, bulk_write: BulkWrite, task: int, number: int, reset: Sequence[int] = ()) -> None:
        """Write nothing yet; the stores in ``reset`` start empty."""
        self._log, self._claimed, self._task, self._number = log, bulk_write.tasks[task], task, number
        self._reset: tuple[int, ...] | None = tuple(reset) or None
        self._count = self._digest = 0
        self._open: list[bytes] = []
        self._offsets: list[int] = []

    def add(self, stores: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write entries; None deletes. Raises Fenced if another process has claimed the task."""
        start = size = 0
        for index, (key, value) in enumerate(zip(keys, values, strict=True), 1):
            size += len(key) + len(value or b"")
            if size >= MESSAGE_BYTES_MAX or index == len(keys):
                self._message(stores[start:index], keys[start:index], values[start:index])
                start, size = index, 0

    def _message(self, stores: Sequence[int], keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        self._count += 1
        header = ChangelogHeader(ChangelogType.DATA, self._claimed.generation, self._count, self._number)
        message = encode_data(header, stores, keys, values, self._reset)
        self._reset = None
        self._digest = zlib.crc32(message, self._digest)
        self._open.append(message)
        if len(self._open) >= _OPEN_MESSAGES:
            self._flush()

    def _flush(self) -> None:
        if self._open:
            sent = append(self._log, self._claimed, self._open)
            self._offsets += [delivery.offset for delivery in sent]
            self._open = []

    def close(self) -> AttemptData:
        """Wait until all is in the log; return what was written. Raises Fenced if another process has the task."""
        if self._reset is not None:
            self._message((), (), ())
        self._flush()
        verified = self._claimed.begin
        if self._offsets:
            alone = self._offsets == list(range(verified, verified + len(self._offsets)))
            last = self._offsets[-1]
            verified = last + 1 if alone else verify(self._log, self._claimed, verified, last)
        return AttemptData(self._task, self._number, self._count, self._digest, verified)
