"""One commit on its way (A7): from the freeze to the markers. One at a time; processing goes on meanwhile (A8)."""

from dataclasses import dataclass

from framework.core.lifecycle import COMMIT, CommitStep
from protocol.commit import DeterministicCommit, ExternalInput, InputCommit, OutputCommit, ProducerRollbacks


@dataclass(slots=True)
class PendingCommit:
    """What was captured at the freeze of ``checkpoint_id``."""

    checkpoint_id: int
    last_token: int  # of the outputs sent before the freeze
    inputs: tuple[InputCommit, ...]
    external: tuple[ExternalInput, ...]
    outputs: tuple[OutputCommit, ...]
    known: tuple[ProducerRollbacks, ...]
    at_end: bool
    deterministic: DeterministicCommit | None = None
    held: int = 0  # records for the outside that were collected before the freeze and wait for an output release (D5)
    step: CommitStep = COMMIT.first
    offset: int = -1
    append_time_ms: int = 0
