"""The messages of an aligned task for the tasks downstream: rollback markers, frames and watermarks (R2, A3, E2).

The checkpoint markers go out with a commit: framework/core/commit_pipeline.py.
"""

from grete.core.actions import Action
from grete.core.changelog.ownership import Ownership
from grete.core.events import OutputFrames
from grete.core.graph.task_topology import TaskWiring
from grete.core.sender import Sender
from grete.protocol.control import encode_rollback_marker, encode_watermark
from grete.protocol.ids import RollbackEntry


class AlignedSender:
    """Gives each message the task's producer id, its generation and a checkpoint id."""

    def __init__(self, task: TaskWiring, sender: Sender, ownership: Ownership) -> None:
        self._task = task
        self._sender = sender
        self._ownership = ownership

    def announce(self, restored: int, rollback_history: tuple[RollbackEntry, ...]) -> list[Action]:
        """Send the rollback marker of this generation, which went back to ``restored``, everywhere (R2)."""
        ours, graph = (self._task.producer, self._ownership.generation, restored), self._task.fingerprint
        return [
            self._sender.send(partition, encode_rollback_marker(*ours, seq, graph, rollback_history))
            for partition, seq in self._sender.next_seq.items()
        ]

    def send(self, event: OutputFrames, checkpoint_id: int, *, timed: bool) -> list[Action]:
        """Send frames; ``timed``: and event time behind them, if it is to be told now (E2)."""
        actions = self._sender.frames(event.frames, self._ownership.generation, checkpoint_id)
        return actions + self.watermarks(event.watermark, checkpoint_id) if timed and event.watermark else actions

    def watermarks(self, told: tuple[int, bool], checkpoint_id: int) -> list[Action]:
        """Send event time in ms, and whether the task is idle; this message takes no seq (E2)."""
        watermark, idle = told
        ours, next_seq = (self._task.producer, self._ownership.generation, checkpoint_id), self._sender.next_seq
        return [
            self._sender.send(partition, encode_watermark(*ours, next_seq[partition], idle, (watermark,)))
            for partition in self._task.timed_outputs
        ]
