"""The states of a process under supervision, and the changes between them that are allowed, as data."""

from enum import Enum

from grete.core.lifecycle import Lifecycle


class ProcessState(Enum):
    """The state of a worker's process, or of a standby's."""

    ABSENT = "there is no process, and none is to start"
    WAITING = "there is no process; the next one starts when its wait is over"
    STARTING = "the process has reported nothing yet"
    RUNNING = "the process reports"
    STOPPING = "the process was asked to end"
    KILLED = "the process was killed, and its end has not been seen yet"
    ENDED = "the process has ended, and does not start again by itself"


LIVE = frozenset({ProcessState.STARTING, ProcessState.RUNNING, ProcessState.STOPPING, ProcessState.KILLED})

_SHARED = {
    (ProcessState.WAITING, ProcessState.ABSENT): "its partitions are taken away",
    (ProcessState.WAITING, ProcessState.STARTING): "its wait is over, and no other process has the store open",
    (ProcessState.STARTING, ProcessState.RUNNING): "its first report comes",
    (ProcessState.STARTING, ProcessState.STOPPING): "its partitions are taken away, or the machine stops",
    (ProcessState.RUNNING, ProcessState.STOPPING): "its partitions are taken away, or the machine stops",
    (ProcessState.STARTING, ProcessState.WAITING): "it crashed",
    (ProcessState.RUNNING, ProcessState.WAITING): "it crashed",
    (ProcessState.STOPPING, ProcessState.KILLED): "it did not end in time",
    (ProcessState.STOPPING, ProcessState.WAITING): "it has ended, and partitions wait for it",
    (ProcessState.STOPPING, ProcessState.ABSENT): "it has ended",
    (ProcessState.KILLED, ProcessState.WAITING): "its end is seen, and partitions wait for it",
    (ProcessState.KILLED, ProcessState.ABSENT): "its end is seen",
}

WORKER_PROCESS = Lifecycle(
    "a worker process",
    first=ProcessState.ABSENT,
    changes=_SHARED
    | {
        (ProcessState.ABSENT, ProcessState.WAITING): "partitions are assigned to it",
        (ProcessState.STARTING, ProcessState.KILLED): "it said nothing for too long, or somebody asks for it",
        (ProcessState.RUNNING, ProcessState.KILLED): "it said nothing for too long, or somebody asks for it",
        (ProcessState.STARTING, ProcessState.ENDED): "it is done, fenced or halted, or crashed too often",
        (ProcessState.RUNNING, ProcessState.ENDED): "it is done, fenced or halted, or crashed too often",
        (ProcessState.STOPPING, ProcessState.ENDED): "it halted, or the machine stops",
        (ProcessState.KILLED, ProcessState.ENDED): "its end is seen: it halted before, or crashed too often",
        (ProcessState.ENDED, ProcessState.WAITING): "its partitions are assigned again",
        (ProcessState.ENDED, ProcessState.ABSENT): "its partitions are taken away",
    },
    last=ProcessState.ABSENT,
)

STANDBY_PROCESS = Lifecycle(
    "a standby process",
    first=ProcessState.WAITING,
    changes=_SHARED
    | {(ProcessState.RUNNING, ProcessState.ABSENT): "it crashed while it restored for a worker to come"},
    last=ProcessState.ABSENT,
)
