"""One task over its history in batch: the live task's own processor and overlay, without a log and without checkpoints.

All of the history is one checkpoint. What the live task keeps beside the user's stores (pins, event time, turns,
timers, the outbox) comes out of the same code, so a live task that takes over finds what it would have made itself.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from grete.api.jobs.graph import RESERVED_STORES, StageGraph
from grete.api.jobs.job import Job
from grete.batch.channels import channels_of
from grete.batch.frames import Frame
from grete.batch.logical_order import LogicalOrder
from grete.batch.no_calls import NoCalls
from grete.batch.passes import HISTORY_ALONE, AlignedPass, LiveTime, LogicalPass, Pass
from grete.batch.record_order import Piece, merged
from grete.batch.temporary_store import Scratch
from grete.execution.build import store_names
from grete.execution.calls.ports import Caller
from grete.execution.calls.shared import shared_calls
from grete.execution.job_task import JobTask
from grete.execution.limits import CALLS_MS
from grete.execution.records.outputs import Outputs
from grete.execution.sinks.outbox import Outbox
from grete.execution.sinks.sink_targets import no_sinks
from grete.execution.task_code.processor import Processor
from grete.execution.timing.reserved_stores import META, OUTBOX
from grete.ports import ExternalRecord
from grete.settings import Settings
from grete.stores.overlay.expiring_store import horizon
from grete.stores.overlay.overlay import Overlay

StateRow = tuple[int, bytes, bytes]  # store id, key, value

_CHUNK_KEYS = 10_000  # read at once: bounds memory, and the calls cost little beside it
_ALL_HISTORY = LogicalOrder()


class BatchTask:
    """Task (stage, partition) of a job. ``run`` once, then ``finish``, then ``state``, then ``close``."""

    def __init__(
        self,
        job: Job,
        stage: StageGraph,
        partition: int,
        settings: Settings,
        outside: Mapping[str, int],
        *,
        outputs: bool = True,
        order: LogicalOrder = _ALL_HISTORY,
        is_recorded: bool = True,
        makes_calls: bool = True,
    ) -> None:
        """``outside``: partition counts of the topics that the job writes; without ``outputs``, only letters go there.

        ``settings.uncommitted_state_bytes_max`` bounds the state in memory; beyond, it goes to a temporary RocksDB.
        Deterministic mode: ``order`` has given the pieces their times; unless ``is_recorded``, live ones had others.
        Unless ``makes_calls``, the results of all calls must be recorded.
        """
        names = store_names(stage)
        self._stage = stage
        self._bytes_max = settings.uncommitted_state_bytes_max
        self._store = Scratch(names, settings.rocksdb_bytes)
        self._overlay = Overlay(
            self._store,
            list(names),
            uncommitted_state_bytes_max=2 * self._bytes_max,
            read_cache_bytes_max=settings.read_cache_bytes_max,
        )
        self._pass: Pass
        caller: Caller | None = None
        if stage.awaits:
            caller = shared_calls() if makes_calls else NoCalls(stage.name)
        if stage.mode == "deterministic":
            self._pass = by_time = LogicalPass(
                job,
                stage,
                partition,
                self._overlay,
                settings,
                outside,
                outputs=outputs,
                order=order,
                is_recorded=is_recorded,
                caller=caller,
            )
            self._outputs = by_time.outputs
        else:
            topology = job.topology()
            self._outputs = Outputs(stage, topology, settings, outside.get, drop_external=not outputs)
            task = JobTask(stage, topology, partition)
            outbox = Outbox(task.owner, self._overlay.store(OUTBOX), settings, sinks=no_sinks)
            processor = Processor(task, self._overlay, self._outputs, outbox, caller=caller)
            self._pass = AlignedPass(job, stage, partition, processor, settings.batch_bytes_max, order.until_us)
        self._processor = self._pass.processor
        channels, first = channels_of(job.topology(), stage.ordinal, partition), stage.topics_read_first()
        self._channels = len(channels)
        self._first = {number for (_, source), number in channels.items() if number < 0 and source.topic in first}
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
        return self._processor.dropped["failed"]

    def run(self, pieces: Iterable[Piece]) -> Iterator[list[Frame] | list[ExternalRecord]]:
        """Process all of the history; yield what is sent, as it comes. Raises TaskError.

        ``pieces``: of all channels, sorted; each channel from its beginning.
        """
        self._processor.reset()
        for piece in merged(pieces, self._channels, self._first):
            self._pass.take(piece)
            self._wait_for_calls(until_none=False)
            self._processor.requests.forget()  # all of the history is one checkpoint
            if self._overlay.open_bytes > self._bytes_max:
                self._make_room()
            yield from self._sent(tell=False)

    def finish(self, live: LiveTime = HISTORY_ALONE) -> Iterator[list[Frame] | list[ExternalRecord]]:
        """End the history; yield what is still sent. Raises TaskError.

        Event time stays where the inputs are, since they go on live. Inputs without any record are idle. ``live``: a
        live task was here.
        """
        self._pass.end(live)
        self._wait_for_calls(until_none=True)
        yield from self._sent(tell=True)
        self._done = True

    def _wait_for_calls(self, *, until_none: bool) -> None:
        """Let records in flight have their turns: until there is room for more, or until there are none."""
        in_flight = self._processor.in_flight
        while in_flight is not None and (in_flight.count if until_none else in_flight.full):
            if not in_flight.work():
                time.sleep(CALLS_MS / 1000)

    def _sent(self, *, tell: bool) -> Iterator[list[Frame] | list[ExternalRecord]]:
        if frames := self._pass.frames(tell=tell):
            yield frames
        if external := self._pass.external():
            yield external

    @property
    def dropped(self) -> int:
        """Return the number of outputs to topics that were not kept."""
        return self._outputs.dropped

    def state(self, checkpoint_id: int, *, outbox: bool) -> Iterator[StateRow]:
        """Yield the state after all records, by store and key; ``outbox``: with what waits for files and tables."""
        assert self._done, "state: the history has not been processed to its end"
        self._processor.before_freeze(checkpoint_id)
        self._processor.close()
        self._overlay.freeze()
        expiring, least = self._stage.expiring_ids(), horizon(self._overlay.event_time)
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
