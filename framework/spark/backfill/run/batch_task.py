"""One task over its history in batch: the live task's own processor and overlay, without a log and without checkpoints.

All of the history is one checkpoint. What the live task keeps beside the user's stores (pins, event time, turns,
timers, the outbox) comes out of the same code, so a live task that takes over finds what it would have made itself.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from grete.api.jobs.graph import RESERVED_STORES
from grete.batch.engine import Sent, begun, left, processed
from grete.batch.history_task import HistoryTask
from grete.batch.passes import HISTORY_ALONE, LiveTime
from grete.batch.record_order import Piece, merged
from grete.batch.temporary_store import Scratch
from grete.execution.build import store_names
from grete.execution.timing.reserved_stores import META
from grete.stores.overlay.expiring_store import horizon

StateRow = tuple[int, bytes, bytes]  # store id, key, value

_CHUNK_KEYS = 10_000  # read at once: bounds memory, and the calls cost little beside it


class BatchTask:
    """One task of a job. ``run`` once, then ``finish``, then ``state``, then ``close``."""

    def __init__(self, task: HistoryTask) -> None:
        """The setting uncommitted_state_bytes_max bounds the state in memory; beyond, it goes to a temporary RocksDB.

        Raises TaskError if the task's ``init`` fails.
        """
        self._task = task
        self._bytes_max = task.settings.uncommitted_state_bytes_max
        self._store = Scratch(store_names(task.job_task.stage), task.settings.rocksdb_bytes)
        self._overlay = task.overlay(self._store)
        self._pass = begun(task, self._overlay)
        self._done = False

    @property
    def records(self) -> int:
        """Return the number of records processed."""
        return self._pass.records.total()

    @property
    def refused(self) -> int:
        """Return the number of rows that could not be read as records."""
        return self._pass.refused

    @property
    def failed(self) -> int:
        """Return the number of records, timers and windows that were dropped because processing failed."""
        return self._pass.processor.dropped["failed"]

    def run(self, pieces: Iterable[Piece]) -> Iterator[Sent]:
        """Process all of the history; yield what is sent, as it comes. Raises TaskError.

        ``pieces``: of all channels, sorted; each channel from its beginning.
        """
        channels, topics = self._task.channels, self._task.job_task.stage.topics_read_first()
        first = {number for (_, source), number in channels.items() if number < 0 and source.topic in topics}
        for piece in merged(pieces, len(channels), first):
            yield from processed(self._pass, piece)
            if self._overlay.open_bytes > self._bytes_max:
                self._make_room()

    def finish(self, live: LiveTime = HISTORY_ALONE) -> Iterator[Sent]:
        """End the history; yield what is still sent. Raises TaskError.

        Event time stays where the inputs are, since they go on live. Inputs without any record are idle. ``live``: a
        live task was here.
        """
        self._pass.end(live)
        yield from left(self._pass)
        self._done = True

    @property
    def dropped(self) -> int:
        """Return the number of outputs to topics that were not kept."""
        return self._pass.dropped

    def state(self, checkpoint_id: int, *, outbox: bool) -> Iterator[StateRow]:
        """Yield the state after all records, by store and key; ``outbox``: with what waits for files and tables."""
        assert self._done, "state: the history has not been processed to its end"
        self._pass.processor.before_freeze(checkpoint_id)
        self._pass.processor.close()
        self._overlay.freeze()
        expiring, least = self._task.job_task.stage.expiring_ids(), horizon(self._overlay.event_time)
        left_out = set() if outbox else {RESERVED_STORES["_outbox"]}
        if not self._store.used:
            rows = self._overlay.frozen_items()
            found = ((s, key, value) for s, key, value in rows if value is not None and s not in left_out)
            return (row for row in found if self._is_state(*row, expiring, least))
        self._apply()
        stores = sorted(set(self._overlay.store_ids) - left_out)
        return chain.from_iterable(
            (
                (store, key, value)
                for key, value in self._store.scan(store, b"", None)
                if self._is_state(store, key, value, expiring, least)
            )
            for store in stores
        )

    def _is_state(self, store: int, key: bytes, value: bytes, expiring: frozenset[int], least: bytes) -> bool:
        """Tell whether an entry is handed over: it has not expired, and is not only of this batch."""
        if store == META:
            return self._pass.is_state(key)
        return store not in expiring or value >= least

    def close(self) -> None:
        """Delete what is on disk."""
        self._store.close()

    def _make_room(self) -> None:
        """Move the state out of memory, if it really is so large: ``open_bytes`` counts a key at each put."""
        self._overlay.recount()
        if self._overlay.open_bytes > self._bytes_max // 2:
            self._overlay.freeze()
            self._apply()

    def _apply(self) -> None:
        while not self._overlay.apply_chunk(b"", _CHUNK_KEYS):
            pass
