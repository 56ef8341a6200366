"""Sends a task's records for topics outside of the job, and its changelog messages. Not in deterministic mode."""

from grete.core.actions import AppendChangelog
from grete.execution.engine.pending_sends import CHANGELOG
from grete.execution.engine.task_parts import TaskParts
from grete.ports import ExternalRecord


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
