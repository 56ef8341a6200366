"""Ownership of a task: its generation, and the check that no other writes between its own messages (C1-C3, C6)."""

from grete.core.changelog.damage import check_generation, message
from grete.errors import Fenced, FrameworkError, Halted, TransientError
from grete.halts import HaltCode
from grete.protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    decode_changelog_header,
    decode_claim,
    encode_claim,
)
from grete.protocol.ids import TopicPartition

NOWHERE = 1 << 62  # the offset of a message that the log did not take: everything is before it


class TailCheck:
    """Looks for a newer generation among the messages before an own one (C3): for workers and bulk writes alike.

    It is fed from where the writer's verified messages end, up to and with the own message at ``offset``.
    """

    def __init__(self, changelog: TopicPartition, offset: int, highest_own: int, begin: int) -> None:
        """``highest_own``: the highest generation that is the writer's own; ``begin``: the first offset to be read."""
        self.offset = offset
        self._changelog, self._highest_own = changelog, highest_own
        self._read = begin - 1  # offset of the last message read

    def row(self, offset: int, value: bytes, own_claim: Claim | None = None) -> int | None:
        """Return the generation of a message that is newer, and no repeat of the own claim. Raises Halted: damaged."""
        self._read = offset
        with message(self._changelog, offset):
            kind, generation, _, _ = decode_changelog_header(value)
            if offset >= self.offset or generation <= self._highest_own:
                return None
            repeated = kind is ChangelogType.CLAIM and decode_claim(value) == own_claim
        return None if repeated else generation  # the log may hold the own claim twice, and have reported the later one

    def done(self) -> None:
        """Nothing newer is before the own message. Raises Halted if that message was not read (decision 0011).

        Then the messages before it cannot be known: an empty read proves nothing.
        """
        if self._read < self.offset:
            raise Halted(
                f"{self._changelog}: own message at offset {self.offset}, but the changelog ends behind offset "
                f"{self._read}: the log has lost messages that it acknowledged: restore the topic, or start the "
                "job under another name (if its leader has just changed and lagged behind, starting again is enough)",
                partition=self._changelog,
                offset=self.offset,
                code=HaltCode.LOG_LOST,
            )


class Ownership:
    """Counts what this process appended to its changelog. As the sole writer its offsets are contiguous (C3).

    In a changelog in transactions (S1) each claim and commit has one more offset behind it, ``trailing``: counted in, a
    gap also shows the writes of a process that has not taken the transactional id over.
    """

    def __init__(self, changelog: TopicPartition) -> None:
        self.changelog = changelog  # for errors
        self.claim: Claim | None = None  # of this process; None before its start
        self.generation = 0
        self.next_seq = 0
        self._verified = -1  # last offset known to be own, and to be preceded by nothing foreign
        self._sent = 0  # own messages sent since, up to the one that the log will answer
        self._behind = 0  # data messages sent behind that one
        self._check: TailCheck | None = None  # while the tail is being verified
        self._trailing = 0  # of the own message that it ends with
        self._doubt: FrameworkError | None = None  # what has happened, if no newer claim is the reason for it

    @property
    def nonce(self) -> bytes:
        """The random bytes that tell this process from all others."""
        assert self.claim is not None, f"{self.changelog}: no process has started"
        return self.claim.nonce

    def claim_message(self, generation: int) -> bytes:
        """Return the claim of a new generation; its ChangelogSeq is 0."""
        assert self.claim is not None, f"{self.changelog}: no process has started"
        check_generation(self.changelog, generation)
        self.generation, self.next_seq, self._sent, self._behind = generation, 1, self._sent + self._behind + 1, 0
        return encode_claim(ChangelogHeader(ChangelogType.CLAIM, generation, 0, 0), self.claim)

    def header(self, kind: ChangelogType) -> ChangelogHeader:
        """Return the header of the next message of this generation, which the log will answer, and count it."""
        header = ChangelogHeader(kind, self.generation, self.next_seq, 0)
        self.next_seq += 1
        self._sent, self._behind = self._sent + self._behind + 1, 0
        return header

    def count_data(self, messages: int) -> None:
        """Note that data messages are being appended: the answer to what comes behind them covers them."""
        assert messages >= 0, messages
        self.next_seq += messages
        self._behind += messages

    def settle(self, offset: int, trailing: int = 0) -> None:
        """Take the own message at ``offset`` as the start of contiguous ownership."""
        assert offset + trailing > self._verified, (offset, trailing, self._verified)  # it is a later one
        self._verified, self._sent, self._check = offset + trailing, 0, None

    def appended(self, offset: int, highest_own: int, trailing: int = 0) -> int | None:
        """Verify an own message at ``offset`` (C3). Return None if nothing foreign precedes it, else where to look."""
        if offset == self._verified + self._sent:
            self.settle(offset, trailing)
            return None
        if offset < self._verified + self._sent:
            raise Halted(
                f"{self.changelog}: own message at offset {offset}, expected at {self._verified + self._sent} or "
                "later: the log has lost messages that it acknowledged: restore the topic, or start the job "
                "under another name",
                partition=self.changelog,
                offset=offset,
                code=HaltCode.LOG_LOST,
            )
        self._check, self._trailing = TailCheck(self.changelog, offset, highest_own, self._verified + 1), trailing
        return self._verified + 1

    def refused(self, highest_own: int) -> int:
        """Return from where on to look for the claim because of which the log refused an own message."""
        return self.doubted(
            highest_own,
            TransientError(
                f"{self.changelog}: the log refused a message of generation {self.generation}, though no newer one has "
                "claimed it: its transaction took longer than the Kafka option producer.transaction.timeout.ms, or "
                "another process is just starting this task",
                partition=self.changelog,
            ),
        )

    def doubted(self, highest_own: int, error: FrameworkError) -> int:
        """Return from where on to look for a newer claim; without one, ``tail_verified`` raises ``error``."""
        self._doubt, self._check = error, TailCheck(self.changelog, NOWHERE, highest_own, self._verified + 1)
        return self._verified + 1

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        assert self._sent >= 0 <= self._behind and self._verified >= -1, (self._sent, self._behind, self._verified)
        assert self.generation == 0 or (self.claim is not None and self.next_seq >= 1), (self.generation, self.next_seq)
        assert self._check is None or self._sent or self.in_doubt, (
            f"{self.changelog}: reads a tail that has nothing of it"
        )

    @property
    def in_doubt(self) -> bool:
        """Whether the end of this process is certain, and only its reason is being looked for."""
        return self._doubt is not None

    def verify_tail(self, offset: int, value: bytes) -> None:
        """Look at a message between the last verified and the own one. Raises Fenced if a newer generation wrote it."""
        assert self._check is not None
        newer = self._check.row(offset, value, self.claim)
        if newer is not None:
            raise Fenced(
                f"{self.changelog}: another worker has taken over this task (generation {newer}, claim at offset "
                f"{offset}); this worker (generation {self.generation}) is fenced and stops",
                partition=self.changelog,
                offset=offset,
            )

    def tail_verified(self) -> None:
        """Nothing newer is before the own message. Raises the error that made us look, if no newer claim did (C5).

        Raises Halted if the own message was not there: then the messages before it cannot be known (decision 0011).
        """
        if self._doubt is not None:
            raise self._doubt
        assert self._check is not None
        self._check.done()
        self.settle(self._check.offset, self._trailing)
