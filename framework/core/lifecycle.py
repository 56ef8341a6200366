"""The states of a task, of its start and of its commit."""

from enum import Enum, auto


class TaskStatus(Enum):
    """The state of a task."""

    STARTING = auto()  # startup.py is at work
    GENESIS = auto()  # the first commit of all is on its way (A2)
    ANNOUNCING = auto()  # rollback markers are not yet acknowledged (R2)
    RUNNING = auto()
    RECLAIMING = auto()  # rolling back: the claim of the next generation is on its way (C6)
    STOPPED = auto()


class CommitStep(Enum):
    """What the commit waits for; the order is the obligation."""

    OUTPUTS = auto()  # all outputs of the checkpoint acknowledged
    DATA = auto()  # dirty keys and rewrite sent
    COMMIT = auto()  # commit message acknowledged
    VERIFY = auto()  # nothing foreign before it (C3)
    APPLY = auto()  # frozen write batch and changelog position in the store


class StartupPhase(Enum):
    """The phase of a start."""

    PROBING = auto()  # looking for a round start near the end of the changelog
    READING = auto()  # folding the changelog up to its end
    CLAIMING = auto()  # waiting for the own claim's offset
    VERIFYING = auto()  # reading up to the own claim
    DONE = auto()
