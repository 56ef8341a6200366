"""One commit on its way (A7): from the freeze to the markers. One at a time; processing goes on meanwhile (A8)."""

from dataclasses import dataclass
from enum import Enum, auto

from protocol.commit import ExternalInput, InputCommit, OutputCommit, ProducerLineage


class Stage(Enum):
    """What the commit waits for; the order is the obligation."""

    OUTPUTS = auto()  # all outputs of the version acknowledged
    DATA = auto()  # dirty keys and sweep sent
    COMMIT = auto()  # commit message acknowledged
    VERIFY = auto()  # nothing foreign before it (C3)
    APPLY = auto()  # frozen layer and pointer in the store


@dataclass(slots=True)
class CommitRun:
    """What was captured at the freeze of ``version``."""

    version: int
    last_token: int  # of the outputs sent before the freeze
    inputs: tuple[InputCommit, ...]
    external: tuple[ExternalInput, ...]
    outputs: tuple[OutputCommit, ...]
    known: tuple[ProducerLineage, ...]
    at_end: bool
    stage: Stage = Stage.OUTPUTS
    offset: int = -1
    append_time_ms: int = 0


@dataclass(slots=True)
class Sweep:
    """Where the rewriting of the changelog stands (K2). Offsets are those of commits."""

    cursor: bytes = b""
    round_start: int = 0  # the commit at which the round in progress began; 0: the genesis
    base: int = 0  # start of the last round that an earlier commit completed
    started_ms: int = 0  # append time of the commit at round_start, as far as this process knows

    def committed(self, cursor: bytes, offset: int, append_time_ms: int, *, round_done: bool) -> tuple[int, int] | None:
        """Move on with a commit at ``offset``; return (time, offset) before which nothing is needed now."""
        self.cursor = cursor
        if not round_done:
            return None
        obsolete = (self.started_ms, self.round_start)
        self.base, self.round_start, self.started_ms = self.round_start, offset, append_time_ms
        return obsolete if obsolete[1] > 0 else None
