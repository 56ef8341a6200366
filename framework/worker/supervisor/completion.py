"""Tells whether a job has processed its input: all before given offsets, and its outputs, is committed."""

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from grete.api.jobs.job import Job
from grete.core.deterministic.logical_watermarks import step_at
from grete.ports import LogReader
from grete.protocol.commit import Commit
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import LastCommit, all_wirings, last_commit


class TaskSaid(Protocol):
    """The part of a task's report that tells how far it is; a task of the test kit has the same of itself."""

    @property
    def checkpoint_id(self) -> int:
        """The last checkpoint that it has committed, or left out; -1: none is known."""

    @property
    def idle_in(self) -> int | None:
        """The checkpoint that says that all its inputs are idle."""

    @property
    def ended_in(self) -> int | None:
        """The checkpoint that says that all its inputs have ended."""


def idle_in(job: Job, inputs: int, tasks: Iterable[TaskSaid], *, ending: bool, waits_for_idle: bool) -> int | None:
    """Return a checkpoint that has what comes of it that all inputs are idle (E4) or have ended (E7); None: not yet.

    Where only one of ``inputs`` partitions is read, its last record has brought event time to where it ends.
    ``ending``: the job is drained.
    """
    if not (ending or (waits_for_idle and inputs > 1 and job.topology().timed)):
        return 0
    found = [task.ended_in if ending else task.idle_in for task in tasks]
    known = [checkpoint_id for checkpoint_id in found if checkpoint_id is not None]
    return max(known, default=None) if len(known) == len(found) else None


def have_committed(tasks: Iterable[TaskSaid], checkpoint_id: int) -> bool:
    """Tell whether these have committed, or left out, a checkpoint not below this one, each in its present life."""
    return all(task.checkpoint_id >= checkpoint_id for task in tasks)


def used_up(log: LogReader, job: Job, ends: dict[TopicPartition, int], last: LastCommit | None = None) -> bool:
    """Tell whether all records before ``ends`` of the external inputs, and all their outputs, are committed.

    For at-least-once mode, which has no checkpoints to compare (1.5) and no markers in the streams: once all inputs of
    all tasks are processed, nothing can follow.
    """
    commits = [(last or partial(last_commit, log))(wiring.changelog) for wiring in all_wirings(job)]
    for found in commits:
        if found is None or not _has_read(found.commit, ends):
            return False
    # after the commits: what they sent is in the streams by now
    resumes = [entry for found in commits if found is not None for entry in found.commit.inputs]
    return all(entry.resume >= log.bounds(TopicPartition(entry.topic, entry.partition))[1] for entry in resumes)


def passed(
    log: LogReader,
    job: Job,
    ends: dict[TopicPartition, int],
    last: LastCommit | None = None,
    covered_t: Mapping[str, int] = MappingProxyType({}),
) -> bool:
    """Tell whether all records before ``ends`` of the external inputs, and all their outputs, are committed.

    For deterministic mode, where checkpoints are local (D4): all that came of it has the logical time of its sources,
    or of the end of the step that it lies in (E2), and each task's commit says up to which time it has everything of
    its channels (D1). So do commits of aligned tasks that read of deterministic ones; what is behind those, checkpoints
    tell (``reached``, ``have_committed``). ``covered_t``: by task, the time up to which its last commit has everything,
    if that is more than the commit says: nothing has come since.
    """
    last_t, frontiers = -1, []
    for wiring in all_wirings(job):
        if not (wiring.deterministic or wiring.logical):
            continue
        found = (last or partial(last_commit, log))(wiring.changelog)
        if found is None or found.commit.deterministic is None:
            return False
        if wiring.deterministic and wiring.external:
            if not _has_read(found.commit, ends):
                return False
            if found.commit.deterministic.last_t:  # it has taken something
                last_t = max(last_t, step_at(found.commit.deterministic.last_t))
        covered = covered_t.get(wiring.name, 0)
        frontiers += [max(frontier.t, covered) for frontier in found.commit.deterministic.frontiers]
    return all(t >= last_t for t in frontiers)


def reached(log: LogReader, job: Job, ends: dict[TopicPartition, int], last: LastCommit | None = None) -> int | None:
    """Return the checkpoint by which all external inputs are committed up to ``ends``; None if they are not (A2b).

    It is one of the aligned tasks. What deterministic ones bring to them is to have ``passed`` before.
    """
    checkpoint_ids = []
    for wiring in all_wirings(job):
        if (wiring.external or wiring.logical) and not wiring.deterministic:
            found = (last or partial(last_commit, log))(wiring.changelog)
            if found is None or not _has_read(found.commit, ends):
                return None
            checkpoint_ids.append(found.commit.checkpoint_id)
    return max(checkpoint_ids, default=0)


def _has_read(commit: Commit, ends: dict[TopicPartition, int]) -> bool:
    return all(e.offset >= ends.get(TopicPartition(e.topic, e.partition), 0) for e in commit.external)
