"""A log that is read for somebody who waits for the answer: within a time, and a number of bytes."""

import time

from grete.errors import TransientError
from grete.logs.delegating import DelegatingReader
from grete.ports import JobLogReader, LogRow, MetadataReader
from grete.protocol.ids import TopicPartition

READ_S_MAX, READ_BYTES_MAX = 15.0, 256 << 20  # of one answer


class BoundedReader(DelegatingReader):
    """A log's reading half that gives up after a time, or after a number of bytes: somebody waits for the answer."""

    def __init__(self, log: JobLogReader, seconds: float = READ_S_MAX, bytes_max: int = READ_BYTES_MAX) -> None:
        super().__init__(log)
        self._metadata, self._seconds, self._bytes_max = log.read_metadata, seconds, bytes_max
        self._said = f"more than {seconds:.0f} s, or {bytes_max >> 20} MiB of the log"
        self.renew()

    def renew(self, share: float = 1.0) -> None:
        """Let the next answer begin, with this ``share`` of the bounds; it may be called in another thread."""
        self._until_s, self._left = time.monotonic() + share * self._seconds, share * self._bytes_max

    @property
    def over(self) -> bool:
        """Whether this answer is at a bound."""
        return self._left < 0 or time.monotonic() > self._until_s

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Read as the log does. Raises TransientError at the bound."""
        rows = super().read(partition, offset, max_bytes)
        self._left -= sum(len(row.key or b"") + len(row.value or b"") for row in rows)
        if self.over:
            raise TransientError(
                f"this takes {self._said}: ask for less, or use the command line, which has no bound: "
                "grete state get, grete state scan, grete topic read"
            )
        return rows

    def read_metadata(self, job: str) -> MetadataReader:
        """As the log."""
        return self._metadata(job)
