"""Mistakes where an aligned task reads what a deterministic one writes (A2b)."""

from typing import Any

from msgspec.structs import replace

from grete.core.aligned.deterministic_channel import LogicalChannel
from grete.core.aligned.inputs import Inputs
from grete.core.aligned.task import TaskCore
from grete.core.deterministic.source import Source
from grete.core.events import DataWritten
from grete.protocol.envelope import HEADER_SIZE
from grete.protocol.frames import last_logical
from tests.verification.simulation.mutants.registry import busier, full_of, mutant
from tests.verification.simulation.plan import Plan

_killed = full_of("crash", "crash at a boundary", "crash of several", "zombie")


def _between(plan: Plan) -> bool:
    """Tell whether an aligned task has producers of both modes: it closes by markers, and may roll back."""
    return any(0 < len(w.logical) < len({producer for producer, _ in w.channels}) for w in plan.wirings.values())


def _ties(plan: Plan) -> bool:
    """Tell whether a deterministic task that aligned ones read may send several records of one time, one by one."""
    read = {producer for w in plan.wirings.values() for producer in w.logical}
    return plan.timers and any(plan.wirings[producer].channels for producer in read)


@mutant(LogicalChannel, "frame", "duplicate", "seq", "rolled back", "exactly once", focus=_killed, world="mixed")
def made_again_taken_again(frame: Any) -> Any:
    """Records that a deterministic producer makes again after a restart are processed again (D3)."""

    def mistaken(self: LogicalChannel, offset: int, header: Any, value: bytes) -> int | None:
        self.taken = min(self.taken, header.seq - 1)
        self.generation = header.generation
        known: int | None = frame(self, offset, header, value)
        return known

    return mistaken


@mutant(LogicalChannel, "reset", "seq", "lost", "rolled back", "resume", shows=_between, focus=busier, world="mixed")
def kept_on_rollback(reset: Any) -> Any:
    """A rollback drops the write batch, but the task keeps its positions in deterministic channels (R4).

    It still holds that their records are in the batch.
    """
    return lambda self, seq, frontiers: reset(self, max(seq, self.taken), frontiers)


@mutant(TaskCore, "step", "seq", "resume", "digest", "frontier", "lost", focus=busier, world="mixed")
def seqs_of_the_open_checkpoint(step: Any) -> Any:
    """A commit says how far deterministic producers are in the open write batch, not in the frozen one (A7)."""

    def mistaken(self: TaskCore, event: Any) -> Any:
        pending = self.commits.pending
        if isinstance(event, DataWritten) and self.inputs.logical and pending is not None:
            inputs = pending.frozen.inputs
            moved = (replace(i, channels=tuple(_moved(self.inputs, i, c) for c in i.channels)) for i in inputs)
            pending.frozen = pending.frozen._replace(inputs=tuple(moved))
        return step(self, event)

    return mistaken


def _moved(inputs: Inputs, entry: Any, channel: Any) -> Any:
    found = [c for c in inputs.logical.values() if (c.producer, c.partition) == (channel.producer, _of(entry))]
    return replace(channel, seq=found[0].taken) if found else channel


def _of(entry: Any) -> tuple[str, int]:
    return entry.topic, entry.partition


@mutant(LogicalChannel, "frame", "frontier", shows=_ties, focus=busier, world="mixed")
def last_record_ends_its_time(frame: Any) -> Any:
    """A record of some time is taken to be the last of that time, without a progress message (D1)."""

    def mistaken(self: LogicalChannel, offset: int, header: Any, value: bytes) -> int | None:
        known: int | None = frame(self, offset, header, value)
        if known is not None:
            self.upto = max(self.upto, last_logical(value[HEADER_SIZE:])[0])
        return known

    return mistaken


@mutant(
    Source,
    "done",
    *("again", "prefix", "decision", "duplicate", "rolled back", "halted", "exactly once", "time"),
    focus=_killed,
    world="mixed",
)
def in_doubt_goes_to_aligned_tasks(done: Any) -> Any:
    """Outputs of a deterministic source go to aligned tasks before its input decision is in the log (D2)."""

    def mistaken(self: Source) -> Any:
        self.logged_are_valid()
        return done(self)

    return mistaken


@mutant(Inputs, "frontiers", "digest", "halted", focus=_killed, world="mixed")
def digest_of_the_start(frontiers: Any) -> Any:
    """A commit carries the digest with which the process began, not that of what was taken since (D3)."""

    def mistaken(self: Inputs) -> Any:
        found = frontiers(self)
        if found is None:
            return None
        began = (channel._digest for channel in self.logical.values())
        return replace(
            found, frontiers=tuple(replace(f, digest=d) for f, d in zip(found.frontiers, began, strict=True))
        )

    return mistaken


@mutant(Inputs, "least_marker", "liveness", shows=_between, world="mixed")
def alignment_over_all_channels(_least_marker: Any) -> Any:
    """The alignment waits for markers of deterministic producers, too, which never come (A6)."""
    return lambda self: 0 if self.logical else min(channel.marker for channel in self.channels.values())


@mutant(TaskCore, "_freeze", "trim", "resume", focus=_killed, world="mixed")
def resumed_one_too_far(freeze: Any) -> Any:
    """A stream of a deterministic producer is resumed one message behind what is included (A7, K3)."""

    def mistaken(self: TaskCore, checkpoint_id: int) -> Any:
        actions = freeze(self, checkpoint_id)
        pending = self.commits.pending
        assert pending is not None
        logical = {partition for _, partition in self.inputs.logical}
        resumed = tuple(
            replace(i, resume=i.resume + 1) if (i.topic, i.partition) in logical and i.resume else i
            for i in pending.frozen.inputs
        )
        pending.frozen = pending.frozen._replace(inputs=resumed)
        return actions

    return mistaken
