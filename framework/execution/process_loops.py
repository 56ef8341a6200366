"""The loops over the records of an input, one per error policy and form of ``process``, each compiled for its input.

With "fail" nothing is kept per record: which one failed is worked out afterwards, from how far the keys were read. Time
moves at two points: a task's ``RecordClock``, if it has one, before each record, and event time after each record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from operator import length_hint
from typing import Any, Protocol, TypeVar

from framework.api.methods import ReturnError, refuse_return
from framework.api.record import Record
from framework.api.serdes import decode_error
from framework.api.topic import DeadLetter, Input
from framework.errors import FrameworkError, SerdeError, TaskError
from framework.execution.decoding import RecordsOf, decoder, decoders, headers_of
from framework.execution.event_time import EventTime
from framework.execution.outbox import Outbox
from framework.execution.outputs import Outputs
from framework.execution.reading import Reading
from framework.execution.timers import TimerQueue
from framework.execution.user_traceback import user_line, user_traceback
from framework.stores.overlay import Overlay
from protocol.record_batch import RecordBatch

T = TypeVar("T")


Loop = Callable[[RecordBatch], None]
ProcessFunction = Callable[[Any], object]


class TimerError(TaskError):
    """A timer or window failed, not the record that moved the time: no dead letter, and it says itself where."""


class RecordClock(Protocol):
    """A time that each record has, and that the task is to be at before the record is processed."""

    def each(self, batch: RecordBatch, items: Iterator[T]) -> Iterator[T]:
        """Yield ``items``, one for each record of the batch: an item once time is at its record."""
        ...

    def whole(self, batch: RecordBatch) -> None:
        """Move time to a batch that is processed in one turn."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """The common part of a task's loops. ``fire`` runs the timers that are due; None if the task declares none."""

    stage: str
    partition: int
    overlay: Overlay
    outputs: Outputs
    outbox: Outbox
    timers: TimerQueue
    fire: Callable[[], None] | None
    time: EventTime | None  # None: nothing here or behind the task goes by event time
    clock: RecordClock | None = None  # logical time in deterministic mode (D1)
    reading: Reading = field(default_factory=Reading)

    def advance(self, timestamp: int) -> None:
        """Let event time follow a record's timestamp as far as the other sources allow (E1), and fire what is due."""
        time, timers = self.time, self.timers
        if time is None:
            return
        time.highest = max(time.highest, timestamp)
        reached = min(timestamp, time.ceiling)
        if reached > timers.now:
            time.now = timers.now = reached
        if self.fire is not None and timers.due <= timers.now:
            self.fire()


def compile_loop(site: Site, declared: Input[Any, Any], process: ProcessFunction, *, batch: bool) -> Loop:
    """Return the loop for an input. ``process`` takes a record, or with ``batch`` a list of them."""
    if isinstance(declared.errors, DeadLetter):
        if not batch:
            return _guarded(site, declared, process)
        one_by_one = _guarded(site, declared, lambda record: process([record]), "process_batch")
        # a clock does not go back: what a batch has moved it to cannot be undone
        return _guarded_batches(site, declared, process, one_by_one) if site.clock is None else one_by_one
    if batch:
        return _batches(site, declared, process)
    by_event_time = site.fire is not None and site.time is not None
    return _timed(site, declared, process) if by_event_time else _plain(site, declared, process)


def compile_refusal(site: Site, declared: Input[Any, Any]) -> Callable[[RecordBatch, Exception], None]:
    """Return the handler of a row that is no record: a dead letter, or an error that names the offset."""
    if isinstance(declared.errors, DeadLetter):
        write = letter_writer(site, declared)
        return lambda batch, error: write(batch, 0, error)

    def fail(batch: RecordBatch, error: Exception) -> None:
        raise failure(site, declared, batch, 0, error)

    return fail


def _plain(site: Site, declared: Input[Any, Any], process: ProcessFunction) -> Loop:
    """Return the loop of a task without timers of event time: decode and call."""
    outputs, records_of, timed = site.outputs, _paced(site, declared), site.time is not None
    begin = site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        try:
            for record in records_of(batch, keys):
                outputs.timestamp = record.timestamp
                if (returned := process(record)) is not None:
                    refuse_return("process", returned)
        except Exception as error:
            raise failure(site, declared, batch, len(batch.keys) - length_hint(keys) - 1, error) from error
        if timed:
            site.advance(max(batch.timestamps))

    return loop


def _timed(site: Site, declared: Input[Any, Any], process: ProcessFunction) -> Loop:
    """Return the loop of a task with timers or windows: event time may move with each record."""
    outputs, records_of, advance = site.outputs, _paced(site, declared), site.advance
    begin = site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        try:
            for record in records_of(batch, keys):
                timestamp = outputs.timestamp = record.timestamp
                if (returned := process(record)) is not None:
                    refuse_return("process", returned)
                advance(timestamp)
        except Exception as error:
            raise failure(site, declared, batch, len(batch.keys) - length_hint(keys) - 1, error) from error

    return loop


def _batches(site: Site, declared: Input[Any, Any], process: ProcessFunction) -> Loop:
    """Return the loop, of one turn, of a task with process_batch."""
    outputs, records_of, clock = site.outputs, decoder(declared), site.clock
    begin = site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        if clock is not None:
            clock.whole(batch)
        outputs.timestamp = latest = max(batch.timestamps)
        try:
            records = list(records_of(batch, keys))
        except Exception as error:
            raise failure(site, declared, batch, len(batch.keys) - length_hint(keys) - 1, error) from error
        try:
            if (returned := process(records)) is not None:
                refuse_return("process_batch", returned)
        except Exception as error:
            raise failure(site, declared, batch, None, error) from error
        site.advance(latest)

    return loop


def _guarded(site: Site, declared: Input[Any, Any], process: ProcessFunction, method: str = "process") -> Loop:
    """Return the loop of an input with a dead-letter topic: a record that fails leaves nothing but its letter."""
    overlay, outputs, clock = site.overlay, site.outputs, site.clock
    topic, (key_of, value_of) = declared.topic.name, decoders(declared)
    write, begin = letter_writer(site, declared), site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        headers = repeat(None) if batch.headers is None else batch.headers
        partition = batch.source.partition
        rows = zip(keys, batch.values, batch.timestamps, headers, strict=False)
        paced = rows if clock is None else clock.each(batch, rows)
        for index, (key, value, timestamp, cell) in enumerate(paced):
            mark(site)
            outputs.timestamp = timestamp
            try:
                offset = batch.offset_at(index)
                record = Record(key_of(key), value_of(value), timestamp, headers_of(cell), topic, partition, offset)
                if (returned := process(record)) is not None:
                    refuse_return(method, returned)
            except Exception as error:  # noqa: BLE001  # ours are raised again by write
                undo(site)
                write(batch, index, error)
            else:
                overlay.end_undo()
                site.advance(timestamp)

    return loop


def _guarded_batches(site: Site, declared: Input[Any, Any], process: ProcessFunction, one_by_one: Loop) -> Loop:
    """Return the loop of batches with a dead-letter topic: one that fails is undone and goes record by record."""
    outputs, records_of, begin = site.outputs, decoder(declared), site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        mark(site)
        outputs.timestamp = latest = max(batch.timestamps)
        try:
            if (returned := process(list(records_of(batch, keys)))) is not None:
                refuse_return("process_batch", returned)
        except Exception as error:
            undo(site)
            if is_ours(error):
                raise
            if isinstance(error, ReturnError):
                raise failure(site, declared, batch, None, error) from error
            one_by_one(batch)
        else:
            site.overlay.end_undo()
            site.advance(latest)

    return loop


def _paced(site: Site, declared: Input[Any, Any]) -> RecordsOf:
    """Return what makes the records of a batch, each when the task's clock is at it."""
    records_of = decoder(declared)
    if site.clock is None:
        return records_of
    each = site.clock.each
    return lambda batch, keys: each(batch, records_of(batch, keys))


# --- Errors ---


def is_ours(error: Exception) -> bool:
    """Return whether the error is not the record's: the machine or a timer is in trouble, not this input."""
    return isinstance(error, TimerError) or (isinstance(error, FrameworkError) and not isinstance(error, TaskError))


def failure(
    site: Site, declared: Input[Any, Any], batch: RecordBatch, index: int | None, error: Exception
) -> FrameworkError:
    """Return the TaskError that says where the record (None: the batch) failed; errors of ours pass as they are."""
    if isinstance(error, FrameworkError) and is_ours(error):
        return error
    if index is None:
        which = f"offsets {batch.offset_at(0)} to {batch.offset_at(-1)}, batch of {len(batch.keys)} records"
        cause = error
    else:
        which = f"offset {batch.offset_at(index)}, record {batch.first + index}"
        cause = _cause(declared, batch, index, error)
    passable = isinstance(declared.errors, DeadLetter) or isinstance(cause, ReturnError)
    way = "" if passable else "; to send such records to a dead-letter topic: Input(…, errors=DeadLetter(Topic(…)))"
    where = f"stage {site.stage}, partition {site.partition}: topic {declared.topic.name} ({batch.source}), {which}"
    return TaskError(
        f"{where}: {type(cause).__name__}: {cause}{user_line(error)}{way}",
        stage=site.stage,
        partition=batch.source,
        offset=None if index is None else batch.offset_at(index),
    )


def _cause(declared: Input[Any, Any], batch: RecordBatch, index: int, error: Exception) -> Exception:
    """Return the SerdeError if the record cannot be decoded, else the error: loops call bare functions of serdes."""
    for serde, data in ((declared.topic.key, batch.keys[index]), (declared.topic.value, batch.values[index])):
        try:
            if data is not None:
                serde.decode(data)
        except Exception as refusal:  # noqa: BLE001  # a serde may raise anything
            return refusal if isinstance(refusal, SerdeError) else decode_error(serde, data, refusal)
    return error


def mark(site: Site) -> None:
    """Begin to remember what one record does."""
    site.overlay.begin_undo()
    site.outputs.mark()
    site.outbox.mark()


def undo(site: Site) -> None:
    """Take back what was done since the mark. Timers are in the overlay: their heap only holds more than it need."""
    site.overlay.undo()
    site.outputs.rollback()
    site.outbox.rollback()


def letter_writer(site: Site, declared: Input[Any, Any]) -> Callable[[RecordBatch, int, Exception], None]:
    """Return what sends a failed record to the dead-letter topic, or raises the error if it is not the record's."""
    assert isinstance(declared.errors, DeadLetter)
    send = site.outputs.dead_letter(declared.errors.topic.name)

    def write(batch: RecordBatch, index: int, error: Exception) -> None:
        if is_ours(error):
            raise error
        if isinstance(error, ReturnError):
            raise failure(site, declared, batch, index, error) from error
        cause = _cause(declared, batch, index, error)
        cell = None if batch.headers is None else batch.headers[index]
        headers = {
            "grete.error": f"{type(cause).__name__}: {cause}",
            "grete.stage": site.stage,
            "grete.partition": str(site.partition),
            "grete.topic": declared.topic.name,
            "grete.source": str(batch.source),
            "grete.offset": str(batch.offset_at(index)),
            "grete.index": str(batch.first + index),
        }
        if batch.logical is not None:  # made again, an output is the same: a batch begins elsewhere, a file is moved
            del headers["grete.index"]
        elif (shown := user_traceback(error)) is not None:
            headers["grete.traceback"] = shown
        added = tuple((name, text.encode(errors="replace")) for name, text in headers.items())
        send(batch.keys[index], batch.values[index], batch.timestamps[index], (*headers_of(cell), *added))

    return write
