"""The reading half of an embedded log: no lock, no notifier, and a connection to SQLite that refuses every write."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from grete.errors import OffsetOutOfRange
from grete.logs.embedded.errors import corrupt
from grete.logs.embedded.file import Connect, LogFile
from grete.logs.embedded.schema import OFFSET_BITS, OFFSET_MASK
from grete.open_transaction import OpenTransaction
from grete.ports import LogRow, row_of
from grete.protocol.ids import TopicPartition

ROW_BYTES = 48  # what a row counts beside its blobs, so that a read of a million empty messages is bounded too

_READ = (
    "SELECT id & (1 << 40) - 1, append_time_ms, timestamp_ms, key, value, headers, crc "
    "FROM message WHERE id BETWEEN ? AND ? ORDER BY id"
)
_FIRST_AT = "SELECT id & (1 << 40) - 1 FROM message WHERE id BETWEEN ? AND ? AND timestamp_ms >= ? ORDER BY id LIMIT 1"
VERSION_SQL = "PRAGMA data_version"  # changes with each commit of another process


class EmbeddedReader:
    """grete.ports.LogReader over the file of an embedded log. Neither thread safe nor fork safe."""

    def __init__(self, path: Path, connect: Connect | None = None) -> None:
        """Open the log; nothing is made, and what a killed process left in the WAL stays there.

        ``connect`` opens the file in another way; what it pushes is closed with the log.
        Raises ConfigError (no such log, another format), Halted (corrupt), TransientError (disk full).
        """
        self.path = path
        self.file = LogFile(path, connect)

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""
        with self.file.guard:
            return self.file.count(topic)

    def topics(self) -> Sequence[str]:
        """Return the names of all topics, sorted."""
        with self.file.guard:
            return sorted(row[0] for row in self.file.sql.execute("SELECT DISTINCT topic FROM partition"))

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (offset of the first message still there, offset of the next message to come)."""
        with self.file.guard:
            return self.file.bounds(self.file.number_of(partition))

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each."""
        return {partition: self.bounds(partition) for partition in partitions}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return nothing: what is appended can be read."""
        return {}

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset of the first message with this timestamp or a later one; the end if there is none.

        It looks at all messages before that one: for the first start of a job.
        """
        with self.file.guard:
            number = self.file.number_of(partition)
            ids = number << OFFSET_BITS, number << OFFSET_BITS | OFFSET_MASK
            row = self.file.sql.execute(_FIRST_AT, (*ids, timestamp_ms)).fetchone()
            return self.file.bounds(number)[1] if row is None else int(row[0])

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on, in order: at least one if there is one, then up to about ``max_bytes``.

        Raises OffsetOutOfRange; Halted if a message is missing.
        """
        with self.file.guard:
            number = self.file.number_of(partition)
            version = self.file.sql.execute(VERSION_SQL).fetchone()[0]
            if self.file.ended.get(number) == (offset, version):
                return []
            rows = self._rows(number, offset, max_bytes)
            if not _continues(rows, offset):  # at the end, out of range or damaged: look again, at one state of all
                self.file.sql.execute("BEGIN")
                try:
                    start, end = self.file.bounds(number)
                    if not start <= offset <= end:
                        raise OffsetOutOfRange(
                            f"{partition}: offset {offset} is outside of {start} to {end}",
                            partition=partition,
                            offset=offset,
                        )
                    rows = self._rows(number, offset, max_bytes) if offset < end else []
                finally:
                    self.file.sql.execute("COMMIT")
                if offset < end and not _continues(rows, offset):
                    raise corrupt(self.path, f"{partition}: messages are missing from offset {offset} on")
                if not rows:
                    self.file.ended[number] = offset, version
            return rows

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Do nothing: nothing is fetched ahead."""

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Return True: no read waits."""
        return True

    def leave(self, partition: TopicPartition) -> None:
        """Do nothing: nothing is fetched ahead."""

    def read_metadata(self, job: str) -> "EmbeddedReader":
        """Return this object: a file is one job's, and holds its metadata."""
        return self

    def meta_get(self, key: str) -> bytes | None:
        """Return the metadata under ``key`` or None."""
        with self.file.guard:
            row = self.file.sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return all (key, metadata) whose key starts with ``prefix``, in key order."""
        with self.file.guard:
            return self.file.sql.execute(
                "SELECT key, value FROM meta WHERE key >= ? AND key < ? ORDER BY key", (prefix, prefix + "\U0010ffff")
            ).fetchall()

    def close(self) -> None:
        """Release the file. A second close does nothing."""
        self.file.close()

    # --- inside ---

    def _rows(self, number: int, offset: int, max_bytes: int) -> list[LogRow]:
        rows: list[tuple[Any, ...]] = []
        first, last = number << OFFSET_BITS, number << OFFSET_BITS | OFFSET_MASK
        cursor = self.file.sql.execute(_READ, (min(max(first, first + offset), last), last))
        try:
            for row in cursor:  # one by one: SQLite loads a large blob only when its own row is fetched
                rows.append(row[:6])
                offset, _, _, key, value, headers, crc = row
                max_bytes -= ROW_BYTES
                found = crc32(value) if value else 0
                if value:
                    max_bytes -= len(value)
                if key:
                    max_bytes -= len(key)
                    found = crc32(key, found)
                if headers:
                    max_bytes -= len(headers)
                    found = crc32(headers, found)
                if found != crc:
                    raise corrupt(
                        self.path, f"message {offset} of partition number {number} has crc {found}, not {crc}"
                    )
                if max_bytes <= 0:
                    break
        finally:
            cursor.close()  # an open cursor would keep the WAL from being used again
        return list(map(row_of, rows))


def _continues(rows: list[LogRow], offset: int) -> bool:
    """Return whether the rows have no gap from ``offset`` on: ids are unique and sorted, so counting suffices."""
    return bool(rows) and rows[0].offset == offset and rows[-1].offset - offset + 1 == len(rows)
