"""Tells whether a new definition binds: from the first commit of its code on. Until then a deploy can be taken back.

A start pins its definition before it processes anything, since readers and other workers need its ids. If that code
then halts, crashes, or is taken back, nothing of the state was written by it: each start commits, but nothing that its
code has put into a store or a stream.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from grete.core.graph.topology import changelog_topic
from grete.execution.calls.kept_results import is_kept
from grete.execution.timing.reserved_stores import META, PINS
from grete.logs.partition_reader import rows_left
from grete.ports import JobLogReader
from grete.protocol.changelog import REWRITTEN, ChangelogType, Data, decode_changelog_header, decode_data
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.ids import TopicPartition
from grete.state.read.checkpoints.commits import ends_of, last_commit

BEFORE = "definition-before"  # the key in the job metadata
_FORMAT = 1  # of that entry


class _At(msgspec.Struct):
    """The last commit of a task when a definition was pinned; ``sent``: records in all of its streams until then."""

    offset: int = -1
    generation: int = 0
    sent: int = 0


class _Before(msgspec.Struct):
    """``pinned``: a digest of the definition that it is before; ``commits``: the last ones then, by changelog.

    ``definition``: empty before the first one.
    """

    format: int
    pinned: str
    definition: str
    stages: list[str]
    commits: dict[str, _At]


def definition_before(log: JobLogReader, job: str, pinned: bytes) -> bytes | None:
    """Return the definition before ``pinned``, empty before the first; None: it is not noted, or ``pinned`` binds."""
    raw = log.read_metadata(job).meta_get(BEFORE)
    if raw is None:
        return None
    before = msgspec.json.decode(raw, type=_Before)
    if before.format != _FORMAT or before.pinned != _digest(pinned):
        return None
    changelogs = list(_changelogs(log, job, before.stages))
    bounds = log.all_bounds(changelogs)
    is_first = not before.definition
    if any(_binds(log, c, bounds[c], before.commits.get(str(c), _At()), is_first=is_first) for c in changelogs):
        return None
    return before.definition.encode()


def note_before(log: JobLogReader, job: str, counting: bytes, pinned: bytes | None, made: bytes) -> bytes:
    """Return the entry beside a new definition ``made``: ``counting`` is the one before it, empty if that is the first.

    Where ``pinned`` itself does not bind yet, the one before that stays.
    """
    earlier = definition_before(log, job, pinned) if pinned is not None and counting == pinned else None
    before = counting if earlier is None else earlier
    stages = sorted({stage["name"] for raw in (before, made) if raw for stage in msgspec.json.decode(raw)["stages"]})
    ends = ends_of(log, _changelogs(log, job, stages))
    found = {str(each): last_commit(log, each, bounds) for each, bounds in ends}
    commits = {
        changelog: _At(at.offset, at.commit.generation, _sent(at.commit))
        for changelog, at in found.items()
        if at is not None
    }
    return msgspec.json.encode(_Before(_FORMAT, _digest(made), before.decode(), stages, commits))


def _binds(log: JobLogReader, changelog: TopicPartition, bounds: tuple[int, int], at: _At, *, is_first: bool) -> bool:
    """Tell whether a commit of a higher generation than ``at`` has something of code; or may have, and is trimmed."""
    start, end = bounds
    if start > at.offset + 1:
        return True
    made = set[int]()  # generations that have sent something
    for row in rows_left(log, changelog, at.offset + 1, end):
        message = row.value or b""
        header = decode_changelog_header(message)
        if header.generation <= at.generation:
            continue
        if header.type is ChangelogType.DATA and _is_of_code(decode_data(message), pins=not is_first):
            made.add(header.generation)
        if header.type is ChangelogType.COMMIT and (
            header.generation in made or _sent(decode_commit(message)) > at.sent
        ):
            log.leave(changelog)
            return True
    log.leave(changelog)
    return False


def _is_of_code(data: Data, *, pins: bool) -> bool:
    """Tell whether data hold more than what the runtime notes of times and positions, and what it only rewrites.

    ``pins``: the ids of new stores count, too. Those of the first code do not, since it notes them with its first
    commit, whatever that has; a start looks at them by itself.
    """
    return data.reset_stores != REWRITTEN and any(
        store != META or (pins and key.startswith(PINS)) or is_kept(key)
        for store, key in zip(data.stores, data.keys, strict=True)
    )


def _changelogs(log: JobLogReader, job: str, stages: Iterable[str]) -> Iterator[TopicPartition]:
    for topic in (changelog_topic(job, stage) for stage in stages):
        yield from (TopicPartition(topic, number) for number in range(log.partitions(topic) or 0))


def _sent(commit: Commit) -> int:
    return sum(output.next_seq for output in commit.outputs)


def _digest(definition: bytes) -> str:
    return hashlib.sha256(definition).hexdigest()
