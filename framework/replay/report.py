"""What a replay has shown, in words."""

from collections.abc import Iterator

from grete.api.job import Job
from grete.execution.deterministic.determinism_lint import findings
from grete.replay.recorded import MadeOutput
from grete.replay.replay import Found


def is_same(found: Found) -> bool:
    """Tell whether the replay got to its end and made all that the log holds."""
    return (found.difference, found.halted) == (None, None)


def report(found: Found, job: Job) -> Iterator[str]:
    """Yield lines about why a replay was not the same: the first difference, and the lines of code to look at."""
    if found.halted is not None:
        yield f"the replay stopped: {found.halted}"
    if found.difference is not None:
        partition, producer, seq, before, now = found.difference
        yield f"first difference: {partition}, record seq {seq} of {producer}, logical time {before.t} µs"
        yield f"  in the log:  {_shown(before)}"
        yield f"  made again:  {'nothing' if now is None else _shown(now)}"
    for _, finding in findings(job):
        yield f"  look at {finding.module}, line {finding.line}: {finding.what} (use {finding.instead})"


def _shown(made: MadeOutput) -> str:
    return (
        f"key {made.key!r:.200}, value {made.value!r:.400}, timestamp {made.timestamp}, headers {made.headers!r:.400}"
    )
