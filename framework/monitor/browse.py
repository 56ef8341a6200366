"""Reads what a job has stored, for the page: state, topics, dead letters, changelogs. It cannot write.

Each answer is a page of rows of bounded size, from a read of bounded time and bytes.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from grete.api.job import Job
from grete.api.serdes import Serde, bytes_serde
from grete.api.store import Store
from grete.api.topic import Topic
from grete.errors import ConfigError, TransientError
from grete.execution.decoding import headers_of
from grete.job.dead_letters import Letter, letter_of, serdes_of
from grete.job.metadata import pinned_settings
from grete.open_transaction import OpenTransaction
from grete.ports import JobLogReader, LogRow, MetadataReader
from grete.protocol.errors import DecodeError
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.changelog_text import message_in
from grete.state.local_reader import place_of, store_named
from grete.state.newest import NewestReader
from grete.state.shown import decoded, external_topics, from_text
from grete.state.snapshot_reader import SnapshotReader
from grete.state.snapshots import snapshots

ROWS_MAX = 100  # of a page
CHARS_MAX = 2_000  # of a key or value
READ_S_MAX, READ_BYTES_MAX = 15.0, 256 << 20  # of one answer
WINDOW_BYTES = 1 << 20  # read at once
HIDDEN = "(hidden)"

Arguments = Mapping[str, str]


class BoundedReader:
    """A log's reading half that gives up after a time, or after a number of bytes: somebody waits for the answer."""

    def __init__(self, log: JobLogReader, seconds: float = READ_S_MAX, bytes_max: int = READ_BYTES_MAX) -> None:
        self._log, self._until_s, self._left = log, time.monotonic() + seconds, bytes_max
        self._said = f"more than {seconds:.0f} s, or {bytes_max >> 20} MiB of the log"

    def read(self, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        """Read as the log does. Raises TransientError at the bound."""
        rows = self._log.read(partition, offset, max_bytes)
        self._left -= sum(len(row.key or b"") + len(row.value or b"") for row in rows)
        if self._left < 0 or time.monotonic() > self._until_s:
            raise TransientError(
                f"this takes {self._said}: ask for less, or use the command line, which has no bound: "
                "grete state get, grete state scan, grete topic read"
            )
        return rows

    def partitions(self, topic: str) -> int | None:
        """As the log."""
        return self._log.partitions(topic)

    def topics(self) -> Any:
        """As the log."""
        return self._log.topics()

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """As the log."""
        return self._log.bounds(partition)

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """As the log."""
        return self._log.all_bounds(partitions)

    def open_transactions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """As the log."""
        return self._log.open_transactions(partitions)

    def expect(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """As the log."""
        self._log.expect(spans)

    def at_hand(self, partition: TopicPartition, offset: int) -> bool:
        """As the log."""
        return self._log.at_hand(partition, offset)

    def leave(self, partition: TopicPartition) -> None:
        """As the log."""
        self._log.leave(partition)

    def read_metadata(self, job: str) -> MetadataReader:
        """As the log."""
        return self._log.read_metadata(job)

    def close(self) -> None:
        """As the log."""
        self._log.close()


class Browse:
    """Answers by name, with plain values. For one thread; each answer opens what it reads, and closes it."""

    def __init__(
        self, job: Job, state_directory: Path, open_log: Callable[[], JobLogReader], *, hide_values: bool = False
    ) -> None:
        """``open_log`` returns the reading half of the job's log."""
        self._job, self._directory, self._open_log = job, state_directory, open_log
        self._hide = hide_values
        self.answers: dict[str, Callable[[JobLogReader, Arguments], dict[str, Any]]] = {
            "state": self.state,
            "topic": self.topic,
            "letters": self.letters,
            "changelog": self.changelog,
        }

    def answer(self, name: str, arguments: Arguments) -> dict[str, Any]:
        """Return one of the answers. Raises FrameworkError with what to do."""
        with contextlib.closing(BoundedReader(self._open_log())) as log:
            return self.answers[name](log, arguments)

    # --- state ---

    def state(self, log: JobLogReader, arguments: Arguments) -> dict[str, Any]:
        """Return entries of ``store``: all, of a ``key`` or ``prefix``, from ``after`` on, as of a ``checkpoint``."""
        store = store_named(self._job, arguments.get("store", ""))
        partitions = place_of(self._job, store)[0].partitions
        key, prefix = arguments.get("key", ""), arguments.get("prefix", "")
        wanted = store.key.encode(from_text(store.key, key or prefix)) if key or prefix else b""
        partition, begin = _cursor(arguments.get("after", ""))
        rows: list[dict[str, Any]] = []
        notes: list[str] = []
        with self._reader(log, arguments.get("checkpoint", ""), notes) as reader:
            while partition < partitions and len(rows) <= ROWS_MAX:
                found = reader.raw(store, wanted, partition, max(begin, wanted) if key else begin)
                for raw_key, raw_value in islice(found, ROWS_MAX + 1 - len(rows)):
                    if key and raw_key != wanted:
                        break
                    rows.append(self._entry(store, partition, raw_key, raw_value))
                partition, begin = partition + 1, b""
        more = rows.pop() if len(rows) > ROWS_MAX else None
        return {
            "rows": rows,
            "next": None if more is None else f"{more['partition']}:{more['raw']}",
            "notes": notes,
            "serdes": [store.key.name, store.value.name],
        }

    @contextlib.contextmanager
    def _reader(self, log: JobLogReader, checkpoint: str, notes: list[str]) -> Iterator[NewestReader | SnapshotReader]:
        if not checkpoint:
            with NewestReader(log, self._job, self._directory, notes.append) as newest:
                yield newest
            return
        if not checkpoint.isdecimal():
            raise ConfigError(f"checkpoint {checkpoint!r}: give its number, as in the tasks' table")
        aligned = pinned_settings(self._job, log, Settings()).aligned
        yield SnapshotReader(log, self._job, snapshots(log, self._job, int(checkpoint), aligned=aligned))

    def _entry(self, store: Store[Any, Any], partition: int, key: bytes, value: bytes) -> dict[str, Any]:
        shown = {"key": _text(store.key, key), "value": self._value(store.value, value)}
        return {"partition": partition, "raw": key.hex(), **shown}

    # --- topics ---

    def topic(self, log: JobLogReader, arguments: Arguments) -> dict[str, Any]:
        """Return records of a ``partition`` of a ``topic`` outside, from the offset ``begin`` on; without: the last."""
        topics = external_topics(self._job)
        name = arguments.get("topic", "")
        if name not in topics:
            raise ConfigError(f"the job has no topic {name!r} outside: it has {', '.join(sorted(topics))}")
        at, rows, bounds = self._rows(log, name, arguments)
        return bounds | {"rows": [self._record(topics[name], at, row) for row in rows]}

    def letters(self, log: JobLogReader, arguments: Arguments) -> dict[str, Any]:
        """Return dead letters of a ``partition`` of a ``topic``, from the offset ``begin`` on; without: the last."""
        names = dict.fromkeys(each.name for stage in self._job.stages for each in stage.dead_letters())
        name = arguments.get("topic", "")
        if name not in names:
            raise ConfigError(f"the job has no dead-letter topic {name!r}: it has {', '.join(names) or 'none'}")
        at, rows, bounds = self._rows(log, name, arguments)
        found = (letter_of(at, row) for row in rows)
        return bounds | {"rows": [self._letter(letter) for letter in found if letter is not None]}

    def _letter(self, letter: Letter) -> dict[str, Any]:
        key_serde, value_serde = serdes_of(self._job, letter)
        cell = encode_headers(letter.headers)
        told = {name: _cut(text) for name, text in letter.told.items()}
        if self._hide:  # what an error says may have the value in it
            told["error"], told["traceback"] = told["error"].partition(":")[0], ""
        return {
            "offset": letter.offset,
            "timestamp_ms": letter.timestamp_ms,
            "key": _text(key_serde, letter.key, cell),
            "value": self._value(value_serde, letter.value, cell),
            "told": told,
            "headers": self._headers(letter.headers),
        }

    def _record(self, topic: Topic[Any, Any], at: TopicPartition, row: LogRow) -> dict[str, Any]:
        return {
            "offset": row.offset,
            "timestamp_ms": row.timestamp_ms,
            "key": _text(topic.key, row.key, row.headers),
            "value": self._value(topic.value, row.value, row.headers),
            "headers": self._headers(headers_of(row.headers)),
        }

    # --- changelogs ---

    def changelog(self, log: JobLogReader, arguments: Arguments) -> dict[str, Any]:
        """Return messages of the changelog of a task, from the offset ``begin`` on; without: the last."""
        stage = self._job.stage(arguments.get("stage", ""))
        topic = self._job.topology().changelog(stage.ordinal)
        _, rows, bounds = self._rows(log, topic, arguments)
        return bounds | {"rows": [_message(row) for row in rows]}

    # --- all of them ---

    def _rows(
        self, log: JobLogReader, topic: str, arguments: Arguments
    ) -> tuple[TopicPartition, list[LogRow], dict[str, Any]]:
        """Return a page of rows, and where it is in the partition."""
        partitions = log.partitions(topic) or 0
        at = TopicPartition(topic, _number(arguments, "partition", 0))
        if at.partition >= partitions:
            raise ConfigError(f"{topic} has {partitions} partitions, counted from 0: there is no {at.partition}")
        start, end = log.bounds(at)
        begin = max(start, _number(arguments, "begin", max(start, end - ROWS_MAX)))
        rows: list[LogRow] = []
        while begin < end and len(rows) < ROWS_MAX:
            read = log.read(at, begin, WINDOW_BYTES)
            if not read:
                break
            rows += read
            begin = rows[-1].offset + 1
        rows = rows[:ROWS_MAX]
        place = {"partitions": partitions, "start": start, "end": end}
        return at, rows, place | {"next": rows[-1].offset + 1 if rows and rows[-1].offset + 1 < end else None}

    def _value(self, serde: Serde[Any], data: bytes | None, headers: bytes | None = None) -> str:
        return HIDDEN if self._hide else _text(serde, data, headers)

    def _headers(self, headers: Any) -> list[tuple[str, str]]:
        return [
            (_cut(name), HIDDEN if self._hide else "null" if value is None else _cut(value.decode(errors="replace")))
            for name, value in headers
        ]


def _message(row: LogRow) -> dict[str, Any]:
    place = {"offset": row.offset, "append_time_ms": row.append_time_ms}
    try:
        return place | message_in(row.value or b"")
    except DecodeError as error:
        return place | {"type": "unknown", "text": f"not a changelog message: {error}"}


def _text(serde: Serde[Any], data: bytes | None, headers: bytes | None = None) -> str:
    """Return a key or value as text, cut to a bound; bytes that are none of the serde's as hex digits."""
    if data is not None and len(data) > READ_BYTES_MAX >> 4:
        return _cut(decoded(bytes_serde, data[:CHARS_MAX]))
    return _cut(decoded(serde, data, headers))


def _cut(text: str) -> str:
    return text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]}… ({len(text):,} characters)"


def _cursor(text: str) -> tuple[int, bytes]:
    """Return (partition, key to begin with) of "partition:hex". Raises ConfigError."""
    number, _, raw = text.partition(":")
    try:
        return int(number or 0), bytes.fromhex(raw)
    except ValueError as error:
        raise ConfigError(f"after={text!r}: give what the page before has as next") from error


def _number(arguments: Arguments, name: str, default: int) -> int:
    text = arguments.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"{name} {text!r}: give a number")
    return int(text)
