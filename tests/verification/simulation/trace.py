"""The trace of a run: a digest over everything, and the last lines for people, made only when somebody asks."""

from collections import deque
from dataclasses import dataclass
from hashlib import blake2b

from grete.protocol.changelog import CHANGELOG_HEADER_SIZE, ChangelogType, decode_changelog_header
from grete.protocol.commit import decode_commit
from grete.protocol.envelope import MessageType, decode_header
from grete.protocol.errors import DecodeError
from grete.protocol.frames import frame_count
from grete.protocol.ids import TopicPartition

LINES = 80
EPOCH_MS = 1_000_000


@dataclass(slots=True)
class WorldTime:
    """The time of a world, in steps of the scheduler and in ms of its clock."""

    step: int = 0
    now: int = EPOCH_MS


class Trace:
    """Feed it in order; equal digests mean equal runs."""

    def __init__(self, time: WorldTime, lines: int = LINES) -> None:
        self._time = time
        self._hash = blake2b(digest_size=12)
        self._lines: deque[tuple[int, int, str | tuple[TopicPartition, int, bytes]]] = deque(maxlen=lines)

    @property
    def digest(self) -> str:
        """Return the digest of all so far."""
        return self._hash.hexdigest()

    def note(self, text: str) -> None:
        """Take a line."""
        step, now = self._time.step, self._time.now
        self._hash.update(b"%d %d " % (step, now) + text.encode())
        self._lines.append((step, now, text))

    def message(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Take a message that is now in the log."""
        step, now = self._time.step, self._time.now
        self._hash.update(b"%d %d %d " % (step, now, offset) + value)
        self._lines.append((step, now, (partition, offset, value)))

    def lines(self) -> list[str]:
        """Return the last lines."""
        return [
            f"{step:5} {now:8} ms  {what if isinstance(what, str) else describe(*what)}"
            for step, now, what in self._lines
        ]


def describe(partition: TopicPartition, offset: int, value: bytes) -> str:
    """Return one line about an internal message."""
    at = f"{partition}@{offset}"
    try:
        header = decode_header(value)
    except DecodeError:
        return f"{at} {_describe_changelog(value)}"
    count = f" x{frame_count(value)}" if header.type is MessageType.FRAME else ""
    what = f"{header.type.name.lower()}{count} of {header.producer:#x}"
    return f"{at} {what} g{header.generation} checkpoint {header.checkpoint_id} seq {header.seq}"


def _describe_changelog(value: bytes) -> str:
    header = decode_changelog_header(value)
    text = f"{header.type.name.lower()} g{header.generation} ({header.seq})"
    if header.type is not ChangelogType.COMMIT:
        return f"{text} of {len(value) - CHANGELOG_HEADER_SIZE} bytes"
    commit = decode_commit(value)
    inputs = ", ".join(
        f"{i.topic}[{i.partition}] from {i.resume} seqs {[c.seq for c in i.channels]}" for i in commit.inputs
    )
    return f"{text} checkpoint {commit.checkpoint_id} after {commit.previous}; {inputs}; cursor {commit.cursor!r}"
