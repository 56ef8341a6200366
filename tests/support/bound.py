"""A definition that binds without a run: what releases up to 0.3.0 pinned does so from its start on."""

from grete.ports import JobLog
from grete.state.pins.unbound import BEFORE


def bind(log: JobLog, job: str) -> None:
    """Let the pinned definition of a job bind, as the first commit that has something of its code does."""
    of_another = b'{"format":1,"pinned":"of another","definition":"","stages":[],"commits":{}}'
    log.open_metadata(job).produce_with_meta([], {BEFORE: of_another})
