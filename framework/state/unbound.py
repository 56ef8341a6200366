"""A definition binds from the first commit under it on. Until then the one before it counts, too: code may come back.

A start pins its definition before it processes anything, since readers and other workers need its ids. If that code
then halts, or is taken back, nothing of the state was written by it.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from framework.core.topology import changelog_topic
from framework.ports import JobLogReader
from framework.state.commits import ends_of, last_commit
from protocol.ids import TopicPartition

BEFORE = "definition-before"  # the key in the job metadata
_FORMAT = 1  # of that entry


class _Before(msgspec.Struct):
    """``pinned``: a digest of the definition that it is before; ``generations``: those of the last commits then."""

    format: int
    pinned: str
    definition: str
    stages: list[str]
    generations: dict[str, int]


def definition_before(log: JobLogReader, job: str, pinned: bytes) -> bytes | None:
    """Return the definition before ``pinned``; None: there is none, or a task has committed since."""
    raw = log.read_metadata(job).meta_get(BEFORE)
    if raw is None:
        return None
    before = msgspec.json.decode(raw, type=_Before)
    if before.format != _FORMAT or before.pinned != _digest(pinned):
        return None
    now = _generations(log, job, before.stages)
    if any(generation > before.generations.get(changelog, 0) for changelog, generation in now.items()):
        return None
    return before.definition.encode()


def note_before(log: JobLogReader, job: str, counting: bytes, pinned: bytes, made: bytes) -> bytes:
    """Return the entry beside a new definition ``made``: ``counting`` is the one before it.

    Where ``pinned`` itself does not bind yet, the one before that stays.
    """
    earlier = definition_before(log, job, pinned) if counting == pinned else None
    before = counting if earlier is None else earlier
    stages = sorted({stage["name"] for raw in (before, made) for stage in msgspec.json.decode(raw)["stages"]})
    entry = _Before(_FORMAT, _digest(made), before.decode(), stages, _generations(log, job, stages))
    return msgspec.json.encode(entry)


def _generations(log: JobLogReader, job: str, stages: Iterable[str]) -> dict[str, int]:
    """Return changelog → the generation of its last commit: a worker of new code commits in a higher one."""
    topics = [changelog_topic(job, stage) for stage in stages]
    changelogs = [TopicPartition(topic, number) for topic in topics for number in range(log.partitions(topic) or 0)]
    found = {each: last_commit(log, each, bounds) for each, bounds in ends_of(log, changelogs)}
    return {str(each): at.commit.generation for each, at in found.items() if at is not None}


def _digest(definition: bytes) -> str:
    return hashlib.sha256(definition).hexdigest()
