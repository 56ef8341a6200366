"""Ownership of a task: its generation, and the check that nobody else wrote between its own messages (C1-C3, C6)."""

from framework.errors import Fenced, Halted
from protocol.changelog import (
    ChangelogHeader,
    ChangelogType,
    Claim,
    decode_changelog_header,
    decode_claim,
    encode_claim,
)
from protocol.errors import DecodeError


class Ownership:
    """Counts what this process appended to its changelog. As the sole writer its offsets are contiguous (C3)."""

    def __init__(self, name: str, claim: Claim) -> None:
        self.name = name  # of the changelog, for errors
        self.claim = claim
        self.generation = 0
        self.next_seq = 0
        self._verified = -1  # offset of the last own message known to be preceded by nothing foreign
        self._sent = 0  # own messages sent since
        self._reading: tuple[int, int, int] | None = (
            None  # (first offset, offset of the own message, highest generation that is ours)
        )

    def claim_message(self, generation: int) -> bytes:
        """Return the claim of a new generation; its ChangelogSeq is 0."""
        self.generation, self.next_seq, self._sent = generation, 1, self._sent + 1
        return encode_claim(ChangelogHeader(ChangelogType.CLAIM, generation, 0, 0), self.claim)

    def header(self, kind: ChangelogType) -> ChangelogHeader:
        """Return the header of the next message of this generation, and count it."""
        header = ChangelogHeader(kind, self.generation, self.next_seq, 0)
        self.count(1)
        return header

    def count(self, messages: int) -> None:
        """Note that so many messages are being appended."""
        self.next_seq += messages
        self._sent += messages

    def settle(self, offset: int) -> None:
        """Take the own message at ``offset`` as the start of contiguous ownership."""
        self._verified, self._sent, self._reading = offset, 0, None

    def appended(self, offset: int, highest_own: int) -> int | None:
        """Verify an own message at ``offset`` (C3): None if nothing foreign can precede it, else where to read back."""
        if offset == self._verified + self._sent:
            self.settle(offset)
            return None
        self._reading = (self._verified + 1, offset, highest_own)
        return self._verified + 1

    def read_back(self, offset: int, value: bytes) -> None:
        """Look at a message between the last verified and the own one. Raises Fenced if a newer generation wrote it."""
        assert self._reading is not None
        _, own_offset, highest_own = self._reading
        try:
            kind, generation, _, _ = decode_changelog_header(value)
            if offset >= own_offset or generation <= highest_own:
                return
            repeated = kind is ChangelogType.CLAIM and decode_claim(value) == self.claim
        except DecodeError as error:
            raise Halted(
                f"{self.name} offset {offset}: {error}; the changelog is damaged: restore the topic, "
                "or delete the job's state"
            ) from error
        if not repeated:  # the log may hold our own claim twice, and have reported the later one
            raise Fenced(f"{self.name}: generation {generation} claimed at offset {offset}; {self.generation} gives up")

    def read_back_done(self) -> None:
        """Nothing newer stands before the own message."""
        assert self._reading is not None
        self.settle(self._reading[1])
