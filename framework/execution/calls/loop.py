"""The loop over the records of an input with ``async def process``: it lines them up; each has its turn later."""

from collections.abc import Callable
from typing import Any

from grete.api.record import Record
from grete.api.topics.topic import Input
from grete.execution.calls.flight import RecordInFlight, Records
from grete.execution.records.decoding import decoders, headers_of
from grete.execution.task_code.failures import refuser
from grete.execution.task_code.process_loops import Loop
from grete.execution.task_code.site import Site
from grete.protocol.record_batch import RecordBatch
from grete.stores.overlay.overlay import Overlay


def awaiting_loop(site: Site, declared: Input[Any, Any], process: Callable[[Any], Any], records: Records) -> Loop:
    """Return the loop. ``process`` is the async function of the task."""
    topic, (key_of, value_of) = declared.topic.name, decoders(declared.topic)
    refuse, sets_aside = refuser(site, declared), declared.errors != "fail"

    def line_up(batch: RecordBatch, index: int) -> None:
        key, value, timestamp = batch.keys[index], batch.values[index], batch.timestamps[index]
        cell = None if batch.headers is None else batch.headers[index]
        offset, partition = batch.offset_at(index), batch.source.partition

        def begin() -> Any:
            record = key_of(key, cell), value_of(value, cell), timestamp, headers_of(cell), topic, partition, offset
            return process(Record(*record))

        def place() -> Callable[[], None]:
            site.outputs.timestamp = timestamp
            return _nothing if site.clock is None else site.clock.at(batch, index)

        def turn(record: RecordInFlight) -> None:
            place()
            site.reading.begin(iter(()))  # something goes on
            records.reached[batch.source] = offset + 1
            if sets_aside:
                site.mark()
            try:
                _take_effect(record, records, site.overlay)
            except Exception as error:  # noqa: BLE001  # ours are raised again by refuse
                if sets_aside:
                    site.undo()
                refuse(batch, index, error)
            else:
                if sets_aside:
                    site.keep()
                site.advance(timestamp)

        records.add(RecordInFlight(turn, begin, key, place))

    def loop(batch: RecordBatch) -> None:
        for index in range(len(batch.keys)):
            line_up(batch, index)

    return loop


def _nothing() -> None:
    """Do nothing."""


def _take_effect(record: RecordInFlight, records: Records, overlay: Overlay) -> None:
    """Do what the record has done. Raises its error."""
    if record.effects.error is not None:
        raise record.effects.error
    for (store_id, key), value in record.effects.writes.items():
        store = overlay.store(store_id)
        records.changed((store_id, key))
        if value is not None:
            store.put(key, value)
        elif store.get(key) is not None:  # else a tombstone would go to the changelog for nothing
            store.delete(key)
    for do in record.effects.later:
        do()
