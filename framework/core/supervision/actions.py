"""The actions of ``Supervision``, which its driver carries out in their order. A worker has a number."""

from dataclasses import dataclass

from grete.errors import Halted


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a worker. ``fenced``: the tasks that another process has. ``draining``: the inputs have ended."""

    number: int
    partitions: tuple[int, ...]
    fenced: tuple[str, ...]
    draining: bool


@dataclass(frozen=True, slots=True)
class Reassign:
    """Tell a worker to host these partitions from now on. ``again``: those that start although they were fenced."""

    number: int
    partitions: tuple[int, ...]
    again: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TellDrain:
    """Tell a worker that the inputs have ended (E7)."""

    number: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ask a worker to stop gracefully (R6)."""

    number: int


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Kill a worker."""

    number: int


@dataclass(frozen=True, slots=True)
class SpawnStandby:
    """Start the standby of a partition."""

    partition: int


@dataclass(frozen=True, slots=True)
class TellComing:
    """Tell a standby that a worker is to take its place soon."""

    partition: int


@dataclass(frozen=True, slots=True)
class StopStandby:
    """Ask a standby to close its stores. ``stays``: its process waits to be a worker, else it ends."""

    partition: int
    stays: bool


@dataclass(frozen=True, slots=True)
class KillStandby:
    """Kill a standby."""

    partition: int


@dataclass(frozen=True, slots=True)
class KeepStandby:
    """Take the process of a standby for the next worker that starts: it has closed its stores."""

    partition: int


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell a person."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Raise this error, when all else is done: a person must look."""

    error: Halted


WorkerAction = Spawn | Reassign | TellDrain | StopWorker | KillWorker
StandbyAction = SpawnStandby | TellComing | StopStandby | KillStandby | KeepStandby
SupervisionAction = WorkerAction | StandbyAction | Tell | GiveUp
