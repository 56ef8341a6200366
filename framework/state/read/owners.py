"""Owners of a job's tasks: the claims in its changelogs, and whether such a process is still at work.

A command that rewrites a job claims its tasks, which fences every worker. So it asks here first: a worker on another
machine holds no lock that could be seen. This may miss a worker (it hangs, or rests and commits seldom); nothing is
lost then, as what it commits before the claim is found after it. Members on Kafka are seen by their heartbeats before.
"""

import logging
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from grete.clock_text import clock_text
from grete.core.changelog.changelog_fold import ChangelogFold
from grete.core.changelog.damage import message
from grete.core.graph.task_topology import TaskWiring
from grete.errors import ConfigError
from grete.logs.partition_reader import batch
from grete.ports import Log, LogReader, LogRow
from grete.protocol.changelog import ChangelogHeader, ChangelogType, Claim, decode_changelog_header, decode_claim
from grete.protocol.ids import TopicPartition
from grete.settings import Settings
from grete.state.read.checkpoints.snapshots import fold_to_end

logger = logging.getLogger("grete.definition")  # commands show its lines to the person at the terminal

WATCH_S_MAX = 60.0  # with a checkpoint interval of many minutes: a person waits no longer
_INTERVALS = 2  # each task of a live job commits once an interval, also when nothing comes: once an idle one
_MORE_S = 2.0  # beyond the intervals: a commit takes its time
_LOOK_MS = 100.0  # between two looks at the changelogs
NONE_ENDED: Mapping[str, int] = {}
_SAME_S = 5.0  # a process says when it started; the system's answer is that much off at most


def refuse_if_owned(
    log: Log, wirings: Sequence[TaskWiring], settings: Settings, ended: Mapping[str, int] = NONE_ENDED
) -> None:
    """Raise ConfigError, naming the process, if one is at work on one of the tasks.

    ``ended``: task → a generation whose process is known to have ended. On this machine that is known by its process
    id, too. Elsewhere its changelogs tell: they are watched for two intervals.
    """
    watched: dict[TaskWiring, Claim | None] = {}
    bounds = log.all_bounds(wiring.changelog for wiring in wirings)
    ends = {wiring: bounds[wiring.changelog][1] for wiring in wirings}
    watch_s = max(settings.checkpoint_interval_ms, settings.idle_checkpoint_interval_ms) / 1000
    for wiring in ends:
        fold = fold_to_end(log, wiring)
        if fold.top in (0, ended.get(wiring.name)) or _has_ended(fold):
            continue
        claim = _claim_of(log, wiring, fold.top)
        if claim is None or claim.host != platform.node()[:200]:
            watched[wiring] = claim
            watch_s = max(watch_s, _interval_s(fold))
        elif _is_alive(claim):
            raise _at_work(wiring, claim, "is alive")
    if watched:
        seconds = min(_INTERVALS * watch_s + _MORE_S, WATCH_S_MAX)
        logger.warning(
            "nothing tells whether the last processes of %d tasks have ended, that of %s among them: their changelogs "
            "are watched for %.0f s",
            len(watched),
            next(iter(watched)).name,
            seconds,
        )
        _watch(log, watched, ends, seconds)


def last_owner(log: LogReader, wiring: TaskWiring) -> str:
    """Return the process, with its machine, that has claimed a task last, as a person reads it."""
    return _named(_claim_of(log, wiring, fold_to_end(log, wiring).top))


def _named(claim: Claim | None) -> str:
    if claim is None:
        return "a process whose claim is trimmed"
    return f"process {claim.pid} on {claim.host}, started {clock_text(claim.started_ms)},"


def _claim_of(log: LogReader, wiring: TaskWiring, generation: int) -> Claim | None:
    """Return the claim of the highest generation, found by bisection; None if it was trimmed."""
    changelog = wiring.changelog
    low, end = log.bounds(changelog)
    high = end
    while low < high:
        middle = (low + high) // 2
        found = batch(log, changelog, middle, 1)
        if not found or found[0].offset >= high or _header(changelog, found[0]).generation >= generation:
            high = middle
        else:
            low = found[0].offset + 1
    found = batch(log, changelog, low, 1) if low < end else []
    if not found or _header(changelog, found[0])[:2] != (ChangelogType.CLAIM, generation):
        return None
    with message(changelog, found[0].offset):
        return decode_claim(found[0].value or b"")


def _header(changelog: TopicPartition, row: LogRow) -> ChangelogHeader:
    with message(changelog, row.offset):
        return decode_changelog_header(row.value or b"")


def _has_ended(fold: ChangelogFold) -> bool:
    """Whether the last owner was a bulk write whose commit counts: it is over."""
    last = fold.last
    return last is not None and last.bulk_write_id is not None and last.generation == fold.top


def _interval_s(fold: ChangelogFold) -> float:
    """Return about how long the last owner took from one commit to the next: their numbers are times in ms."""
    last = fold.last
    return 0.0 if last is None or last.previous <= 0 else (last.checkpoint_id - last.previous) / 1000


def _watch(
    log: Log, watched: Mapping[TaskWiring, Claim | None], ends: Mapping[TaskWiring, int], seconds: float
) -> None:
    by = time.monotonic() + seconds
    while watched and time.monotonic() < by:
        for wiring, claim in watched.items():
            end = log.bounds(wiring.changelog)[1]
            new = batch(log, wiring.changelog, ends[wiring], 1) if end > ends[wiring] else []
            if new:  # else it is only the marker of a transaction
                raise _at_work(wiring, claim, f"has written offset {new[0].offset:,} of {wiring.changelog} just now")
        log.wait(_LOOK_MS)


def _is_alive(claim: Claim) -> bool:
    """Whether the process that made a claim on this machine is there; another one may have its id by now."""
    if claim.pid == os.getpid():
        return False  # this very process does not run tasks
    try:
        os.kill(claim.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        state, *_, start = Path(f"/proc/{claim.pid}/stat").read_text().rpartition(")")[2].split()[:20]
        (booted,) = (line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line[:5] == "btime")
    except (OSError, ValueError):
        return True  # not a Linux: nothing more is known
    started_s = int(booted) + int(start) / os.sysconf("SC_CLK_TCK")
    return state not in "ZX" and started_s <= claim.started_ms / 1000 + _SAME_S


def _at_work(wiring: TaskWiring, claim: Claim | None, how: str) -> ConfigError:
    return ConfigError(
        f"{wiring.name} has a worker: {_named(claim)} {how}: stop the job's workers there first, then ask again",
        task=wiring.name,
    )
