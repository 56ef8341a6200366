"""The reading half of the worked example of a log: see postgres_log.py."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from grete.errors import ConfigError, OffsetOutOfRange, TransientError
from grete.logs.topic_identity import no_partition
from grete.open_transaction import OpenTransaction
from grete.ports import LogRow
from grete.protocol.ids import TopicPartition

ROWS_MAX = 1_000  # of a read
ROW_BYTES = 48  # that a row counts beside its bytes, so that reads of empty messages are bounded, too

# One statement has one snapshot: the bounds are those of the rows.
_READ = """
SELECT start, next, place, m.append_time_ms, timestamp_ms, key, value, headers FROM grete.partition p
LEFT JOIN LATERAL (
    SELECT *, sum(size) OVER (ORDER BY place) - size AS before FROM (
        SELECT *, %(row)s + coalesce(length(key), 0) + coalesce(length(value), 0) + coalesce(length(headers), 0) AS size
        FROM grete.message WHERE partition = %(number)s AND place >= %(offset)s ORDER BY place LIMIT %(rows)s
    ) AS next_ones
) m ON before < %(bytes)s WHERE id = %(number)s ORDER BY place
"""


class PostgresReader:
    """grete.ports.JobLogReader over a PostgreSQL database. Not thread safe."""

    def __init__(self, place: str) -> None:
        """``place``: a connection string. Raises TransientError where no server answers, ConfigError if it refuses."""
        self._place = place
        self._numbers: dict[TopicPartition, int] = {}
        try:
            self.sql = psycopg.connect(place, autocommit=True, row_factory=tuple_row)
        except psycopg.OperationalError as error:
            raise TransientError(f"PostgreSQL: {error}: check that the server runs and the address is right") from error
        with self.told():
            if not self.query("SELECT to_regclass('grete.metadata') IS NOT NULL")[0][0]:
                self.without_tables()

    def without_tables(self) -> None:
        """Act upon a database that no log is in yet. Raises ConfigError."""
        raise ConfigError("PostgreSQL: this database has no log yet: start the job that writes it")

    def partitions(self, topic: str) -> int | None:
        """See grete.ports.LogReader."""
        return self.query("SELECT count(*) FROM grete.partition WHERE topic = %s", topic)[0][0] or None

    def topics(self) -> Sequence[str]:
        """See grete.ports.LogReader."""
        return [name for (name,) in self.query("SELECT DISTINCT topic FROM grete.partition ORDER BY topic")]

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """See grete.ports.LogReader."""
        return self.all_bounds([partition])[partition]

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """See grete.ports.LogReader."""
        numbers = {self.number_of(partition): partition for partition in partitions}
        rows = self.query("SELECT id, start, next FROM grete.partition WHERE id = ANY(%s)", [*numbers])
        return {numbers[number]: (start, end) for number, start, end in rows}

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return nothing: what is not committed takes no offset."""
        return {}

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Do nothing: nothing is fetched ahead."""

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """See grete.ports.LogReader. Raises OffsetOutOfRange."""
        asked = {"number": self.number_of(partition), "offset": offset, "bytes": max(1, max_bytes)}
        with self.told():
            found = self.sql.execute(_READ, asked | {"row": ROW_BYTES, "rows": ROWS_MAX}, binary=True).fetchall()
        start, end = found[0][:2]
        if not start <= offset <= end:
            raise OffsetOutOfRange(
                f"{partition}: offset {offset} is outside of {start} to {end}", partition=partition, offset=offset
            )
        return [LogRow(*row[2:]) for row in found if row[2] is not None]

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Return True: no read waits."""
        return True

    def leave(self, partition: TopicPartition) -> None:
        """Do nothing: nothing is fetched ahead."""

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """See grete.ports.JobLogReader."""
        number = self.number_of(partition)
        wanted = "SELECT min(place) FROM grete.message WHERE partition = %s AND timestamp_ms >= %s"
        found = self.query(wanted, number, timestamp_ms)[0][0]
        return self.bounds(partition)[1] if found is None else int(found)

    def read_metadata(self, job: str) -> "PostgresMetadataReader":
        """See grete.ports.JobLogReader."""
        return PostgresMetadataReader(self, job)

    def close(self) -> None:
        """Close the connection."""
        self.sql.close()

    def number_of(self, partition: TopicPartition) -> int:
        """Return the number of a partition in the database. Raises ConfigError if there is none."""
        if (known := self._numbers.get(partition)) is not None:
            return known
        rows = self.query("SELECT id FROM grete.partition WHERE topic = %s AND number = %s", *partition)
        if not rows:
            raise no_partition(partition, self.partitions(partition.topic))
        return self._numbers.setdefault(partition, rows[0][0])

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self.told():
            return self.sql.execute(query, values, binary=True).fetchall()

    @contextmanager
    def told(self) -> Iterator[None]:
        """Give errors of the database their meaning. What was under way is in the log as a whole or not at all."""
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise TransientError(f"PostgreSQL: {error}: check the server, its disk and the network") from error


class PostgresMetadataReader:
    """grete.ports.MetadataReader of one job: rows of a table."""

    def __init__(self, log: PostgresReader, job: str) -> None:
        """It shares the connection of the log."""
        self.log, self.job = log, job

    def partitions(self, topic: str) -> int | None:
        """See grete.ports.JobMetadata."""
        return self.log.partitions(topic)

    def meta_get(self, key: str) -> bytes | None:
        """See grete.ports.MetadataReader."""
        return dict(self.meta_items(key)).get(key)

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """See grete.ports.MetadataReader."""
        wanted = "SELECT key, value FROM grete.metadata WHERE job = %s AND starts_with(key, %s) ORDER BY key"
        with self.log.told():
            found = self.log.sql.execute(wanted, (self.job, prefix), binary=True).fetchall()
        return [(key, value) for key, value in found]
