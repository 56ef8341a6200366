"""Mistakes with what is around a task: claims left out, errors passed over; write batches, logs and sinks misused."""

from typing import Any

from grete.core import actions as do
from grete.core import events as on
from grete.core.aligned.task import TaskCore
from grete.core.lifecycle import StartupPhase
from grete.core.startup import OwnClaim, StartUp
from grete.errors import Halted, TransientError
from grete.execution.engine.aligned_mode import AlignedMode
from grete.execution.engine.driver import TaskDriver
from grete.execution.sinks.outbox import Outbox
from grete.logs.memory import MemoryLog
from grete.ports import LogRow
from grete.protocol.changelog import ChangelogType, decode_changelog_header, decode_data
from grete.protocol.envelope import decode_header
from grete.protocol.ids import TopicPartition
from grete.stores.overlay.overlay_store import OverlayStore
from tests.verification.simulation.boundary import name_of
from tests.verification.simulation.mutants.registry import busier, full_of, mutant
from tests.verification.simulation.plan import Plan


def _aligned(plan: Plan) -> bool:
    return plan.aligned and bool(plan.topology.streams)


def _sends(action: object, call: str) -> bool:
    return isinstance(action, do.Send | do.AppendChangelog) and name_of(action.value) == call


@mutant(StartUp, "end", "ownership", "generation")
def claim_left_out(end: Any) -> Any:
    """A process that finds its task claimed goes on as that generation, without a claim of its own (C1)."""

    def mistaken(self: StartUp, event: on.ChangelogEnd) -> Any:
        if self.phase is not StartupPhase.READING or self.fold.last is None or self.fold.top == 0:
            return end(self, event)
        ownership = self.ownership
        ownership.generation, ownership.next_seq = self.fold.top, max(0, self.fold._open.last_seq(0)) + 1
        self._own, self.phase = OwnClaim(self.fold.next_offset - 1, 0), StartupPhase.VERIFYING
        return self._finish()

    return mistaken


@mutant(TaskDriver, "_perform_next", "halted", "lost", shows=_aligned)
def marker_resent_only_if_last(perform_next: Any) -> Any:
    """A restart says nothing in a partition that already ends with a marker of its own (the design document's rule)."""

    def mistaken(self: TaskDriver) -> bool:
        action = self.parts.todo[0]
        if (
            isinstance(action, do.Send)
            and _sends(action, "send rollback marker")
            and self.parts.io.log.bounds(action.partition)[1]
        ):
            start, end = self.parts.io.log.bounds(action.partition)
            last = self.parts.io.log.read(action.partition, end - 1, 1)[0].value if end > start else None
            if last and name_of(last) == "send marker" and decode_header(last).producer == self.wiring.producer:
                self.parts.todo.popleft()
                self.parts.sends.pending.sent(action.token, 0, self.parts.io.mono_ms())
                self.parts.sends.pending.delivered(action.token)
                self.parts.tell(on.Acked(self.parts.sends.pending.delivered_up_to))
                return True
        return bool(perform_next(self))

    return mistaken


@mutant(TaskDriver, "_perform_next", "halted", "lost", shows=_aligned, focus=full_of("disk full"))
def failed_send_ignored(perform_next: Any) -> Any:
    """A send that failed counts as one that was acknowledged (A7)."""

    def mistaken(self: TaskDriver) -> bool:
        action = self.parts.todo[0]
        try:
            return bool(perform_next(self))
        except TransientError:
            if not (isinstance(action, do.Send) and _sends(action, "send frame")):
                raise
            self.parts.sends.pending.delivered(action.token)
            self.parts.tell(on.Acked(self.parts.sends.pending.delivered_up_to))
            return True

    return mistaken


@mutant(AlignedMode, "perform", "error", "seq", shows=lambda plan: plan.gathers)
def gathered_outlive_their_checkpoint(perform: Any) -> Any:
    """Outputs that wait for more leave behind the freeze, with the next checkpoint (A8)."""

    def mistaken(self: AlignedMode, action: do.Action) -> bool:
        if isinstance(action, do.FlushOutputs) and self._frames.hold(self._parts.io.mono_ms()):
            self._parts.tell(on.OutputFrames([], None))
            return True
        return bool(perform(self, action))

    return mistaken


@mutant(OverlayStore, "freeze", "uncommitted", "store", "restore")
def frozen_batch_shared(freeze: Any) -> Any:
    """The frozen write batch and the open one are the same object.

    So later writes change a checkpoint that is closed (A8).
    """

    def mistaken(self: OverlayStore) -> None:
        freeze(self)
        self._open = self._frozen

    return mistaken


@mutant(TaskCore, "_output_frames", "checkpoint")
def checkpoint_id_by_boundary(output_frames: Any) -> Any:
    """Records carry the next boundary of the clock, not the checkpoint after the last one (A1)."""

    def mistaken(self: TaskCore, event: Any) -> Any:
        if self._flushing is not None or not self.closing.by_timer:
            return output_frames(self, event)
        frozen = self.frozen
        boundary = self.closing.clock.boundary(self._mono_ms)
        self.frozen = max(frozen, boundary + self.limits.checkpoint_interval_ms - 1)
        try:
            return output_frames(self, event)
        finally:
            self.frozen = frozen

    return mistaken


@mutant(OverlayStore, "is_frozen", "restore", "store", shows=lambda plan: plan.keys > 1)
def tombstone_rewritten_over(is_frozen: Any) -> Any:
    """The rewrite brings back a key that the checkpoint has deleted (K2)."""

    def mistaken(self: OverlayStore, key: bytes) -> bool:
        return bool(is_frozen(self, key)) and (self._frozen or {}).get(key) is not None

    return mistaken


@mutant(MemoryLog, "read", "halted", "restore")
def changelog_compacted(read: Any) -> Any:
    """The broker compacts the changelog: only the last message with a key stays, committed or not (K1)."""

    def mistaken(self: MemoryLog, partition: TopicPartition, offset: int, max_bytes: int) -> list[LogRow]:
        is_changelog = partition.topic.endswith(".changelog")
        rows: list[LogRow] = read(self, partition, offset, 1 << 30 if is_changelog else max_bytes)
        if not is_changelog:
            return rows
        kept, later = list[LogRow](), set[tuple[int, bytes]]()
        for row in reversed(rows):
            value = row.value or b""
            if decode_changelog_header(value).type is ChangelogType.DATA:
                data = decode_data(value)
                keys = set(zip(data.stores, data.keys, strict=True))
                if keys <= later:
                    continue
                later |= keys
            kept.append(row)
        return kept[::-1]

    return mistaken


@mutant(
    TaskDriver,
    "_perform_next",
    "ownership",
    "revert",
    "one commit",
    "order",
    "recorder",
    "marker",
    "restore",
    "rollback marker",
    "uncommitted",
    "store",
    "generation",
    shows=lambda plan: plan.compare_and_append,
    focus=busier,
)
def commit_not_synced(perform_next: Any) -> Any:
    """A commit is acknowledged before it would survive a power loss (port contract 2)."""

    def mistaken(self: TaskDriver) -> bool:
        send = self.parts.io.log.send

        def unsynced(*args: Any, **options: Any) -> None:
            send(*args, **(options | {"sync": False}))

        self.parts.io.log.send = unsynced
        try:
            return bool(perform_next(self))
        finally:
            del self.parts.io.log.send

    return mistaken


@mutant(Outbox, "close_checkpoint", "sink", shows=lambda plan: bool(plan.files))
def outbox_before_commit(close_checkpoint: Any) -> Any:
    """The outbox applies a checkpoint when it is closed, not when its commit is valid (S2)."""

    def mistaken(self: Outbox, checkpoint_id: int) -> None:
        close_checkpoint(self, checkpoint_id)
        self.committed()

    return mistaken


@mutant(Outbox, "reload", "liveness", shows=lambda plan: bool(plan.files), focus=busier)
def outbox_forgotten(reload: Any) -> Any:
    """A restart does not apply what the outbox still holds (S2)."""

    def mistaken(self: Outbox, outputs: Any) -> None:
        reload(self, outputs)
        self._pending.committed.clear()
        self._pending.committed_bytes = 0

    return mistaken


@mutant(
    StartUp,
    "begin",
    "one commit",
    "ownership",
    "generation",
    "rollback marker",
    "revert",
    "order",
    shows=lambda plan: plan.aligned,
    focus=full_of("crash", "truncated changelog", damaged=True),
)
def lost_log_overlooked(begin: Any) -> Any:
    """A store that points beyond the end of its changelog is wiped, as if it were another's (decision 0011)."""

    def mistaken(self: StartUp, event: on.Start) -> Any:
        try:
            return begin(self, event)
        except Halted:
            return self._probe()

    return mistaken
