"""Mistakes about event time in deterministic mode: where it is told, merged, kept and logged (E1, E2, E4)."""

from typing import Any

from grete.core.actions import MergedWatermarks, ProcessIdle
from grete.core.deterministic.logical_watermarks import ReceivedWatermarks
from grete.core.deterministic.merge import Merge
from grete.core.deterministic.outputs import LogicalSender
from grete.core.deterministic.source import Batch
from grete.core.deterministic.task import DeterministicCore
from grete.core.events import InputIdle
from grete.execution.deterministic.announced_time import AnnouncedTime
from grete.execution.timing.event_time import EventTime
from grete.protocol.notes import IdleNote
from tests.verification.simulation.mutants.registry import full_of, mutant
from tests.verification.simulation.plan import Plan, with_settings

_WRONG = ("again", "prefix", "halted", "time", "event time", "exactly once", "frontier", "store")


def _timed(plan: Plan) -> bool:
    return plan.timers and bool(plan.topology.streams)


def _merges(plan: Plan) -> bool:
    return plan.timers and any(len(wiring.channels) > 1 for wiring in plan.wirings.values())


def _killed(plan: Plan) -> Plan:
    """Inputs that are often idle, under tasks that are often killed."""
    quiet = with_settings(plan, event_time_idle_ms=plan.settings.checkpoint_interval_ms // 4)
    return full_of("crash", "crash at a boundary", "crash of several", "zombie")(quiet)


@mutant(DeterministicCore, "_decide", *_WRONG, "decision", "lease", shows=_timed, focus=_killed, world="deterministic")
def idleness_not_logged(decide: Any) -> Any:
    """A source goes by its clock: a successor does not know when an input was idle (E4)."""

    def mistaken(self: DeterministicCore, event: Any) -> Any:
        if not isinstance(event, InputIdle):
            return decide(self, event)
        self._mono_us, self.processing.active = event.mono_us, True
        note = IdleNote(*event.partition, self.time.give(1, event.mono_us))
        self.source.batches.append(Batch(note, logged=True, valid=True))
        return [ProcessIdle(event.partition, note.t)]

    return mistaken


@mutant(EventTime, "save", *_WRONG, shows=_timed, focus=_killed, world="deterministic")
def idleness_not_kept(save: Any) -> Any:
    """A commit takes the note with it, but the state does not say that the input is idle (E4)."""

    def mistaken(self: EventTime) -> Any:
        logged, self._logged = self._logged, False
        yield from list(save(self))
        self._logged = logged

    return mistaken


@mutant(Merge, "take", *_WRONG, shows=_merges, world="deterministic")
def watermark_before_the_records_of_its_time(take: Any) -> Any:
    """A watermark is applied before the records that come before it in the merged order (E2)."""

    def mistaken(self: Merge) -> Any:
        taken, upto = take(self)
        return sorted(taken, key=lambda each: not isinstance(each, MergedWatermarks)), upto

    return mistaken


@mutant(Merge, "commit", *_WRONG, "resume", shows=_merges, focus=_killed, world="deterministic")
def watermark_lost_over_a_restart(commit: Any) -> Any:
    """A commit says that all up to a time is processed, though a watermark of it still waits (D3)."""

    def mistaken(self: Merge, checkpoint_id: int) -> Any:
        waiting = [channel.watermarks for channel in self.channels]
        for channel in self.channels:
            channel.watermarks = ReceivedWatermarks()
        found = commit(self, checkpoint_id)
        for channel, watermarks in zip(self.channels, waiting, strict=True):
            channel.watermarks = watermarks
        return found

    return mistaken


@mutant(AnnouncedTime, "load", *_WRONG, shows=_timed, focus=_killed, world="deterministic")
def told_time_forgotten(load: Any) -> Any:
    """A successor does not know what was told, and when the next is due (E2)."""
    return lambda self, get: load(self, lambda key: None)


@mutant(LogicalSender, "send", *_WRONG, shows=_timed, world="deterministic")
def watermark_behind_the_frame_that_passes_it(send: Any) -> Any:
    """A consumer that merges learns of a watermark only when its time may have passed (E2)."""

    def mistaken(self: LogicalSender, event: Any, checkpoint_id: int) -> Any:
        self._others, self._merged = [*self._others, *self._merged], []
        return send(self, event, checkpoint_id)

    return mistaken
