"""Sends a task's records for topics outside of the job, and its changelog messages. Not in deterministic mode."""

from collections.abc import Sequence

from grete.core.actions import AppendChangelog
from grete.execution.engine.pending_sends import CHANGELOG
from grete.execution.engine.task_parts import TaskParts
from grete.execution.limits import GATHERED_BATCH_PARTS, GATHERED_MS_MAX, GATHERED_PARTS, GATHERED_ROWS
from grete.execution.timing.timers import NEVER
from grete.ports import ExternalRecord, LogRow
from grete.protocol.ids import TopicPartition


class OpenFrames:
    """Tells when the open frames of a task leave: exactly once, what leaves between two checkpoints may gather.

    Its outputs count with their checkpoint, which closes them in any case. A message for each record would cost the
    log and the task behind more than the record does. A task that is behind has much input at a time, and waits for
    nothing.
    """

    def __init__(self, parts: TaskParts, *, gathers: bool) -> None:
        """``gathers``: False leaves nothing waiting."""
        settings = parts.io.settings
        self._runner, self._event_time = parts.runner, parts.inputs.event_time
        gathers = gathers and bool(parts.wiring.outputs) and settings.processing_guarantee == "exactly-once"
        pace_ms = min(GATHERED_MS_MAX, settings.checkpoint_interval_ms / GATHERED_PARTS)
        self._pace_ms = pace_ms if gathers else 0.0
        self._bytes_max = settings.batch_bytes_max // GATHERED_BATCH_PARTS
        self._rows = self._bytes = 0
        self._due_ms: float = NEVER

    def took(self, rows: Sequence[LogRow], now_ms: float) -> None:
        """Note rows of a topic that the code has processed."""
        self._rows += len(rows)
        if self._rows < GATHERED_ROWS:
            self._bytes += sum(len(row.value or b"") for row in rows)
        self._begin(now_ms)

    def took_frame(self, size: int, now_ms: float) -> None:
        """Note a frame of ``size`` bytes that the code has processed."""
        self._bytes += size
        self._begin(now_ms)

    def _begin(self, now_ms: float) -> None:
        if self._due_ms == NEVER:
            self._due_ms = now_ms + self._pace_ms

    def hold(self, now_ms: float) -> bool:
        """Tell whether what has gathered may wait for more."""
        few = self._rows < GATHERED_ROWS and self._bytes < self._bytes_max
        return few and now_ms < self._due_ms < NEVER and not self._event_time.told_idle

    def due_in_ms(self, now_ms: float) -> float:
        """Return in how many ms they leave; 0: nothing waits."""
        return max(0.0, self._due_ms - now_ms) if self.hold(now_ms) else 0.0

    def hurry(self) -> None:
        """Let nothing wait from now on: the task stops."""
        self._pace_ms, self._due_ms = 0.0, NEVER

    def take(self) -> list[tuple[TopicPartition, int, bytes]]:
        """Return and forget the frames, (partition, records, body): they leave now."""
        self._rows = self._bytes = 0
        self._due_ms = NEVER
        if frames := self._runner.take_frames():
            self._event_time.sent()
        return frames


class AlignedOutputs:
    """The outputs of one task. ``held``: records for topics outside wait for their checkpoint."""

    def __init__(self, parts: TaskParts, *, held: bool) -> None:
        self._parts, self._holds = parts, held
        self._held: list[ExternalRecord] = []  # for the checkpoint being committed (S1)

    def append_changelog(self, action: AppendChangelog) -> None:
        """Append a message to the changelog; a commit with what was held back for it."""
        parts = self._parts
        outputs, self._held = (self._held, []) if action.with_outputs else ((), self._held)
        parts.sends.pending.sent_other(CHANGELOG, parts.io.mono_ms())
        parts.io.log.send(
            parts.owner,
            CHANGELOG,
            parts.wiring.changelog,
            action.value,
            fence=action.generation,
            sync=True,
            outputs=outputs,
        )

    def froze(self) -> None:
        """Assign the records that a sink has collected so far to the checkpoint just frozen (A8)."""
        if self._holds:
            assert not self._held, f"{len(self._held)} outputs of the commit before have not left with it"
            self._held = self._parts.runner.take_external()
        else:
            self.produce()

    def produce(self) -> None:
        """Send what was collected for topics outside of the job (at least once)."""
        parts, runner = self._parts, self._parts.runner
        held = runner.external_bytes
        if records := runner.take_external():
            token = parts.sends.pending.produced(held - runner.external_bytes, parts.io.mono_ms())
            parts.io.log.produce(parts.owner, token, records)
            parts.sends.urgent = True
