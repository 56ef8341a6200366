"""Asks the producers of an aligned task to close their checkpoint, when the task holds much uncommitted data (A9).

Only a source can close a checkpoint early: the other tasks close theirs when all markers have come. With a long
interval, what a task holds until then could reach its bound, and the task would halt, or hold up its input.
"""

from grete.core.aligned.task import TaskCore
from grete.execution.engine.task_parts import TaskParts
from grete.execution.limits import CHECKPOINT_ASK_PARTS, SLOW_LOOK_MS


class CheckpointAsks:
    """Looks once a second what a task holds, and what the tasks behind it ask for. Correct without any answer."""

    def __init__(self, parts: TaskParts, core: TaskCore) -> None:
        self._parts, self._core = parts, core
        looks = core.aligned and parts.io.settings.checkpoint_interval_ms > SLOW_LOOK_MS
        self._due_ms = 0.0 if looks else float("inf")
        self._asked = 0

    def look(self, now_ms: float) -> int:
        """Return the last checkpoint that this task, or one behind it, has asked to have closed; 0: none."""
        parts = self._parts
        if now_ms >= self._due_ms and parts.ready:
            self._due_ms = now_ms + SLOW_LOOK_MS
            behind = parts.io.log.asked(parts.wiring.outputs) if parts.wiring.outputs else 0
            self._asked = max(self._asked, behind, self._core.frozen + 1 if self._holds_much else 0)
        return self._asked

    @property
    def _holds_much(self) -> bool:
        """Whether changes of state, outputs or early records are a good part of their bound."""
        settings, open_bytes = self._parts.io.settings, self._parts.io.overlay.open_bytes
        open_bytes = max(open_bytes, self._parts.runner.external_bytes)
        early_bytes = self._core.inputs.early.bytes
        return (
            open_bytes > settings.uncommitted_state_bytes_max // CHECKPOINT_ASK_PARTS
            or early_bytes > settings.early_bytes_max // CHECKPOINT_ASK_PARTS
        )
