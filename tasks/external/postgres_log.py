"""A worked example of a log of your own: the streams, changelogs and topics of a job in a PostgreSQL database.

    grete run JOB --log tasks.external.postgres_log:PostgresLog:postgresql:///jobs

It keeps the shipped contract of a log (``grete.testing.contracts.LogContract``), so the engine needs no change for it.
What carries it is that a transaction of PostgreSQL is all or nothing, and that who appends to a partition holds the row
of that partition until the end of its transaction: offsets have the order of commits, and no gap is ever seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from grete.errors import OffsetOutOfRange
from grete.logs.topic_identity import check_count, check_topic
from grete.ports import Delivery, ExternalRecord
from grete.protocol.ids import TopicPartition
from tasks.external.postgres_reader import PostgresMetadataReader, PostgresReader

MAKING = 0x47524554  # the advisory lock of who makes the tables

_TABLES = """
CREATE SCHEMA IF NOT EXISTS grete;
CREATE TABLE IF NOT EXISTS grete.partition (
    id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, topic text NOT NULL COLLATE "C", number integer NOT NULL,
    start bigint NOT NULL DEFAULT 0, next bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT -1,
    append_time_ms bigint NOT NULL DEFAULT 0, UNIQUE (topic, number)
);
CREATE TABLE IF NOT EXISTS grete.reported (
    partition integer PRIMARY KEY, processed bigint NOT NULL, asked bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS grete.message (
    partition integer NOT NULL, place bigint NOT NULL, append_time_ms bigint NOT NULL, timestamp_ms bigint NOT NULL,
    key bytea, value bytea, headers bytea, PRIMARY KEY (partition, place)
);
CREATE TABLE IF NOT EXISTS grete.metadata (
    job text NOT NULL, key text NOT NULL COLLATE "C", value bytea NOT NULL, PRIMARY KEY (job, key)
);
"""
_LOCK = """
SELECT id, next, fence, greatest(append_time_ms, (1000 * extract(epoch FROM clock_timestamp()))::bigint)
FROM grete.partition WHERE id = ANY(%s) ORDER BY id FOR UPDATE
"""
_MOVE = """
UPDATE grete.partition SET next = t.next, fence = t.fence, append_time_ms = t.at
FROM unnest(%s::integer[], %s::bigint[], %s::bigint[], %s::bigint[]) AS t (number, next, fence, at) WHERE id = t.number
"""
# In a table of its own, after the partitions: two processes that lock rows in two orders would wait for each other.
_REPORT = """
INSERT INTO grete.reported AS r SELECT * FROM unnest(%s::integer[], %s::bigint[], %s::bigint[]) ORDER BY 1
ON CONFLICT (partition) DO UPDATE
SET processed = excluded.processed, asked = coalesce(nullif(excluded.asked, 0), r.asked)
"""


class Queued(NamedTuple):
    """A send, or plain records alone: then ``number``, of the partition, is None."""

    owner: int
    token: int
    number: int | None
    value: bytes
    fence: int | None
    outputs: list[tuple[int, ExternalRecord]]


class Tail:
    """The end of a partition within a transaction."""

    def __init__(self, end: int, fence: int, time_ms: int) -> None:
        self.next, self.fence, self.time_ms = end, fence, time_ms


class PostgresLog(PostgresReader):
    """grete.ports.JobLog over a PostgreSQL database that all processes of a job share. Not thread safe."""

    reader = PostgresReader  # what a command gets that only reads

    def __init__(self, place: str) -> None:
        """See PostgresReader; makes the tables if they are not there."""
        super().__init__(place)
        self._queue: list[Queued] = []
        self._reports: dict[int, tuple[int, int]] = {}
        self._sync = False
        self.sql.execute("SET idle_in_transaction_session_timeout = '2s'")  # a frozen process gives its locks back
        self.sql.execute("LISTEN grete")  # to be woken

    def without_tables(self) -> None:
        """Make them: several processes may come at once."""
        with self.sql.transaction():
            self.sql.execute("SELECT pg_advisory_xact_lock(%s)", [MAKING])
            self.sql.execute(_TABLES)

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False, grow: bool = False) -> None:
        """See grete.ports.JobLog."""
        check_topic(topic, partitions)
        with self.told(), self.sql.transaction():
            self.sql.execute("SELECT pg_advisory_xact_lock(%s)", [MAKING])
            found = self.partitions(topic) or 0
            if found == 0 or (grow and found < partitions):
                new = "INSERT INTO grete.partition (topic, number) SELECT %s, generate_series(%s::integer, %s::integer)"
                self.sql.execute(new, (topic, found, partitions - 1))
                found = partitions
        check_count(topic, found, partitions)

    def open_metadata(self, job: str, transactional: str | None = None) -> "PostgresMetadata":
        """See grete.ports.JobLog: what is written together is in one transaction anyway."""
        return PostgresMetadata(self, job)

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        """Return nothing: no topic can be deleted."""
        return {}

    def watch(self, topics: Sequence[str]) -> None:
        """Do nothing: no topic can be deleted."""

    def refuse_compacted(self, topic: str, stage: str) -> None:
        """Do nothing: nothing is compacted."""

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        """Do nothing: outputs always appear with their message."""
        self.number_of(partition)

    def send(
        self,
        owner: int,
        token: int,
        partition: TopicPartition,
        value: bytes,
        *,
        fence: int | None = None,
        sync: bool = False,
        outputs: Sequence[ExternalRecord] = (),
    ) -> None:
        """See grete.ports.Log."""
        self._queue.append(Queued(owner, token, self.number_of(partition), value, fence, self._placed(outputs)))
        self._sync |= sync

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """See grete.ports.Log. They leave the job: they survive a power loss before anybody sees them."""
        self._queue.append(Queued(owner, token, None, b"", None, self._placed(records)))
        self._sync = True

    def poll(self) -> list[Delivery]:
        """Append all that is queued in one transaction; return its deliveries. If it fails, all stays queued."""
        if not (self._queue or self._reports):
            return []
        with self.appending(sync=self._sync):
            deliveries = self.append(self._queue)
            if self._reports:
                told = sorted((number, *report) for number, report in self._reports.items())
                self.sql.execute(_REPORT, [[*column] for column in zip(*told, strict=True)])
        self._queue, self._sync, self._reports = [], False, {}
        return deliveries

    @contextmanager
    def appending(self, *, sync: bool) -> Iterator[None]:
        """Hold a transaction, and wake who waits at its end. ``sync``: it survives a power loss."""
        with self.told(), self.sql.transaction():
            if not sync:  # then a power loss leaves a prefix of all that was committed
                self.sql.execute("SET LOCAL synchronous_commit = off")
            yield
            self.sql.execute("NOTIFY grete")

    def append(self, queue: Sequence[Queued]) -> list[Delivery]:
        """Append within a transaction, in the order of the sends."""
        places = {each.number for each in queue if each.number is not None}
        places |= {number for each in queue for number, _ in each.outputs}
        locked = self.sql.execute(_LOCK, [[*places]]).fetchall()  # in one order, so that no two wait for each other
        tails = {number: Tail(*tail) for number, *tail in locked}
        rows: list[tuple[object, ...]] = []
        deliveries: list[Delivery] = []

        def add(number: int, timestamp_ms: int | None, *content: bytes | None) -> tuple[int, int]:
            tail = tails[number]
            tail.next += 1
            rows.append((number, tail.next - 1, tail.time_ms, timestamp_ms or tail.time_ms, *content))
            return tail.next - 1, tail.time_ms

        for each in queue:
            offset, time_ms, ends = -1, 0, dict[TopicPartition, int]()
            if each.number is not None:
                tail = tails[each.number]
                if each.fence is not None and tail.fence > each.fence:
                    deliveries.append(Delivery(each.owner, each.token, -1, tail.time_ms, fenced=True))
                    continue
                tail.fence = tail.fence if each.fence is None else each.fence
                offset, time_ms = add(each.number, None, None, each.value, None)
            for number, record in each.outputs:
                at = add(number, record.timestamp_ms, record.key, record.value, record.headers)
                if each.number is None:
                    offset, time_ms = at
                    ends[record.partition] = offset + 1
            deliveries.append(Delivery(each.owner, each.token, offset, time_ms, ends=tuple(ends.items())))
        with self.sql.cursor().copy("COPY grete.message FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "int8", "int8", "int8", "bytea", "bytea", "bytea"])
            for row in rows:
                copy.write_row(row)
        moves = [(number, tail.next, tail.fence, tail.time_ms) for number, tail in tails.items()]
        if moves:
            self.sql.execute(_MOVE, [[*column] for column in zip(*moves, strict=True)])
        return deliveries

    def wait(self, timeout_ms: float, *, answers: bool = True) -> bool:
        """Return True when any process has appended since the last return, or something is queued."""
        with self.told():
            came = [*self.sql.notifies(timeout=0 if self._queue else timeout_ms / 1_000, stop_after=1)]
        return bool(came or self._queue)

    def trim(self, partition: TopicPartition, before: int) -> None:
        """See grete.ports.Log. Raises OffsetOutOfRange past the end."""
        number = self.number_of(partition)
        with self.told(), self.sql.transaction():
            end = self.sql.execute("SELECT next FROM grete.partition WHERE id = %s FOR UPDATE", [number]).fetchall()
            if before > end[0][0]:
                raise OffsetOutOfRange(
                    f"{partition}: cannot trim before {before}: the log ends at {end[0][0]}",
                    partition=partition,
                    offset=before,
                )
            self.sql.execute("DELETE FROM grete.message WHERE partition = %s AND place < %s", (number, before))
            self.sql.execute("UPDATE grete.partition SET start = greatest(start, %s) WHERE id = %s", (before, number))

    def report_processed(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        """See grete.ports.Log: with the transaction of the next poll."""
        for partition, offset in positions.items():
            number = self.number_of(partition)  # what was asked for before is closed, or asked for still
            self._reports[number] = offset, asked or self._reports.get(number, (0, 0))[1]

    def processed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See grete.ports.Log."""
        numbers = {self.number_of(partition): partition for partition in partitions}
        known = "SELECT partition, processed FROM grete.reported WHERE partition = ANY(%s)"
        return {numbers[number]: processed for number, processed in self.query(known, [*numbers])}

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        """See grete.ports.Log."""
        numbers = [self.number_of(partition) for partition in partitions]
        highest = "SELECT coalesce(max(asked), 0) FROM grete.reported WHERE partition = ANY(%s)"
        return int(self.query(highest, numbers)[0][0])

    def _placed(self, records: Sequence[ExternalRecord]) -> list[tuple[int, ExternalRecord]]:
        return [(self.number_of(record.partition), record) for record in records]


class PostgresMetadata(PostgresMetadataReader):
    """grete.ports.JobMetadata of one job."""

    def __init__(self, log: PostgresLog, job: str) -> None:
        """It shares the connection of the log."""
        super().__init__(log, job)
        self._writes = log

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """See grete.ports.JobMetadata: records and metadata in one transaction."""
        log = self._writes
        placed = [(log.number_of(record.partition), record) for record in records]
        with log.appending(sync=sync):
            (delivery,) = log.append([Queued(0, 0, None, b"", None, placed)])
            self._lock()
            self._put(meta)
        return delivery.offset

    def pin(self, meta: Mapping[str, bytes | None], over: bytes | None) -> bool:
        """See grete.ports.JobMetadata."""
        with self._writes.appending(sync=True):
            self._lock()
            if self.meta_get(next(iter(meta))) == over:
                self._put(meta)
            return all(self.meta_get(key) == entry for key, entry in meta.items())

    def close(self) -> None:
        """Do nothing: it is the log's."""

    def _lock(self) -> None:
        """Let no other process write metadata of the job before the end of the transaction."""
        self._writes.sql.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (MAKING, self.job))

    def _put(self, meta: Mapping[str, bytes | None]) -> None:
        for key, value in sorted(meta.items()):
            if value is None:
                self._writes.sql.execute("DELETE FROM grete.metadata WHERE job = %s AND key = %s", (self.job, key))
            else:
                put = "INSERT INTO grete.metadata VALUES (%s, %s, %s) ON CONFLICT (job, key) DO UPDATE SET value = %s"
                self._writes.sql.execute(put, (self.job, key, value, value))
