"""Reads what a job has stored, for the page: state, topics, dead letters, changelogs. It cannot write.

Each answer is a page of rows of bounded size, from a read of bounded time and bytes.
"""

import contextlib
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from grete.api.jobs.job import Job
from grete.api.serdes.serde import Serde, bytes_serde
from grete.api.store import Store
from grete.api.topics.topic import Topic
from grete.errors import ConfigError
from grete.execution.records.decoding import headers_of
from grete.job.dead_letters import Letter, letter_of, redriven, serdes_of
from grete.job.metadata import pinned_settings
from grete.monitor.bounded_reader import READ_BYTES_MAX, BoundedReader
from grete.monitor.page.browse_rows import EntriesPage, EntryShown, LatestPage, MessageShown, RecordShown, RowsPage
from grete.monitor.page.search import SearchBounds, search
from grete.ports import JobLogReader, LogRow
from grete.protocol.frames import encode_headers
from grete.protocol.ids import TopicPartition
from grete.quoting import HIDDEN, shows_keys, shows_values
from grete.settings import Settings
from grete.state.read.changelog_text import message_in
from grete.state.read.checkpoints.snapshots import snapshots
from grete.state.read.letter_condition import condition, is_key, time_ms
from grete.state.read.local_reader import place_of, store_named
from grete.state.read.newest import NewestReader
from grete.state.read.shown import decoded, external_topics, from_text
from grete.state.read.snapshot_reader import SnapshotReader

ROWS_MAX = 100  # of a page
SEARCHED = SearchBounds(ROWS_MAX)  # for one page
FILTERS = "key", "error", "from", "to", "after"  # of the latest rows; an offset is none of them
CHARS_MAX = 2_000  # of a key or value
WINDOW_BYTES = 1 << 20  # read at once

Arguments = Mapping[str, str]
AnswerOf = Callable[[JobLogReader, Mapping[str, str]], EntriesPage | RowsPage | LatestPage]


class LogPage(NamedTuple):
    """Rows as they were read, and where."""

    at: TopicPartition
    rows: list[LogRow]
    partitions: int
    start: int
    end: int

    def shown(self, rows: list[RecordShown] | list[MessageShown]) -> RowsPage:
        """Return the page of these, which are made of its rows."""
        last = self.rows[-1].offset + 1 if self.rows else self.end
        return RowsPage(self.partitions, self.start, self.end, last if last < self.end else None, rows)


class Browse:
    """Answers by name, with plain values. For one thread; each answer opens what it reads, and closes it."""

    def __init__(
        self,
        job: Job,
        state_directory: Path,
        open_log: Callable[[], JobLogReader],
        *,
        redrive: Sequence[str] = (),
    ) -> None:
        """``open_log`` returns the reading half of the job's log; ``redrive``: the command that sends letters again."""
        self._job, self._directory, self._open_log, self._redrive = job, state_directory, open_log, redrive
        self.answers: dict[str, AnswerOf] = {
            "state": self.state,
            "topic": self.topic,
            "letters": self.letters,
            "changelog": self.changelog,
        }

    def answer(self, name: str, arguments: Arguments) -> EntriesPage | RowsPage | LatestPage:
        """Return one of the answers. Raises FrameworkError with what to do."""
        with contextlib.closing(BoundedReader(self._open_log())) as log:
            return self.answers[name](log, arguments)

    # --- state ---

    def state(self, log: JobLogReader, arguments: Arguments) -> EntriesPage:
        """Return entries of ``store``: all, of a ``key`` or ``prefix``, from ``after`` on, as of a ``checkpoint``."""
        _check_keys(shown="state has keys and values alone")
        store = store_named(self._job, arguments.get("store", ""))
        partitions = place_of(self._job, store)[0].partitions
        key, prefix = arguments.get("key", ""), arguments.get("prefix", "")
        wanted = store.key.encode(from_text(store.key, key or prefix)) if key or prefix else b""
        partition, begin = _cursor(arguments.get("after", ""))
        rows: list[EntryShown] = []
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
        follows = None if more is None else f"{more.partition}:{more.raw}"
        return EntriesPage(rows, follows, notes, (store.key.name, store.value.name))

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

    def _entry(self, store: Store[Any, Any], partition: int, key: bytes, value: bytes) -> EntryShown:
        return EntryShown(partition, key.hex(), _text(store.key, key), _value(store.value, value))

    # --- topics ---

    def topic(self, log: JobLogReader, arguments: Arguments) -> RowsPage | LatestPage:
        """Return records of a ``topic`` outside: see ``_records``. ``key``, ``from``, ``to`` choose of the latest."""
        topics = external_topics(self._job, log)
        name = arguments.get("topic", "")
        if name not in topics:
            raise ConfigError(f"the job has no topic {name!r} outside: it has {', '.join(sorted(topics))}")
        topic, key = topics[name], _filter(arguments, "key")
        since, until = (
            time_ms(name, text) if (text := _filter(arguments, name)) else unbounded
            for name, unbounded in (("from", -math.inf), ("to", math.inf))
        )

        def shown(at: TopicPartition, row: LogRow) -> RecordShown | None:
            wanted = since <= row.timestamp_ms < until and (not key or is_key(topic.key, row.key, row.headers, key))
            return self._record(topic, at, row) if wanted else None

        return self._records(log, name, arguments, shown)

    def letters(self, log: JobLogReader, arguments: Arguments) -> RowsPage | LatestPage:
        """Return dead letters of a ``topic``: see ``_records``. ``error``, too, chooses; of hidden values, by class.

        An error may quote a value, and a search in its text would tell whether it does.
        """
        names = dict.fromkeys(each.name for stage in self._job.stages for each in stage.dead_letters())
        name = arguments.get("topic", "")
        if name not in names:
            raise ConfigError(f"the job has no dead-letter topic {name!r}: it has {', '.join(names) or 'none'}")
        fields = {"key": "key", "error" if shows_values() else "class": "error", "from": "from", "to": "to"}
        asked = {field: _filter(arguments, parameter) for field, parameter in fields.items()}
        where = [f"dlq={name}", *(f"{field}={text}" for field, text in asked.items() if text)]
        if arguments.get("partition"):
            where.append(f"partition={_number(arguments, 'partition', 0)}")
        wanted = condition(where)
        sent_again = cache(partial(redriven, log.read_metadata(self._job.name)))

        def shown(at: TopicPartition, row: LogRow) -> RecordShown | None:
            letter = letter_of(at, row)
            if letter is None or not wanted(self._job, letter):
                return None
            return self._letter(letter, again=letter.offset in sent_again(at))

        command = shlex.join([*self._redrive, *(f"--where={each}" for each in where)])
        return self._records(log, name, arguments, shown, command)

    def _records(
        self,
        log: JobLogReader,
        topic: str,
        arguments: Arguments,
        shown: Callable[[TopicPartition, LogRow], RecordShown | None],
        command: str = "",
    ) -> RowsPage | LatestPage:
        """Return the latest rows of all partitions, or of a ``partition``, ``after`` those of the page before.

        With ``begin`` those of a partition from that offset on.
        """
        if arguments.get("begin"):
            if any(map(arguments.get, FILTERS)) or not arguments.get("partition"):
                raise ConfigError(
                    f"begin is an offset in a partition: give this, too, and none of {', '.join(FILTERS)}"
                )
            page = self._page(log, topic, arguments)
            return page.shown([each for row in page.rows if (each := shown(page.at, row)) is not None])
        places = [TopicPartition(topic, number) for number in range(log.partitions(topic) or 0)]
        if arguments.get("partition"):
            places = [_place(topic, len(places), arguments)]
        step = search(log, places, arguments.get("after", ""), shown, SEARCHED)
        return LatestPage(len(places), step.read, step.next, step.found, command)

    def _letter(self, letter: Letter, *, again: bool) -> RecordShown:
        key_serde, value_serde = serdes_of(self._job, letter)
        cell = encode_headers(letter.headers)
        told = {name: _cut(text) for name, text in letter.told.items()}
        if not shows_values():  # what an error says may have the value in it
            told["error"], told["traceback"] = letter.error_class, ""
        return RecordShown(
            partition=letter.at.partition,
            offset=letter.offset,
            timestamp_ms=letter.timestamp_ms,
            key=_key(key_serde, letter.key, cell),
            value=_value(value_serde, letter.value, cell),
            told=told,
            again=again,
            headers=_headers(letter.headers),
        )

    def _record(self, topic: Topic[Any, Any], at: TopicPartition, row: LogRow) -> RecordShown:
        return RecordShown(
            partition=at.partition,
            offset=row.offset,
            timestamp_ms=row.timestamp_ms,
            key=_key(topic.key, row.key, row.headers),
            value=_value(topic.value, row.value, row.headers),
            headers=_headers(headers_of(row.headers)),
        )

    # --- changelogs ---

    def changelog(self, log: JobLogReader, arguments: Arguments) -> RowsPage:
        """Return messages of the changelog of a task, from the offset ``begin`` on; without: the last."""
        stage = self._job.stage(arguments.get("stage", ""))
        topic = self._job.topology().changelog(stage.ordinal)
        page = self._page(log, topic, arguments)
        return page.shown([_message(row) for row in page.rows])

    # --- all of them ---

    def _page(self, log: JobLogReader, topic: str, arguments: Arguments) -> LogPage:
        """Return a page of rows, and where it is in the partition."""
        partitions = log.partitions(topic) or 0
        at = _place(topic, partitions, arguments)
        start, end = log.bounds(at)
        begin = max(start, _number(arguments, "begin", max(start, end - ROWS_MAX)))
        rows: list[LogRow] = []
        while begin < end and len(rows) < ROWS_MAX:
            read = log.read(at, begin, WINDOW_BYTES)
            if not read:
                break
            rows += read
            begin = rows[-1].offset + 1
        return LogPage(at, rows[:ROWS_MAX], partitions, start, end)


def _key(serde: Serde[Any], data: bytes | None, headers: bytes | None = None) -> str:
    return _text(serde, data, headers) if shows_keys() else HIDDEN


def _value(serde: Serde[Any], data: bytes | None, headers: bytes | None = None) -> str:
    return _text(serde, data, headers) if shows_values() else HIDDEN


def _headers(headers: Any) -> list[tuple[str, str]]:
    whole = shows_values()
    return [
        (_cut(name), HIDDEN if not whole else "null" if value is None else _cut(value.decode(errors="replace")))
        for name, value in headers
    ]


def _check_keys(*, shown: str) -> None:
    """Raise ConfigError if keys are hidden. ``shown``: why there is no answer without them."""
    if not shows_keys():
        raise ConfigError(f"the setting show_records is none: {shown}")


def _message(row: LogRow) -> MessageShown:
    told = message_in(row.value or b"")
    return MessageShown(row.offset, row.append_time_ms, told.type, told.text, told.generation, told.seq)


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


def _place(topic: str, partitions: int, arguments: Arguments) -> TopicPartition:
    at = TopicPartition(topic, _number(arguments, "partition", 0))
    if at.partition >= partitions:
        raise ConfigError(f"{topic} has {partitions} partitions, counted from 0: there is no {at.partition}")
    return at


def _filter(arguments: Arguments, name: str) -> str:
    """Return a text to look for, which may become a part of a command: it must not steer a terminal."""
    text = arguments.get(name, "")
    if text and name == "key":  # else an answer tells whether there is such a key
        _check_keys(shown="a search would tell whether the key is there")
    if not text.isprintable():
        raise ConfigError(f"{name} {text!r}: give it as it is shown, without control characters")
    return text


def _number(arguments: Arguments, name: str, default: int) -> int:
    text = arguments.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"{name} {text!r}: give a number")
    return int(text)
