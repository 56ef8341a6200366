"""Mistakes about event time: what a watermark says, where it is, and what becomes of it (E1 to E4)."""

from dataclasses import replace
from typing import Any

from grete.core.aligned.early_buffer import EarlyFrame
from grete.core.aligned.inputs import Inputs
from grete.core.aligned.task import TaskCore
from grete.execution.timing.event_time import BEFORE_ALL, EventTime
from grete.execution.timing.timers import TimerQueue
from grete.stores.overlay.expiring_store import ExpiringStore
from tests.verification.simulation.forms import with_wall_timers
from tests.verification.simulation.mutants.registry import mutant
from tests.verification.simulation.plan import NEVER_IDLE_MS, Plan, with_settings


def _timed(plan: Plan) -> bool:
    return plan.aligned and plan.timers and bool(plan.topology.streams)


def _uneven(plan: Plan) -> Plan:
    """Inputs that are often idle, so that time depends on who is."""
    return with_settings(plan, event_time_idle_ms=plan.settings.checkpoint_interval_ms // 10)


def _expires(plan: Plan) -> Plan:
    """Many small rounds of the rewrite, in worlds whose tasks have a store with ttl_ms."""
    knobs = replace(plan.knobs, rewrite_share=8.0, rewrite_idle_bytes=1)
    return replace(plan, joins=False, batches=frozenset(), expires=True, knobs=knobs)


def _never_idle(plan: Plan) -> Plan:
    return with_settings(plan, event_time_idle_ms=NEVER_IDLE_MS)


@mutant(Inputs, "watermark", "event time", "closure", "rolled back", shows=_timed, focus=_never_idle)
def watermark_early(watermark: Any) -> Any:
    """A watermark of a later checkpoint is applied at once: the records before it still wait (E3)."""

    def mistaken(self: Inputs, partition: Any, offset: int, header: Any, value: bytes, frozen: int) -> Any:
        found = watermark(self, partition, offset, header, value, frozen)
        if header.checkpoint_id > frozen + 1 and found is None and self.early.bytes:
            return self.include(EarlyFrame(0, partition, offset, header, 0, 0, len(value), value))
        return found

    return mistaken


@mutant(Inputs, "include", "rolled back", "event time", shows=_timed, focus=_uneven)
def watermark_not_rolled_back(include: Any) -> Any:
    """A watermark does not count as part of the open write batch.

    A rollback marker that takes it back leaves it there (R4).
    """

    def mistaken(self: Inputs, frame: EarlyFrame) -> Any:
        kept = dict(self.included)
        action = include(self, frame)
        if not frame.count:
            self.included = kept
        return action

    return mistaken


@mutant(EventTime, "load", "store", "event time", "uncommitted", shows=_timed, focus=_uneven)
def time_kept_on_rollback(load: Any) -> Any:
    """A rollback keeps what the sources had reached: time is ahead of the records that are read again (R4)."""

    def mistaken(self: EventTime, now: int, get: Any) -> None:
        kept, before = dict(self._reached), self.now
        load(self, now, get)
        self._reached = {source: max(kept[source], reached) for source, reached in self._reached.items()}
        self.now = max(self.now, before)

    return mistaken


@mutant(EventTime, "_least", "store", "event time", "uncommitted", shows=_timed)
def greatest_source_counts(least: Any) -> Any:
    """Time is the maximum over the sources, not the minimum: what it was before (E1)."""

    def mistaken(self: EventTime, besides: Any = None) -> int:
        return max((r for s, r in self._reached.items() if s != besides), default=BEFORE_ALL)

    return mistaken


@mutant(ExpiringStore, "put", "uncommitted", "store", "restore", shows=_timed, focus=_expires)
def expiry_ahead_of_the_checkpoint(put: Any) -> Any:
    """The rewrite deletes what has expired by the time of records behind the checkpoint that is being sent (0052)."""

    def mistaken(self: ExpiringStore, key: bytes, value: bytes) -> None:
        put(self, key, value)
        self._store._overlay.event_time = self._now()  # type: ignore[attr-defined]  # it is an Overlay

    return mistaken


@mutant(TimerQueue, "_is_ours", "uncommitted", "store", "restore", shows=_timed, focus=with_wall_timers)
def timers_of_both_clocks_in_each_queue(_: Any) -> Any:
    """A task that starts again takes all timers of its state for those of event time, and for the clock's (0059)."""
    return lambda self, raw: True


@mutant(EventTime, "begin", "store", "event time", "uncommitted", shows=_timed, focus=_uneven)
def idle_for_ever(begin: Any) -> Any:
    """A source that was idle is taken for finished: its next records do not hold time back again (E4)."""

    def mistaken(self: EventTime, source: Any) -> None:
        idle = set(self._idle)
        begin(self, source)
        self._idle = idle

    return mistaken


@mutant(TaskCore, "_output_frames", "event time", "store", "halted", shows=_timed, focus=_never_idle)
def watermark_before_frames(output_frames: Any) -> Any:
    """Event time is sent in front of the frames that led to it (E2)."""

    def mistaken(self: TaskCore, event: Any) -> Any:
        if event.watermark is None or not event.frames or self._flushing is not None:
            return output_frames(self, event)
        first = self.outputs.watermarks(event.watermark, self.frozen + 1)
        return [*first, *output_frames(self, type(event)(event.frames))]

    return mistaken
