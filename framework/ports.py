"""The ports of a task driver: a log, a state store, a spill for early frames. Back ends implement these.

framework/testing/contracts has what each must keep, as tests. Nothing here knows the protocol: values are bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from grete.open_transaction import OpenTransaction
from grete.protocol.ids import TopicPartition


class LogRow(NamedTuple):
    """A message as a log gives it. ``append_time_ms``: the log's clock. ``headers``: a cell of protocol/frames.py."""

    offset: int
    append_time_ms: int
    timestamp_ms: int  # the record's own
    key: bytes | None
    value: bytes | None
    headers: bytes | None


row_of: Callable[[tuple[Any, ...]], LogRow] = partial(tuple.__new__, LogRow)  # a call in C: a log makes many rows


class ExternalRecord(NamedTuple):
    """A plain record for a topic outside of the job: what any consumer of that topic sees."""

    partition: TopicPartition
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: bytes | None = None


class Delivery(NamedTuple):
    """The log's answer to one send: it is in the log at ``offset``, or was refused because of a higher fence.

    ``trailing``: the number of offsets behind it that are the log's own and hold no message (a transaction's end).
    ``ends``: of plain records, the offset behind the last one in each of their partitions.
    """

    owner: int
    token: int
    offset: int
    append_time_ms: int
    fenced: bool = False
    trailing: int = 0
    ends: tuple[tuple[TopicPartition, int], ...] = ()


class Reads(NamedTuple):
    """The number of partitions that are read at a time, and by how many ms a record may be late to come with others."""

    partitions: int = 0
    late_ms: int = 0


READS = Reads()


class LogReader(Protocol):
    """The reading half of a log. Not thread safe.

    A command that only reads gets an object with this half and no other: it has no method that makes a topic, sends,
    claims or trims, and opening and using it leaves everything as it was.
    """

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""

    def topics(self) -> Sequence[str]:
        """Return the names of all topics, sorted."""

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """Return (offset of the first message still there, offset of the next message to come)."""

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the ``bounds`` of each. Where they are asked for over a network, all of them take as long as one."""

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return, of each partition that goes on behind its ``bounds``, what is there; asked for as ``all_bounds``."""

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Declare that somebody reads each of these partitions soon, from the first offset up to the second, its end.

        A log that fetches begins to fetch. The read raises if the offset is out of range.
        """

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Return messages from ``offset`` on, in order: at least one if there is one, then up to about ``max_bytes``.

        Raises OffsetOutOfRange if ``offset`` is before the start or beyond the end.
        """

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """Tell whether a read from ``offset`` on returns at once. False: ``expect`` has begun a fetch that goes on.

        It is false for a moment only, so that other tasks have turns; then the read waits, and raises if nothing comes.
        """

    def leave(self, partition: TopicPartition) -> None:
        """Declare that this partition is not read on for now: a log that fetches ahead need not."""

    def close(self) -> None:
        """Release files and connections; what is queued and was not polled is given up."""


class Log(LogReader, Protocol):
    """A partitioned log, as one process sees it. Not thread safe. Sends queue up; ``poll`` reports their delivery.

    1. Messages that one process sends to one partition are appended in the order of the sends; after one that is not
       reported, no later one is.
    2. A delivery is reported once per send, and only when the message survives a crash of this process
       (``sync=True``: also a power loss).
    3. Offsets of a partition are contiguous from 0, unless it is ``transactional``; trimming moves the start only.
    4. ``read`` never returns a message before ``offset``, and none only if there was none when ``bounds`` was asked
       or when ``offset`` was sought; where a log fetches, it waits for no more than that.
    """

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False) -> None:
        """Make sure that the topic exists. ``plain``: one that others write or read, too; else a stream or changelog.

        Raises ConfigError if it exists with another number of partitions, or with settings that would lose data (K1).
        """

    def transactional(self, partition: TopicPartition, committed: int = -1) -> None:
        """Declare that ``outputs`` will be sent with messages to this partition (S1); before the first send to it.

        What is sent to it from then on is delivered, and visible, only with the next send that has ``sync`` set, and
        is refused as a whole (``Delivery.fenced`` of that send) if another process has declared and sent meanwhile.
        ``committed``: an offset that is known to be committed; where that may show late, ``bounds`` waits for it.
        """

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
        """Queue one internal message. ``outputs`` become visible atomically with it (S1).

        ``fence`` is a generation: refused (``Delivery.fenced``) if this partition has seen a higher one; else
        remembered.
        A log that cannot compare and append ignores it (the core checks offsets, C3).
        """

    def produce(self, owner: int, token: int, records: Sequence[ExternalRecord]) -> None:
        """Queue plain records for topics outside of the job; one delivery for all of them (offset: of the last)."""

    def poll(self) -> list[Delivery]:
        """Push out what is queued; return what became known since the last call. Raises TransientError (full, busy)."""

    def wait(self, timeout_ms: float, *, answers: bool = True) -> bool:
        """Return True when something new may be readable or deliverable, at the latest after ``timeout_ms``.

        Then False, if nothing has come and nothing that was sent is still to be delivered. Without ``answers``
        deliveries need not end it: no task waits for them, the next ``poll`` tells of them.
        """

    def trim(self, partition: TopicPartition, before: int) -> None:
        """Delete messages before offset ``before``; nothing if they are gone. Raises OffsetOutOfRange past the end."""

    def report_processed(self, positions: Mapping[TopicPartition, int], asked: int = 0) -> None:
        """Tell the producers of these partitions that their reader has processed everything before an offset.

        ``asked``: the checkpoint that the reader asks its producers to close, because it holds much of it; 0: none.
        It becomes known in the background, some time after the next ``poll``. A failure or a crash may lose it.
        """

    def processed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the positions that any process reported last, without those of which nothing is known.

        It never waits: it may be older than the last report, or nothing yet, and then another look tells more.
        """

    def asked(self, partitions: Sequence[TopicPartition]) -> int:
        """Return the highest checkpoint that readers of these asked for with their last reports, at once; 0: none."""


class MetadataReader(Protocol):
    """Metadata of a job in a log, such as pins and the progress of feeds: bytes by name."""

    def meta_get(self, key: str) -> bytes | None:
        """Return the metadata under ``key`` or None."""

    def meta_items(self, prefix: str) -> list[tuple[str, bytes]]:
        """Return all (key, metadata) whose key starts with ``prefix``, in key order."""


class JobMetadata(MetadataReader, Protocol):
    """The metadata of a job, to be written; a feed writes its records by it, too."""

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None if there is no such topic."""

    def produce_with_meta(
        self, records: Sequence[ExternalRecord], meta: Mapping[str, bytes | None], *, sync: bool = False
    ) -> int:
        """Append plain records, then put metadata (None: delete); return when all are acknowledged.

        Return the offset of the last record, -1 if there are none. ``sync``: it survives a power loss.
        """

    def pin(self, meta: Mapping[str, bytes | None], over: bytes | None) -> bool:
        """Put metadata if the entry under its first key is still ``over`` (None: it is not there), else nothing of it.

        Return whether all of it is there now. Of several processes that pin over the same entry the first one in the
        log's order does, and what others bring is never read. It survives a power loss.
        """


class JobLogReader(LogReader, Protocol):
    """The reading half of a log that jobs live in: what ``open_reader`` returns."""

    def read_metadata(self, job: str) -> MetadataReader:
        """Return the metadata of a job in the log. Nothing is made where nothing is kept yet."""


class JobLog(Log, JobLogReader, Protocol):
    """A log that jobs live in: what ``open_log`` returns. A task's driver needs less, a Log."""

    def create_topic(self, topic: str, partitions: int, *, plain: bool = False, grow: bool = False) -> None:
        """See Log. ``grow``: a topic with fewer partitions gets more, its records stay; its readers may halt."""

    def open_metadata(self, job: str, transactional: str | None = None) -> JobMetadata:
        """Return the metadata of a job in the log, and make the place for it.

        ``transactional``: what is produced together goes out as a whole, on Kafka in transactions of this id; who
        opens it later with the same id fences who has it.
        """

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset of the first message with this timestamp or a later one; the end if there is none."""

    def identities(self, topics: Sequence[str]) -> dict[str, str]:
        """Return topic → its id, "" if it is not known; none where no topic can be deleted. And watch these topics.

        A topic that was created again has another id. From here on ``poll`` raises Halted if one of them was deleted,
        created again or given more partitions.
        """

    def watch(self, topics: Sequence[str]) -> None:
        """Watch topics that the job only writes, which are there: from here on ``poll`` raises Halted if one is gone.

        They may get more partitions.
        """

    def refuse_compacted(self, topic: str, stage: str) -> None:
        """Raise ConfigError if the log compacts a topic that a deterministic ``stage`` reads (D2).

        Only warns where the log does not let this process see a topic's settings.
        """


Write = tuple[int, bytes, bytes | None]  # store id, key, value or None for a delete


class StateStore(Protocol):
    """The local key-value store of one task: several stores by id, and one changelog position.

    Every write is atomic.
    """

    def changelog_position(self) -> bytes | None:
        """Return the changelog position written last (grete.protocol.changelog position), or None in an empty store."""

    def get(self, store: int, key: bytes) -> bytes | None:
        """Return the value or None."""

    def get_many(self, store: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, or None, in the order of ``keys``."""

    def scan(
        self, store: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start <= key < end in key order (``reverse``: from the last on), as of the call."""

    def last_key(self, store: int) -> bytes | None:
        """Return the last key in key order, or None."""

    def write(self, writes: Iterable[Write], changelog_position: bytes | None = None) -> None:
        """Apply all writes, and the changelog position if one is given, atomically. Survives a kill of the process."""

    def load(self, store: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Apply one data message's columns to one store, atomically (restore). It survives a kill only after ``flush``.

        Reads see it at once. Any ``write`` flushes first, so a changelog position never covers what is not on disk.
        """

    def flush(self) -> None:
        """Make what was loaded survive a kill of the process."""

    def wipe(self) -> None:
        """Empty all stores and the changelog position.

        A directory is renamed first, so a crash never leaves half a store.
        """

    def close(self) -> None:
        """Release the store."""
