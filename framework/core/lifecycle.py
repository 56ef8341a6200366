"""The states of a task, of its start and of its commit, and the changes between them that are allowed, as data.

The value of a state says what it is. docs/explanation/lifecycle.md draws these tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

StateT = TypeVar("StateT", bound=Enum)


class TaskStatus(Enum):
    """The state of a task."""

    STARTING = "the start is at work: no generation is settled yet"
    GENESIS = "a first commit is on its way, before anything is processed (A2)"
    ANNOUNCING = "rollback markers are sent and not yet acknowledged (R2)"
    RUNNING = "the task takes input, closes checkpoints and commits them"
    RECLAIMING = "rolling back: the claim of the next generation is on its way (C6)"
    STOPPED = "the task has asked for its exit"


class StartupPhase(Enum):
    """The phase of a start."""

    CREATED = "the driver has not said Start"
    PROBING = "looking for a round start near the end of the changelog"
    READING = "folding the changelog up to its end"
    CLAIMING = "the own claim is on its way to the changelog"
    VERIFYING = "reading up to the own claim"
    DONE = "the generation is settled, and the store agrees with the last commit"


class StandbyPhase(Enum):
    """The phase of a standby."""

    CREATED = "nothing is known of the store"
    PROBING = "looking for a round start near the end of the changelog"
    RESTORING = "what was read since the round start is not the whole state yet: the store has no changelog position"
    FOLLOWING = "each committed checkpoint is applied as it comes"
    STOPPED = "the changelog has a message that cannot be applied: a person must look"


class CommitStep(Enum):
    """The steps of a commit, each by the condition it waits for. The order is the obligation (A7)."""

    OUTPUTS = "all outputs of the checkpoint are acknowledged"
    DATA = "dirty keys and a slice of the rewrite are sent to the changelog"
    COMMIT = "the commit message is durable"
    VERIFY = "nothing foreign is before it in the changelog (C3)"
    APPLY = "the frozen write batch and its changelog position are in the store"


@dataclass(frozen=True)
class Lifecycle(Generic[StateT]):
    """The allowed changes between the states of one thing, each with its cause; ``first`` and ``last`` state."""

    what: str
    first: StateT
    changes: Mapping[tuple[StateT, StateT], str]
    last: StateT

    def change(self, task: str, before: StateT, after: StateT) -> StateT:
        """Return ``after``. Raises AssertionError, naming task and states, for a change that is not in the table."""
        if (before, after) not in self.changes:
            raise AssertionError(f"{task}: {self.what} does not go from {before.name} to {after.name}")
        return after


ALIGNED_TASK = Lifecycle(
    "an aligned task",
    first=TaskStatus.STARTING,
    changes={
        (TaskStatus.STARTING, TaskStatus.GENESIS): "there is no commit",
        (TaskStatus.STARTING, TaskStatus.ANNOUNCING): "the last commit is restored",
        (TaskStatus.GENESIS, TaskStatus.ANNOUNCING): "the first commit is in the store",
        (TaskStatus.ANNOUNCING, TaskStatus.RUNNING): "rollback markers are acknowledged",
        (TaskStatus.RUNNING, TaskStatus.RECLAIMING): "a producer has taken back what is in the open write batch",
        (TaskStatus.RECLAIMING, TaskStatus.ANNOUNCING): "the next generation is claimed",
        (TaskStatus.RUNNING, TaskStatus.STOPPED): "asked to stop, nothing is left to commit",
    },
    last=TaskStatus.STOPPED,
)

DETERMINISTIC_TASK = Lifecycle(
    "a deterministic task",
    first=TaskStatus.STARTING,
    changes={
        (TaskStatus.STARTING, TaskStatus.GENESIS): "there is no commit, or the last one is a bulk write's",
        (TaskStatus.STARTING, TaskStatus.RUNNING): "the last commit is restored",
        (TaskStatus.GENESIS, TaskStatus.RUNNING): "the first commit is in the store",
        (TaskStatus.RUNNING, TaskStatus.STOPPED): "asked to stop, nothing is left to commit",
    },
    last=TaskStatus.STOPPED,
)

START = Lifecycle(
    "a start",
    first=StartupPhase.CREATED,
    changes={
        (StartupPhase.CREATED, StartupPhase.READING): "the changelog may hold the commit that the store names",
        (StartupPhase.CREATED, StartupPhase.PROBING): "it cannot, or the store is empty",
        (StartupPhase.READING, StartupPhase.PROBING): "it does not hold that commit",
        (StartupPhase.PROBING, StartupPhase.READING): "it is known where to begin",
        (StartupPhase.READING, StartupPhase.CLAIMING): "the end is read",
        (StartupPhase.CLAIMING, StartupPhase.READING): "the log refuses the claim",
        (StartupPhase.CLAIMING, StartupPhase.VERIFYING): "the claim is appended",
        (StartupPhase.VERIFYING, StartupPhase.CLAIMING): "an equal or higher claim is before the own one",
        (StartupPhase.VERIFYING, StartupPhase.DONE): "no equal or higher claim is before the own one",
    },
    last=StartupPhase.DONE,
)

STANDBY = Lifecycle(
    "a standby",
    first=StandbyPhase.CREATED,
    changes={
        (StandbyPhase.CREATED, StandbyPhase.FOLLOWING): "the changelog may hold the commit that the store names",
        (StandbyPhase.CREATED, StandbyPhase.PROBING): "it cannot, or the store is empty",
        (
            StandbyPhase.FOLLOWING,
            StandbyPhase.PROBING,
        ): "it does not hold that commit, or was trimmed ahead of the standby",
        (StandbyPhase.PROBING, StandbyPhase.RESTORING): "it is known where to begin",
        (StandbyPhase.RESTORING, StandbyPhase.FOLLOWING): "a complete rewrite round was read, or all since the genesis",
        (StandbyPhase.RESTORING, StandbyPhase.PROBING): "the changelog was trimmed ahead of the standby",
        (StandbyPhase.CREATED, StandbyPhase.STOPPED): "the store has a commit beyond the end of the changelog",
        (StandbyPhase.PROBING, StandbyPhase.STOPPED): "a message is damaged",
        (StandbyPhase.RESTORING, StandbyPhase.STOPPED): "a message is damaged, or the log has lost some",
        (StandbyPhase.FOLLOWING, StandbyPhase.STOPPED): "a message is damaged, or the log has lost some",
    },
    last=StandbyPhase.STOPPED,
)

COMMIT = Lifecycle(
    "a commit",
    first=CommitStep.OUTPUTS,
    changes={
        (CommitStep.OUTPUTS, CommitStep.DATA): "outputs are acknowledged",
        (CommitStep.DATA, CommitStep.COMMIT): "data is sent",
        (CommitStep.COMMIT, CommitStep.VERIFY): "the commit message is appended",
        (CommitStep.VERIFY, CommitStep.APPLY): "it is valid",
    },
    last=CommitStep.APPLY,
)
