"""The result of a replay, in words."""

from collections.abc import Iterator

from grete.api.jobs.job import Job
from grete.api.jobs.versions import FIRST, NEWEST
from grete.execution.deterministic.determinism_lint import findings
from grete.replay.determinism.replay import ReplayResult
from grete.replay.recorded import MadeOutput


def is_same(found: ReplayResult) -> bool:
    """Tell whether the replay got to its end and made all that the log holds."""
    return (found.difference, found.halted) == (None, None)


def report(found: ReplayResult, job: Job) -> Iterator[str]:
    """Yield lines about why a replay was not the same: the first difference, and the lines of code to look at."""
    if found.halted is not None:
        yield f"the replay stopped: {found.halted}"
    if found.difference is not None:
        partition, producer, seq, before, now = found.difference
        yield f"first difference: {partition}, record seq {seq} of {producer}, logical time {before.t} µs"
        yield f"  in the log:  {_shown(before)}"
        yield f"  made again:  {'nothing' if now is None else _shown(now)}"
        if now is not None and (serde := _in_two_ways(job, partition.topic, before, now)):
            yield f"  both are equal, so your code is not to blame: serde {serde} writes equal values in two ways"
            yield "  give dicts one order before they are sent: dict(sorted(…))"
            if job.serdes == FIRST:
                yield f"  json and avro do so by version {NEWEST} of the serdes; this job began with version {FIRST}"
            return
    for _, finding in findings(job):
        yield f"  look at {finding.module}, line {finding.line}: {finding.what} (use {finding.instead})"


def _in_two_ways(job: Job, topic: str, before: MadeOutput, now: MadeOutput) -> str:
    """Return the serde that has written equal keys or values as other bytes, if that is all that differs; else ''."""
    if before._replace(key=now.key, value=now.value) != now:
        return ""
    read = {
        name: each.topic for stage in job.stages for name, each in stage.inputs_by_log_topic(job.topology()).items()
    }
    declared = (read | job.external_sinks())[topic]
    blamed = ""
    for serde, one, other in ((declared.key, before.key, now.key), (declared.value, before.value, now.value)):
        if one != other:
            if one is None or other is None or serde.decode(one) != serde.decode(other):
                return ""
            blamed = serde.name
    return blamed


def _shown(made: MadeOutput) -> str:
    return (
        f"key {made.key!r:.200}, value {made.value!r:.400}, timestamp {made.timestamp}, headers {made.headers!r:.400}"
    )
