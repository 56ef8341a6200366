"""The state of an aligned task: mostly a function of its last commit and of what it has read and sent since."""

from collections.abc import Mapping

from framework.core.actions import Action, Seek
from framework.core.aligned.early_buffer import EarlyBuffer
from framework.core.aligned.inputs import Inputs
from framework.core.commit_pipeline import BaseCore
from framework.core.lifecycle import ALIGNED_TASK, TaskStatus
from framework.core.limits import Limits
from framework.core.task_topology import TaskWiring
from framework.errors import ConfigError
from protocol.commit import Commit
from protocol.ids import TopicPartition

__all__ = ["TaskState", "TaskStatus"]


class TaskState(BaseCore):
    """The state of a TaskCore, and what only reads or resets it."""

    lifecycle = ALIGNED_TASK

    def __init__(self, task: TaskWiring, limits: Limits, *, aligned: bool) -> None:
        super().__init__(task, limits)
        self.aligned = aligned
        early = EarlyBuffer(limits.early_memory_bytes_max, limits.early_bytes_max)
        self.inputs = Inputs(task.name, task.channels, early, task.fingerprints, aligned=aligned, logical=task.logical)
        self.seen = self.inputs.seen
        self._closing: int | None = None  # checkpoint to freeze when the outputs are flushed
        self._processing = False
        self._rollback = False

    @property
    def _by_timer(self) -> bool:
        return self.task.is_source or not self.aligned

    def _positions(self) -> Mapping[TopicPartition, int]:
        return self.inputs.position

    def _seek(self) -> list[Action]:
        return [
            Seek(partition, offset) for partition, offset in (*self.inputs.position.items(), *self.external.items())
        ]

    def _resume(self, commit: Commit) -> None:
        """Set everything that is a function of the last commit."""
        super()._resume(commit)
        self.inputs.reset(commit)
        self._closing, self._processing, self._rollback = None, False, False

    def _check(self, commit: Commit) -> None:
        """Refuse a commit of another graph or of other modes."""
        super()._check(commit)
        if (commit.deterministic is not None) != bool(self.task.logical):
            raise ConfigError(
                f"{self.task.name}: its last commit (checkpoint {commit.checkpoint_id}) is one of other modes, its "
                "own or those of stages that it reads: a job keeps its modes: put them back, or give the job another "
                "name, under which it begins from its inputs"
            )
