"""The loops over the records of an input, one per error policy and form of ``process``, each compiled for its input.

With "fail" nothing is kept per record: which one failed is worked out afterwards, from how far the keys were read. Time
moves at two points: a task's ``RecordClock``, if it has one, before each record, and event time after each record.
"""

from collections.abc import Callable
from itertools import repeat
from operator import length_hint
from typing import Any

from grete.api.record import Record
from grete.api.tasks.methods import ReturnError, refuse_return
from grete.api.topics.topic import Input
from grete.execution.records.decoding import RecordsOf, decoder, decoders, headers_of
from grete.execution.task_code.failures import failure, is_ours, refuser
from grete.execution.task_code.site import Site
from grete.protocol.record_batch import RecordBatch

Loop = Callable[[RecordBatch], None]
ProcessFunction = Callable[[Any], object]


def compile_loop(site: Site, declared: Input[Any, Any], process: ProcessFunction, method: str, *, batch: bool) -> Loop:
    """Return the loop for an input. ``process``, the ``method``, takes a record, or with ``batch`` a list of them."""
    if declared.errors != "fail":
        if not batch:
            return _guarded(site, declared, process, method)
        one_by_one = _guarded(site, declared, lambda record: process([record]), method)
        # a clock does not go back: what a batch has moved it to cannot be undone
        return _guarded_batches(site, declared, process, one_by_one) if site.clock is None else one_by_one
    if batch:
        return _batches(site, declared, process)
    by_event_time = site.fire is not None and site.time is not None
    return (_timed if by_event_time else _plain)(site, declared, process, method)


def noted(site: Site, process: ProcessFunction) -> ProcessFunction:
    """Return ``process``, during which the record is known to the windows that may set it aside as late."""
    reading = site.reading

    def noting(record: Any) -> object:
        reading.record = record
        try:
            return process(record)
        finally:
            reading.record = None

    return noting


def _plain(site: Site, declared: Input[Any, Any], process: ProcessFunction, method: str) -> Loop:
    """Return the loop of a task without timers of event time: decode and call."""
    outputs, records_of, timed = site.outputs, _paced(site, declared), site.time is not None
    begin = site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        try:
            for record in records_of(batch, keys):
                outputs.timestamp = record.timestamp
                if (returned := process(record)) is not None:
                    refuse_return(method, returned)
        except Exception as error:
            raise failure(site, declared, batch, len(batch.keys) - length_hint(keys) - 1, error) from error
        if timed:
            site.advance(max(batch.timestamps))

    return loop


def _timed(site: Site, declared: Input[Any, Any], process: ProcessFunction, method: str) -> Loop:
    """Return the loop of a task with timers or windows: event time may move with each record."""
    outputs, records_of, advance = site.outputs, _paced(site, declared), site.advance
    begin = site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        try:
            for record in records_of(batch, keys):
                timestamp = outputs.timestamp = record.timestamp
                if (returned := process(record)) is not None:
                    refuse_return(method, returned)
                if advance(timestamp):
                    site.reading.left = length_hint(keys)
                    return
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


def _guarded(site: Site, declared: Input[Any, Any], process: ProcessFunction, method: str) -> Loop:
    """Return the loop of an input that sets aside or drops: a record that fails leaves nothing but its letter."""
    outputs, clock = site.outputs, site.clock
    topic, (key_of, value_of) = declared.topic.name, decoders(declared.topic)
    refuse, begin = refuser(site, declared), site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        headers = repeat(None) if batch.headers is None else batch.headers
        partition = batch.source.partition
        rows = zip(keys, batch.values, batch.timestamps, headers, strict=False)
        paced = rows if clock is None else clock.each(batch, rows)
        for index, (key, value, timestamp, cell) in enumerate(paced):
            site.mark()
            outputs.timestamp = timestamp
            try:
                offset = batch.offset_at(index)
                record = Record(
                    key_of(key, cell), value_of(value, cell), timestamp, headers_of(cell), topic, partition, offset
                )
                if (returned := process(record)) is not None:
                    refuse_return(method, returned)
            except Exception as error:  # noqa: BLE001  # ours are raised again by refuse
                site.undo()
                refuse(batch, index, error)
            else:
                site.keep()
                if site.advance(timestamp):
                    site.reading.left = length_hint(keys)
                    return

    return loop


def _guarded_batches(site: Site, declared: Input[Any, Any], process: ProcessFunction, one_by_one: Loop) -> Loop:
    """Return the loop of batches of such an input: one that fails is undone and goes record by record."""
    outputs, records_of, begin = site.outputs, decoder(declared), site.reading.begin

    def loop(batch: RecordBatch) -> None:
        begin(keys := iter(batch.keys))
        site.mark()
        outputs.timestamp = latest = max(batch.timestamps)
        try:
            if (returned := process(list(records_of(batch, keys)))) is not None:
                refuse_return("process_batch", returned)
        except Exception as error:
            site.undo()
            if is_ours(error):
                raise
            if isinstance(error, ReturnError):
                raise failure(site, declared, batch, None, error) from error
            one_by_one(batch)
        else:
            site.keep()
            site.advance(latest)

    return loop


def _paced(site: Site, declared: Input[Any, Any]) -> RecordsOf:
    """Return the maker of a batch's records, each when the task's clock is at it."""
    records_of = decoder(declared)
    if site.clock is None:
        return records_of
    each = site.clock.each
    return lambda batch, keys: each(batch, records_of(batch, keys))
