"""The open file of an embedded log: its connection to SQLite, and the numbers that partitions have in it."""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from grete.errors import ConfigError
from grete.logs.embedded.errors import FileGuard, corrupt
from grete.logs.embedded.schema import open_to_read
from grete.logs.topic_identity import no_partition
from grete.protocol.ids import TopicPartition

Connect = Callable[[ExitStack], sqlite3.Connection]


class LogFile:
    """One open file. ``sql`` is used within ``guard``, which gives errors their meaning."""

    def __init__(self, path: Path, connect: Connect | None) -> None:
        """``connect`` opens it; None: to read only. Raises as EmbeddedReader."""
        self.path, self.guard = path, FileGuard(path)
        self._numbers: dict[TopicPartition, int] = {}  # partitions are never deleted, so what is here stays right
        self.ended: dict[int, tuple[int, int]] = {}  # partition → (its end when it was read last, data_version then)
        with self.guard, ExitStack() as opened:
            self.sql = self._read_only() if connect is None else connect(opened)
            opened.callback(self.sql.close)
            self._opened = opened.pop_all()  # from here on close() is responsible

    def close(self) -> None:
        """Release the file. A second close does nothing."""
        self.guard.end()
        self._opened.close()

    def number_of(self, partition: TopicPartition) -> int:
        """Return the partition's number in the file. Raises ConfigError if there is none."""
        number = self._numbers.get(partition)
        if number is None:
            with self.guard:
                row = self.sql.execute(
                    "SELECT id FROM partition WHERE topic = ? AND partition = ?", tuple(partition)
                ).fetchone()
            if row is None:
                with self.guard:
                    count = self.count(partition.topic)
                raise no_partition(partition, count)
            number = self._numbers[partition] = int(row[0])
        return number

    def count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, or None if there is no such topic."""
        count: int = self.sql.execute("SELECT count(*) FROM partition WHERE topic = ?", (topic,)).fetchone()[0]
        return count or None

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the start and end of a partition by its number. Raises Halted if it is missing."""
        row: tuple[int, int] | None = self.sql.execute(
            "SELECT start, next FROM partition WHERE id = ?", (number,)
        ).fetchone()
        if row is None:
            raise corrupt(self.path, f"partition number {number} is missing")
        return row

    def _read_only(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise no_log(self.path)
        return open_to_read(self.path)


def no_log(path: Path) -> ConfigError:
    """Return the error for a path where no log is."""
    return ConfigError(f"{path}: there is no such log: check the path, or run the job, which makes it")
