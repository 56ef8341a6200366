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


class SinceCommit:
    """Decisions of a deterministic task since its last valid commit, and outputs that have left the job (D2, D5)."""

    def __init__(self, lease: int = 0) -> None:
        """``lease``: of a predecessor; a commit does not end it."""
        self.lease = lease
        self.decisions: list[InputDecision | IdleNote] = []
        self.calls: dict[int, tuple[CallResult, ...]] = {}  # number of a record → what its calls have returned
        self.released: dict[TopicPartition, int] = {}
        self.released_digests: dict[TopicPartition, list[tuple[int, int]]] = {}  # (seq, digest) of each output release

    def take(self, kind: ChangelogType, value: bytes) -> None:
        """Take a valid message of such a kind."""
        if kind is ChangelogType.INPUT_DECISION:
            self.decisions.append(decode_input_decision(value))
        elif kind is ChangelogType.NOTE:
            note = decode_note(value)
            if isinstance(note, CallsNote):
                self.calls |= dict(note.records)
            else:
                self.decisions.append(note)
        elif kind is ChangelogType.TIME_LEASE:
            self.lease = max(self.lease, decode_time_lease(value).t)
        elif kind is ChangelogType.OUTPUT_RELEASE:
            self._release(decode_output_release(value))

    def _release(self, release: OutputRelease) -> None:
        self.released |= dict(release.seqs)
        for (partition, seq), digest in zip(release.seqs, release.digests or (), strict=False):
            self.released_digests.setdefault(partition, []).append((seq, digest))


class OpenGeneration:
    """The messages of the highest generation that no commit of it has closed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.committed = False  # its numbered attempts have lost, or were closed
        self.segments: dict[int, list[bytes]] = {}  # attempt → open data
        self._seqs: dict[int, int] = {}  # attempt → last ChangelogSeq

    def begin_at(self, attempt: int, seq: int) -> None:
        """Take the message with this ChangelogSeq as the first: its predecessors are trimmed."""
        assert not self._seqs, (self.number, self._seqs)
        self._seqs[attempt] = seq - 1

    def last_seq(self, attempt: int) -> int:
        """Return the last ChangelogSeq of an attempt. A claim has 0, and only a claimed generation has attempt 0."""
        return self._seqs.get(attempt, -1 if attempt == 0 else 0)

    def follows(self, attempt: int, seq: int) -> None:
        """Note the next message of an attempt."""
        assert seq == self.last_seq(attempt) + 1, (self.number, attempt, seq)
        self._seqs[attempt] = seq

    def close(self) -> int:
        """Note a commit, whose data was taken out; return how many other messages it makes invalid."""
        invalid, self.segments, self.committed = sum(map(len, self.segments.values())), {}, True
        return invalid


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
        self.rollback_history: tuple[RollbackEntry, ...] = ()
        self.last: Commit | None = None  # last valid commit
        self.last_offset = -1
        self.base: Commit | None = None  # the commit at ``start``
        self.round_ended = False  # ``start`` is followed by a complete rewrite round (R1)
        self.since = SinceCommit()
        self.invalid_messages = 0
        self._open = OpenGeneration(0)
        self._in_doubt: tuple[Segment, list[int]] | None = None  # of a bulk write without outcome; generations since

    @property
    def top(self) -> int:
        """The highest generation seen."""
        return self._open.number

    @property
    def in_doubt(self) -> str | None:
        """The bulk write id of the last commit, if that waits for its outcome."""
        return None if self.in_doubt_commit is None else self.in_doubt_commit.bulk_write_id

    @property
    def in_doubt_commit(self) -> Commit | None:
        """The last commit, if that is a bulk write's and waits for its outcome."""
        return None if self._in_doubt is None else self._in_doubt[0].commit

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
            if generation < self._open.number:
                self.invalid_messages += 1
                return None
            if generation > self._open.number:
                self._new_generation(generation)
                if first and self.start and kind is not ChangelogType.CLAIM:
                    self._open.begin_at(attempt, seq)
            if attempt and self._open.committed:
                self.invalid_messages += 1
                return None
            if not self._admit(offset, seq, attempt):
                return None
            if kind is ChangelogType.DATA:
                self._open.segments.setdefault(attempt, []).append(value)
            elif kind is ChangelogType.COMMIT:
                return self._commit(offset, decode_commit(value), is_base=first and self.start > 0)
            elif kind is ChangelogType.OUTCOME:
                return self.settle(*decode_outcome(value))
            else:
                self.since.take(kind, value)
        except DecodeError as error:
            raise damaged(self.changelog, offset, error) from error
        return None

    def settle(self, bulk_write_id: str, counts: bool) -> Segment | None:
        """Take a bulk write's outcome; return the segment that its commit closes, if that waited for it and counts."""
        if self._in_doubt is None or self._in_doubt[0].commit.bulk_write_id != bulk_write_id:
            return None
        (segment, generations), self._in_doubt = self._in_doubt, None
        if not counts:
            self.invalid_messages += len(segment.messages)
            return None
        self._close(segment)  # what is decided since is not from before it: the bulk write has gone on from that
        for generation in generations:
            self._rolled_back(generation, segment.commit.checkpoint_id)
        return segment

    def _new_generation(self, generation: int) -> None:
        if self._in_doubt is not None:
            self._in_doubt[1].append(generation)
        self.invalid_messages += self._open.close()
        self._open = OpenGeneration(generation)
        self._rolled_back(generation, self.last.checkpoint_id if self.last is not None else 0)

    def _rolled_back(self, generation: int, restored: int) -> None:
        self.rollback_history = extend_rollback_history(self.rollback_history, RollbackEntry(generation, restored))

    def _admit(self, offset: int, seq: int, attempt: int) -> bool:
        last = self._open.last_seq(attempt)
        if seq <= last:
            return False  # a repeat of an at-least-once log
        if seq != last + 1:
            text = f"ChangelogSeq {seq} after {last} in generation {self.top}: a message was lost"
            raise self._halted(offset, f"{text}; check acks and retention of the topic", HaltCode.LOG_LOST)
        self._open.follows(attempt, seq)
        return True

    def _commit(self, offset: int, commit: Commit, *, is_base: bool) -> Segment | None:
        messages, settled, id_ = tuple(self._open.segments.pop(commit.attempt, ())), None, commit.checkpoint_id
        if is_base:
            self.base, messages = commit, ()
        else:
            digest = 0
            for message in messages:
                digest = zlib.crc32(message, digest)
            if (len(messages), digest) != (commit.data_count, commit.data_digest):
                text = f"{commit.data_count} data messages with digest {commit.data_digest:#x}, found {len(messages)}"
                raise self._damaged(offset, id_, f"closes {text} with {digest:#x}")
            in_doubt = self.in_doubt_commit
            if in_doubt is not None and commit.bulk_write_id != in_doubt.bulk_write_id:  # it proves the outcome
                settled = self.settle(in_doubt.bulk_write_id or "", commit.previous == in_doubt.checkpoint_id)
            if self.last is not None and id_ <= self.last.checkpoint_id:
                raise self._damaged(offset, id_, f"after {self.last.checkpoint_id}, and checkpoints only grow")
        self.invalid_messages += self._open.close()
        if commit.bulk_write_id is not None and not is_base:  # the one before it counts, whatever becomes of this one
            self._in_doubt = Segment(commit, offset, messages), []
            return settled
        segment = Segment(commit, offset, (*(() if settled is None else settled.messages), *messages))
        self._close(segment)
        self.since = SinceCommit(self.since.lease)
        return segment

    def _close(self, segment: Segment) -> None:
        """Take a commit that counts."""
        commit = segment.commit
        assert self.last is None or self.last.checkpoint_id < commit.checkpoint_id, (self.last, commit)
        assert self._in_doubt is None, self._in_doubt  # its outcome would be of a commit before this one
        after_base = self.base is None or commit.checkpoint_id > self.base.checkpoint_id
        if segment.offset != self.start and not commit.cursor and after_base:
            self.round_ended = True
        self.last, self.last_offset = commit, segment.offset
        self.rollback_history = commit.rollback_history

    def _damaged(self, offset: int, checkpoint_id: int, text: str) -> Halted:
        text = f"commit of checkpoint {checkpoint_id} {text}: {DAMAGED}"
        return self._halted(offset, text, HaltCode.CHANGELOG_DAMAGED, checkpoint_id)

    def _halted(self, offset: int, text: str, code: HaltCode, checkpoint_id: int | None = None) -> Halted:
        text = f"{self.changelog}, offset {offset}: {text}"
        return Halted(text, code=code, partition=self.changelog, offset=offset, checkpoint_id=checkpoint_id)


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
