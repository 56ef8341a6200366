"""One commit on its way (A7): from the freeze to the markers. One at a time; processing goes on meanwhile (A8)."""

from dataclasses import dataclass

from framework.core.lifecycle import Stage
from protocol.commit import DeterministicCommit, ExternalInput, InputCommit, OutputCommit, ProducerLineage


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
    deterministic: DeterministicCommit | None = None
    held: int = 0  # records for the outside that were collected before the freeze and wait for release (D5)
    stage: Stage = Stage.OUTPUTS
    offset: int = -1
    append_time_ms: int = 0
