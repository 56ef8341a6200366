"""Answers to questions about state: committed entries, with the checkpoint that they are of."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from grete.api.jobs.job import Job
from grete.errors import ConfigError, TransientError
from grete.job.metadata import pinned_settings
from grete.monitor.bounded_reader import READ_BYTES_MAX, BoundedReader
from grete.monitor.queries.question import NotAnsweredError, Question
from grete.ports import JobLogReader
from grete.quoting import shows_values
from grete.settings import Settings
from grete.state.read.checkpoints.commits import all_wirings
from grete.state.read.checkpoints.nearest import AsOf
from grete.state.read.checkpoints.snapshots import snapshots
from grete.state.read.local_reader import DEFINITION, decoded_row, place_of
from grete.state.read.newest import NewestReader
from grete.state.read.owners import last_owner
from grete.state.read.shown import decoded_plain, plain
from grete.state.read.snapshot_reader import SnapshotReader

LOOKED_MAX = 10_000  # entries that one answer looks at: of windows it may want few of many
BYTES_MAX = 8 << 20  # of the entries of an answer
OPEN_S_MAX = 30.0  # that stores stay open for the next question

CommittedReader = NewestReader | SnapshotReader


class AnsweredRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, or a window with ``start`` <= timestamp < ``end`` in ms. ``value`` is left out where it is hidden."""

    partition: int
    key: Any
    value: Any = UNSET
    start: int | UnsetType = UNSET
    end: int | UnsetType = UNSET


class AnsweredRows(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a store. ``checkpoints``: partition → the checkpoint that its entries are of; none has committed yet.

    ``next``: what ``after`` is to be for more, None: there is no more. ``notes``: sentences for a person.
    """

    store: str
    rows: list[AnsweredRow]
    next: str | None
    checkpoints: dict[int, int]
    notes: list[str]


class AnsweredEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The value of one key, and the checkpoint of the partition that has it."""

    store: str
    partition: int
    key: Any
    value: Any = UNSET
    checkpoint: int | None
    notes: list[str]


class StateAnswers:
    """Reads the state of a job for one question after another. For one thread; ``stop`` may be called in any."""

    def __init__(
        self, job: Job, state_directory: Path, open_log: Callable[[], JobLogReader], bytes_max: int = READ_BYTES_MAX
    ) -> None:
        """Open nothing yet. ``open_log`` returns the reading half of the job's log; ``bytes_max``: of it, an answer."""
        self._bytes_max = bytes_max
        self._job, self._directory, self._open_log = job, state_directory, open_log
        self._log: BoundedReader | None = None
        self._newest: NewestReader | None = None
        self._opened: tuple[float, int] = 0.0, 0  # when, and with which definition of the job
        self._notes: list[str] = []

    def answer(self, question: Question) -> AnsweredRows | AnsweredEntry:
        """Return the entries. Raises NotAnsweredError: there are none such; FrameworkError: they cannot be read."""
        try:
            reader = self._reader(question.as_of)
            return self._entry(reader, question) if question.one else self._rows(reader, question)
        except NotAnsweredError:
            raise
        except BaseException:
            self.close()  # what is open may be of yesterday: the next question opens it again
            raise

    def stop(self) -> None:
        """Let what is being read end soon, with an error."""
        if (log := self._log) is not None:
            log.renew(0.0)

    def close(self) -> None:
        """Close stores and log; the next question opens them again. Open stores keep files that their owner deletes."""
        newest, log = self._newest, self._log
        self._newest = self._log = None
        if newest is not None:
            newest.close()
        if log is not None:
            log.close()

    def _reader(self, as_of: AsOf | None) -> CommittedReader:
        now, definition = time.monotonic(), self._definition()
        if now - self._opened[0] > OPEN_S_MAX or definition != self._opened[1]:
            self.close()
        if self._log is None:
            self._log, self._opened = BoundedReader(self._open_log(), bytes_max=self._bytes_max), (now, definition)
        self._log.renew()
        self._notes.clear()
        if as_of is None:
            if self._newest is None:
                self._newest = NewestReader(self._log, self._job, self._directory, self._notes.append)
            return self._newest
        try:
            aligned = pinned_settings(self._job, self._log, Settings()).aligned
            found = snapshots(self._log, self._job, as_of, aligned=aligned)
        except ConfigError as error:
            raise NotAnsweredError(404, str(error)) from error
        return SnapshotReader(self._log, self._job, found)

    def _definition(self) -> int:
        """Return the time of the definition beside the stores, 0: there is none. New code writes another one."""
        try:
            return (self._directory / DEFINITION).stat().st_mtime_ns
        except OSError:
            return 0

    def _entry(self, reader: CommittedReader, question: Question) -> AnsweredEntry:
        store = question.store
        for partition in question.partitions:
            for key, value in self._stored(reader, question, partition):
                row = _entry_row(question, partition, key, value)
                at = reader.checkpoint(store, partition)
                return AnsweredEntry(
                    store=question.name, partition=partition, key=row.key, value=row.value, checkpoint=at,
                    notes=[*self._notes],
                )  # fmt: skip
        at_all = {each: reader.checkpoint(store, each) for each in question.partitions}
        told = ", ".join(f"{each}: {at}" for each, at in at_all.items() if at is not None)
        when = f"as of the checkpoints of its partitions ({told})" if told else "no task has committed anything yet"
        raise NotAnsweredError(404, f"store {question.name} has no such key, {when}")

    def _rows(self, reader: CommittedReader, question: Question) -> AnsweredRows:
        rows: list[AnsweredRow] = []
        checkpoints: dict[int, int] = {}
        looked = size = 0
        follows: str | None = None
        after = question.after
        for partition in question.partitions:
            for key, value in self._stored(reader, question, partition, after):
                if len(rows) >= question.limit or looked >= LOOKED_MAX or size >= BYTES_MAX:
                    follows = f"{partition}:{key.hex()}"
                    break
                looked, size = looked + 1, size + len(key) + len(value)
                rows += _window_rows(question, partition, key, value)
            at = reader.checkpoint(question.store, partition)
            if at is not None:
                checkpoints[partition] = at
            if follows is not None:
                break
            after = b""
        return AnsweredRows(store=question.name, rows=rows, next=follows, checkpoints=checkpoints, notes=[*self._notes])

    def _stored(
        self, reader: CommittedReader, question: Question, partition: int, after: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of one partition. Raises TransientError: too much is to be read; it names the owner."""
        try:
            for key, value in reader.raw(question.store, question.prefix, partition, max(question.begin, after)):
                if question.end and key >= question.end:
                    return
                yield key, value
        except TransientError as error:
            if self._log is None or not self._log.over:
                raise
            stage, _ = place_of(self._job, question.store)
            wiring = all_wirings(self._job)[self._job.tasks_of(stage.ordinal)][partition]
            owner = last_owner(self._log.log, wiring)
            raise TransientError(f"{error}; {owner} has the state of {wiring.name}: ask there") from error


def _entry_row(question: Question, partition: int, key: bytes, value: bytes) -> AnsweredRow:
    store = question.store
    shown = decoded_plain(store.value, value) if shows_values() else UNSET
    return AnsweredRow(partition=partition, key=decoded_plain(store.key, key), value=shown)


def _window_rows(question: Question, partition: int, key: bytes, value: bytes) -> list[AnsweredRow]:
    """Return the rows of one stored entry: of a window's store those of its windows that are wanted."""
    window, (since, until) = question.window, question.starts
    if window is None:
        return [_entry_row(question, partition, key, value)]
    if question.key is not None and key[slice(*window.key_at)] != question.key:
        return []
    return [
        AnsweredRow(
            partition=partition,
            key=plain(each.key),
            start=each.start,
            end=each.end,
            value=plain(each.value) if shows_values() else UNSET,
        )
        for each in window.windows_in(*decoded_row(question.store, key, value))
        if (since is None or each.start >= since) and (until is None or each.start < until)
    ]
