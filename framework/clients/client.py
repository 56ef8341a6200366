"""A program's connection to a job that runs elsewhere: it writes its inputs, reads its outputs and its state."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from grete.api.jobs.job import Job
from grete.api.record import Record
from grete.api.registry.schema_registry import RecordHeaders
from grete.api.stateful.declaration import no_store
from grete.api.store import Store
from grete.api.topics.reader import OUTPUT, Once
from grete.api.topics.topic import Topic
from grete.clients.source import ExternalSource, feed
from grete.clients.writer import Writer
from grete.closable import Closable
from grete.errors import ConfigError
from grete.execution.records.decoding import headers_of, reader_of
from grete.job.directory import JobDirectory, directory_of
from grete.logs.address import LogAddress, check_address, open_reader
from grete.logs.partition_reader import PartitionFollower, rows_left
from grete.ports import JobLogReader, LogRow
from grete.protocol.ids import TopicPartition
from grete.state.pins.graph_pinning import know_graph
from grete.state.pins.pinning import check_readable
from grete.state.read.newest import NewestReader

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

FOLLOW_S = 0.02  # between two looks for new outputs where there were none

logger = logging.getLogger("grete")


class Client(Closable):
    """Writes to a job's inputs, reads its outputs and its state, on either log.

    Threads may share it to ``send``. What reads is for one thread, the first that does, and refused to others.

    The job runs elsewhere: by `grete up` or `grete run`. ``send`` works before its first start and while the log is
    away; outputs and state can be read once it has run, while it runs or not. Readers see what is committed; of
    deterministic stages also outputs that left ahead of their commit, each of them once.
    """

    def __init__(
        self, job: Job, *, log: str = "embedded", kafka_config: Path | None = None, directory: Path | None = None
    ) -> None:
        """``log``, ``kafka_config``, ``directory``: as for `grete run`. Raises ConfigError: a log of another kind."""
        self.job = job
        self._address = LogAddress(log, kafka_config)
        check_address(self._address)
        self._place = directory_of(job, directory, self._address)
        self._writers: dict[str, Writer[Any, Any]] = {}
        self._opened = contextlib.ExitStack()
        self._begins = threading.Lock()  # held while a writer is made: a topic has one
        self._reads_in: int | None = None  # the thread that reads

    # --- Inputs ---

    def send(
        self,
        topic: Topic[K, V],
        key: K | None,
        value: V | None,
        *,
        timestamp: int | None = None,
        headers: RecordHeaders = (),
    ) -> None:
        """Write a record to a topic that the job reads, as ``Writer.send`` does: it is in a file when this returns.

        Raises what ``Writer`` and its ``send`` raise.
        """
        with self._begins:
            if topic.name not in self._writers:
                self._writers[topic.name] = Writer(
                    self.job, topic, log=self._address.url, kafka_config=self._address.config, directory=self._place
                )
        self._writers[topic.name].send(key, value, timestamp=timestamp, headers=headers)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until the log has all that was sent, or the time is over; return whether it has. As ``Writer.flush``."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        sent = True
        for writer in list(self._writers.values()):
            sent &= writer.flush(None if until_s is None else max(0.0, until_s - time.monotonic()))
        return sent

    def feed(self, topic: Topic[K, V], source: ExternalSource[K, V], *, follow: bool = False) -> int:
        """Bring all that a source has into a topic that the job reads, each record once; return how many came now.

        It goes on behind what earlier calls brought. ``follow``: without end, for a program that does nothing else; a
        source in trouble is tried again. Raises ConfigError, SerdeError, TransientError, and Fenced if another process
        has taken the source over.
        """
        place = JobDirectory(self._place, address=self._address)
        return max(feed(self.job, topic, source, place, follow=follow), default=0)

    # --- Outputs ---

    def outputs(
        self, topic: Topic[K, V], *, after: Mapping[int, int] | None = None, follow: bool = False
    ) -> Iterator[Record[K, V]]:
        """Yield the records of a topic that the job writes for others, partition by partition, in their order.

        ``after``: partition → offset of the last record that is not wanted any more. ``follow``: go on with what comes,
        until the caller stops asking. Raises ConfigError: the job does not write the topic, or has not run; SerdeError.
        """
        return self._in_one_thread(self._records(self.steps(topic, after=after or {}, follow=follow)))

    def steps(
        self, topic: Topic[K, V], *, after: Mapping[int, int], follow: bool = True
    ) -> Iterator[Record[K, V] | None]:
        """Return the same, with None among them where there is no more for now. Raises ConfigError, as ``outputs``."""
        self._check_thread()
        patterns = self.job.patterns().values()
        if topic.name not in self.job.external_sinks() and not any(each.makes(topic.name) for each in patterns):
            written = ", ".join(sorted(self.job.external_sinks())) or "none"
            raise ConfigError(
                f"job {self.job.name!r} does not write topic {topic.name!r} for others: it writes {written}; a topic "
                "between stages is one of them with Topic(…, public=True)",
                topic=topic.name,
            )
        count = self._log.partitions(topic.name)
        if count is None:
            raise ConfigError(f"topic {topic.name!r} is not there yet: run the job first", topic=topic.name)
        return self._steps(topic, range(count), after, follow=follow)

    def _records(self, steps: Iterator[Record[K, V] | None]) -> Iterator[Record[K, V]]:
        for record in steps:
            if record is None:
                time.sleep(FOLLOW_S)
            else:
                yield record

    def _steps(
        self, topic: Topic[K, V], partitions: Sequence[int], after: Mapping[int, int], *, follow: bool
    ) -> Iterator[Record[K, V] | None]:
        once = Once() if self._is_numbered(topic) else None
        followers = []
        for number in partitions:
            at = TopicPartition(topic.name, number)
            begin, end = self._log.bounds(at)
            begin = max(begin, after.get(number, -1) + 1)
            followers.append((at, PartitionFollower(self._log, at, max(begin, end))))
            yield from _decoded(topic, at, rows_left(self._log, at, begin, end), once)
        while follow:
            new = False
            for at, follower in followers:
                for record in _decoded(topic, at, follower.new(), once):
                    new = True
                    yield record
            if not new:
                yield None

    def _is_numbered(self, topic: Topic[Any, Any]) -> bool:
        """Tell whether the topic's records have the numbers of deterministic stages, and nothing else is in it."""
        modes = {
            stage.mode
            for stage in self.job.stages
            if topic.name in {each.name for each in (*stage.topics_written(), *stage.dead_letters())}
        }
        return modes == {"deterministic"}

    # --- State ---

    def get(self, store: Store[K, V], key: K, default: Any = None) -> Any:
        """Return the committed value of a key, or ``default``. Raises ConfigError: no such store, the job has not run.

        Of several partitions that have the key, as a task that reads a topic whole makes them, the first one answers.
        """
        self._check_thread()
        store = _checked(store)
        return next((value for _, value in self._state.find(store, key)), default)

    def range(self, store: Store[K, V], start: K | None = None, end: K | None = None) -> Iterator[tuple[K, V]]:
        """Yield committed (key, value), start <= key < end, in key order within a partition; None: that side is open.

        Raises ConfigError as ``get`` does.
        """
        self._check_thread()
        store = _checked(store)
        return self._in_one_thread(self._state.range(store, start, end))

    def prefix(self, store: Store[K, V], prefix: K | tuple[Any, ...]) -> Iterator[tuple[K, V]]:
        """Yield (key, value) whose encoded key starts with the encoded ``prefix``, in key order within a partition.

        Raises ConfigError as ``get`` does.
        """
        self._check_thread()
        store = _checked(store)
        return self._in_one_thread(self._state.prefix(store, prefix))

    def all(self, store: Store[K, V]) -> Iterator[tuple[K, V]]:
        """Yield every committed (key, value), partition by partition. Raises ConfigError as ``get`` does."""
        self._check_thread()
        store = _checked(store)
        return self._in_one_thread(self._state.all(store))

    # --- Connections ---

    def _check_thread(self) -> None:
        """Raise ConfigError in another thread than the one that has read first: files and log are open for that one."""
        if self._reads_in is None:
            self._reads_in = threading.get_ident()
        if self._reads_in != threading.get_ident():
            raise ConfigError(
                f"this client of job {self.job.name!r} reads in another thread, and outputs and state can be read in "
                "one only: make a client in each thread that reads (grete.client), close it there, and read what "
                "`outputs`, `prefix` or `all` gave where they were called. `send` may be called in any thread"
            )

    def _in_one_thread(self, rows: Iterator[R]) -> Iterator[R]:
        """Yield rows to one thread."""
        self._check_thread()
        for row in rows:
            yield row
            self._check_thread()

    @cached_property
    def _log(self) -> JobLogReader:
        """The log, which must be there; opened when it is first read."""
        log = open_reader(self._address, self._place / "log.db")
        self._opened.callback(log.close)
        if not self._address.embedded and log.partitions(self.job.topology().changelog(0)) is None:
            raise ConfigError(f"job {self.job.name!r} has not run on {self._address.url}: run it first")
        check_readable(self.job, log)
        know_graph(self.job, log)
        return log

    @cached_property
    def _state(self) -> NewestReader:
        return self._opened.enter_context(NewestReader(self._log, self.job, self._place / "state", logger.info))

    def close(self) -> None:
        """Wait for the log, but not for long, as ``Writer.close`` does, and disconnect."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._close_reading)
            for writer in self._writers.values():
                closing.callback(writer.close)

    def _close_reading(self) -> None:
        if self._reads_in is not None:
            self._check_thread()
        self._opened.close()


def _checked(store: Store[K, V]) -> Store[K, V]:
    """Return a store. Raises ConfigError for a window, a join or a name."""
    if not isinstance(store, Store):
        raise ConfigError(no_store(store))
    return store


def _decoded(
    topic: Topic[K, V], at: TopicPartition, rows: Iterator[LogRow], once: Once | None
) -> Iterator[Record[K, V]]:
    """Yield records; with ``once`` not those that came before."""
    record_of = reader_of(topic)
    for row in rows:
        headers = headers_of(row.headers)
        numbered = once is not None and any(name == OUTPUT for name, _ in headers)
        if once is not None and numbered and not once.is_new(*at, headers):
            continue
        yield record_of(at.partition, row)
