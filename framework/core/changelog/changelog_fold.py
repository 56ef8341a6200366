"""Reading a changelog: which messages are valid (C2), which data a valid commit closes (R1). A fold in log order.

The judge of validity. Two looks from outside judge the little that they need by themselves, because a fold must read
all data since a commit: for the last commit (``framework/state/read/checkpoints/commits.py``) and for an outcome
(``framework/execution/changelog/changelog_writer.py``). ``tests/core/test_fold_from_commits.py`` holds that all three
agree.
"""

import zlib
from typing import NamedTuple

from grete.core.changelog.damage import DAMAGED, damaged
from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.changelog import (
    ChangelogType,
    InputDecision,
    OutputRelease,
    decode_changelog_header,
    decode_input_decision,
    decode_outcome,
    decode_output_release,
    decode_time_lease,
)
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.errors import DecodeError
from grete.protocol.ids import RollbackEntry, TopicPartition
from grete.protocol.notes import CallResult, CallsNote, IdleNote, decode_note


class Segment(NamedTuple):
    """The data messages that one valid commit closes, in order."""

    commit: Commit
    offset: int
    messages: tuple[bytes, ...]


class ChangelogFold:
    """Feeds on every message of a changelog from some offset on, and knows what is committed.

    ``start`` is the offset read first. 0 is the genesis; anything else must be a valid commit that the reader trusts:
    its local changelog position, the round start named by a commit, or the start of a trimmed log (K2). That commit's
    own data lies before ``start``.

    The commit of a bulk write counts once its outcome says so: read here as a copy, told by ``settle``, or proved by
    the next commit, which follows it or its predecessor (1.8).

    A generation commits at most one of its numbered attempts, and only in its first commit. A message of a numbered
    attempt behind a commit of the same generation is invalid: its attempt has lost (C2). Its ChangelogSeq says
    nothing to a reader that begins at that commit, because its predecessors lie before ``start``.
    """

    def __init__(self, changelog: TopicPartition, start: int) -> None:
        self.changelog = changelog  # for errors
        self.start = start
        self.next_offset = start
        self.top = 0  # highest generation seen
        self.rollback_history: tuple[RollbackEntry, ...] = ()
        self.last: Commit | None = None  # last valid commit
        self.last_offset = -1
        self.base: Commit | None = None  # the commit at ``start``
        self.round_ended = False  # ``start`` is followed by a complete rewrite round (R1)
        # deterministic mode, since the last valid commit: what was decided, and what has left the job (D2, D5)
        self.decisions: list[InputDecision | IdleNote] = []
        self.calls: dict[int, tuple[CallResult, ...]] = {}  # number of a record → what its calls have returned
        self.lease = 0
        self.released: dict[TopicPartition, int] = {}
        self.released_digests: dict[TopicPartition, list[tuple[int, int]]] = {}  # (seq, digest) of each output release
        self.invalid_messages = 0
        self._committed = False  # generation ``top`` has committed: its numbered attempts have lost, or were closed
        self._seqs: dict[int, int] = {}  # attempt -> last ChangelogSeq, of generation ``top``
        self._segments: dict[int, list[bytes]] = {}  # attempt -> open data
        self._in_doubt_segment: Segment | None = None  # of a bulk write without an outcome
        self._since_bulk_write: list[int] = []  # generations since

    @property
    def in_doubt(self) -> str | None:
        """The bulk write id of the last commit, if that waits for its outcome."""
        return None if self.in_doubt_commit is None else self.in_doubt_commit.bulk_write_id

    @property
    def in_doubt_commit(self) -> Commit | None:
        """The last commit, if that is a bulk write's and waits for its outcome."""
        return None if self._in_doubt_segment is None else self._in_doubt_segment.commit

    @property
    def complete(self) -> bool:
        """Whether the messages since ``start`` give the whole state (R1)."""
        return self.start == 0 or self.round_ended

    def feed(self, offset: int, value: bytes) -> Segment | None:
        """Take the next message; return the segment that it closes, if any. Raises Halted: a broken log."""
        if offset < self.next_offset:
            raise Halted(
                f"{self.changelog}: read offset {offset} after {self.next_offset - 1}: the log went backwards: start "
                "again; if it halts again, restore the topic",
                partition=self.changelog,
                offset=offset,
                code=HaltCode.LOG_WENT_BACK,
            )
        try:
            kind, generation, seq, attempt = decode_changelog_header(value)
            first = offset == self.start
            self.next_offset = offset + 1
            if generation < self.top:
                self.invalid_messages += 1
                return None
            if generation > self.top:
                self._new_generation(generation)
                if first and self.start and kind is not ChangelogType.CLAIM:
                    self._seqs[attempt] = seq - 1  # the base: its predecessors are trimmed
            if attempt and self._committed:
                self.invalid_messages += 1
                return None
            if not self._admit(offset, seq, attempt):
                return None
            if kind is ChangelogType.DATA:
                self._segments.setdefault(attempt, []).append(value)
                return None
            if kind is ChangelogType.INPUT_DECISION:
                self.decisions.append(decode_input_decision(value))
            elif kind is ChangelogType.NOTE:
                self._note(decode_note(value))
            elif kind is ChangelogType.TIME_LEASE:
                self.lease = max(self.lease, decode_time_lease(value).t)
            elif kind is ChangelogType.OUTPUT_RELEASE:
                self._release(decode_output_release(value))
            elif kind is ChangelogType.COMMIT:
                return self._commit(offset, decode_commit(value), is_base=first and self.start > 0)
            elif kind is ChangelogType.OUTCOME:
                return self.settle(*decode_outcome(value))
        except DecodeError as error:
            raise damaged(self.changelog, offset, error) from error
        return None

    def settle(self, bulk_write_id: str, counts: bool) -> Segment | None:
        """Take a bulk write's outcome; return the segment that its commit closes, if that waited for it and counts."""
        segment = self._in_doubt_segment
        if segment is None or segment.commit.bulk_write_id != bulk_write_id:
            return None
        self._in_doubt_segment = None
        if not counts:
            self.invalid_messages += len(segment.messages)
            return None
        # none of it is from before the bulk write has gone on from it
        open_ = self.decisions, self.calls, self.released, self.released_digests
        self._close(segment)
        self.decisions, self.calls, self.released, self.released_digests = open_
        for generation in self._since_bulk_write:
            self.rollback_history = extend_rollback_history(
                self.rollback_history, RollbackEntry(generation, segment.commit.checkpoint_id)
            )
        return segment

    def _new_generation(self, generation: int) -> None:
        self._since_bulk_write.append(generation)
        restored = self.last.checkpoint_id if self.last is not None else 0
        self.invalid_messages += sum(map(len, self._segments.values()))
        self.top = generation
        self.rollback_history = extend_rollback_history(self.rollback_history, RollbackEntry(generation, restored))
        self._seqs, self._segments, self._committed = {}, {}, False

    def _admit(self, offset: int, seq: int, attempt: int) -> bool:
        last = self._seqs.get(attempt, -1 if attempt == 0 else 0)
        if seq <= last:
            return False  # a repeat of an at-least-once log
        if seq != last + 1:
            raise Halted(
                f"{self.changelog}, offset {offset}: ChangelogSeq {seq} after {last} in generation {self.top}: "
                "a message was lost; check acks and retention of the topic",
                partition=self.changelog,
                offset=offset,
                code=HaltCode.LOG_LOST,
            )
        self._seqs[attempt] = seq
        return True

    def _note(self, note: IdleNote | CallsNote) -> None:
        if isinstance(note, CallsNote):
            self.calls |= dict(note.records)
        else:
            self.decisions.append(note)

    def _release(self, release: OutputRelease) -> None:
        self.released |= dict(release.seqs)
        for (partition, seq), digest in zip(release.seqs, release.digests or (), strict=False):
            self.released_digests.setdefault(partition, []).append((seq, digest))

    def _commit(self, offset: int, commit: Commit, *, is_base: bool) -> Segment | None:
        messages, settled = tuple(self._segments.pop(commit.attempt, ())), None
        if is_base:
            self.base, messages = commit, ()
        else:
            digest = 0
            for message in messages:
                digest = zlib.crc32(message, digest)
            if (len(messages), digest) != (commit.data_count, commit.data_digest):
                raise Halted(
                    f"{self.changelog}, offset {offset}: commit of checkpoint {commit.checkpoint_id} closes "
                    f"{commit.data_count} data messages with digest {commit.data_digest:#x}, found {len(messages)} "
                    f"with {digest:#x}: {DAMAGED}",
                    partition=self.changelog,
                    offset=offset,
                    checkpoint_id=commit.checkpoint_id,
                    code=HaltCode.CHANGELOG_DAMAGED,
                )
            if (
                self._in_doubt_segment is not None
                and commit.bulk_write_id != self._in_doubt_segment.commit.bulk_write_id
            ):  # what follows it proves its outcome
                settled = self.settle(
                    self._in_doubt_segment.commit.bulk_write_id or "",
                    commit.previous == self._in_doubt_segment.commit.checkpoint_id,
                )
            if self.last is not None and commit.checkpoint_id <= self.last.checkpoint_id:
                raise Halted(
                    f"{self.changelog}, offset {offset}: commit of checkpoint {commit.checkpoint_id} after "
                    f"{self.last.checkpoint_id}, and checkpoints only grow: {DAMAGED}",
                    partition=self.changelog,
                    offset=offset,
                    checkpoint_id=commit.checkpoint_id,
                    code=HaltCode.CHANGELOG_DAMAGED,
                )
        self.invalid_messages += sum(map(len, self._segments.values()))
        self._segments, self._committed = {}, True
        if commit.bulk_write_id is not None and not is_base:  # the one before it counts, whatever becomes of this one
            self._in_doubt_segment, self._since_bulk_write = Segment(commit, offset, messages), []
            return settled
        segment = Segment(commit, offset, (*(() if settled is None else settled.messages), *messages))
        self._close(segment)
        return segment

    def _close(self, segment: Segment) -> None:
        """Take a commit that counts."""
        commit = segment.commit
        after_base = self.base is None or commit.checkpoint_id > self.base.checkpoint_id
        if segment.offset != self.start and not commit.cursor and after_base:
            self.round_ended = True
        self.decisions, self.calls, self.released, self.released_digests = [], {}, {}, {}
        self.last, self.last_offset = commit, segment.offset
        self.rollback_history = commit.rollback_history


def extend_rollback_history(
    rollback_history: tuple[RollbackEntry, ...], entry: RollbackEntry
) -> tuple[RollbackEntry, ...]:
    """Append an incarnation and drop what it makes superfluous.

    (g, R) rolls back everything that an older (g1, R) rolls back.
    """
    kept = tuple(e for e in rollback_history if e.checkpoint_id < entry.checkpoint_id)
    return (*kept, entry)


def is_rolled_back(rollback_history: tuple[RollbackEntry, ...], generation: int, checkpoint_id: int) -> bool:
    """Tell whether a later incarnation has taken back what ``generation`` made for ``checkpoint_id`` (R3)."""
    for later, restored in reversed(rollback_history):
        if later <= generation:
            return False
        if restored < checkpoint_id:
            return True
    return False
