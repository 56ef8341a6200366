"""The loops over records in deterministic mode: each record sets the logical time, and first come the timers before it.

As in framework.execution.process_loops, with "fail" nothing is kept per record: which one failed is worked out
afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from operator import length_hint
from typing import Any

from framework.api.methods import refuse_return
from framework.api.record import Record
from framework.api.topic import DeadLetter, Input
from framework.execution.deterministic.outputs import LogicalOutputs
from framework.execution.process_loops import (
    Loop,
    Process,
    RecordBatch,
    Site,
    decoder,
    decoders,
    failure,
    headers_of,
    letter_writer,
    mark,
    undo,
)


@dataclass(frozen=True, slots=True)
class LogicalSite(Site):
    """The common part of a task's loops; ``reach`` advances time to a µs and fires the timers due by then."""

    outputs: LogicalOutputs
    reach: Callable[[int], None]


def compile_logical(site: LogicalSite, declared: Input[Any, Any], process: Process, *, batch: bool) -> Loop:
    """Return the loop for an input. With ``batch``, which only a source may have, ``process`` takes a list."""
    if isinstance(declared.errors, DeadLetter):
        if batch:
            return _guarded(site, declared, lambda record: process([record]), "process_batch")
        return _guarded(site, declared, process)
    if batch:
        return _batches(site, declared, process)
    return _plain(site, declared, process) if site.fire is None else _timed(site, declared, process)


def _plain(site: LogicalSite, declared: Input[Any, Any], process: Process) -> Loop:
    """Return the loop of a task without timers."""
    outputs, records_of = site.outputs, decoder(declared)

    def loop(columns: RecordBatch) -> None:
        keys = iter(columns.keys)
        try:
            for record, at in zip(records_of(columns, keys), columns.logical, strict=False):
                outputs.timestamp = record.timestamp
                outputs.at = at
                if (returned := process(record)) is not None:
                    refuse_return("process", returned)
        except Exception as error:
            raise failure(site, declared, columns, len(columns.keys) - length_hint(keys) - 1, error) from error

    return loop


def _timed(site: LogicalSite, declared: Input[Any, Any], process: Process) -> Loop:
    """Return the loop of a task with timers or windows: those due before a record fire before it."""
    outputs, records_of, reach = site.outputs, decoder(declared), site.reach

    def loop(columns: RecordBatch) -> None:
        keys = iter(columns.keys)
        try:
            for record, at in zip(records_of(columns, keys), columns.logical, strict=False):
                reach(at[0] - 1)
                outputs.timestamp = record.timestamp
                outputs.at = at
                if (returned := process(record)) is not None:
                    refuse_return("process", returned)
        except Exception as error:
            raise failure(site, declared, columns, len(columns.keys) - length_hint(keys) - 1, error) from error

    return loop


def _batches(site: LogicalSite, declared: Input[Any, Any], process: Process) -> Loop:
    """Return the loop, of one turn, of a source with process_batch: its decisions say where a batch begins."""
    outputs, records_of, reach = site.outputs, decoder(declared), site.reach

    def loop(columns: RecordBatch) -> None:
        keys = iter(columns.keys)
        outputs.timestamp = max(columns.timestamps)
        reach(columns.logical[0][0] - 1)
        outputs.at = columns.logical[-1]
        try:
            records = list(records_of(columns, keys))
        except Exception as error:
            raise failure(site, declared, columns, len(columns.keys) - length_hint(keys) - 1, error) from error
        try:
            if (returned := process(records)) is not None:
                refuse_return("process_batch", returned)
        except Exception as error:
            raise failure(site, declared, columns, None, error) from error

    return loop


def _guarded(site: LogicalSite, declared: Input[Any, Any], process: Process, method: str = "process") -> Loop:
    """Return the loop of an input with a dead-letter topic: a record that fails leaves nothing but its letter."""
    overlay, outputs, reach = site.overlay, site.outputs, site.reach
    topic, (key_of, value_of) = declared.topic.name, decoders(declared)
    write = letter_writer(site, declared)

    def loop(columns: RecordBatch) -> None:
        cells = repeat(None) if columns.headers is None else columns.headers
        partition = columns.source.partition
        rows = zip(columns.keys, columns.values, columns.timestamps, cells, columns.logical, strict=False)
        for index, (key, value, timestamp, cell, at) in enumerate(rows):
            reach(at[0] - 1)
            outputs.timestamp = timestamp
            outputs.at = at
            mark(site)
            try:
                offset = columns.offset_at(index)
                record = Record(key_of(key), value_of(value), timestamp, headers_of(cell), topic, partition, offset)
                if (returned := process(record)) is not None:
                    refuse_return(method, returned)
            except Exception as error:  # noqa: BLE001  # ours are raised again by write
                undo(site)
                write(columns, index, error)
            else:
                overlay.end_undo()

    return loop
