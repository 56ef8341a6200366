"""Rewriting committed state into the changelog, slice by slice, so that its old part can be trimmed (K2)."""

from dataclasses import dataclass

from grete.core.limits import REWRITE_ROUNDS_MAX
from grete.protocol.commit import RoundStart


@dataclass(slots=True)
class ChangelogRewrite:
    """The progress of the changelog rewrite (K2). Offsets are those of commits. Each commit holds all of it."""

    cursor: bytes = b""
    round_start: int = 0  # the commit at which the round in progress began; 0: the genesis
    base: int = 0  # start of the last round that an earlier commit completed
    started_ms: int = 0  # append time of the commit at round_start
    rounds: tuple[RoundStart, ...] = ()  # earlier round starts that history still keeps, oldest first, thinned out

    def committed(self, offset: int, append_time_ms: int, cursor: bytes, changelog_retention_ms: int) -> None:
        """Advance by a commit at ``offset``; an empty cursor: its round is complete."""
        self.cursor = cursor
        if cursor:
            return
        done = RoundStart(self.round_start, self.started_ms)
        self.base, self.round_start, self.started_ms = self.round_start, offset, append_time_ms
        spaced = (
            not self.rounds
            or done.append_time_ms >= self.rounds[-1].append_time_ms + changelog_retention_ms // REWRITE_ROUNDS_MAX
        )
        if done.offset > 0 and spaced:  # the genesis has nothing before it
            self.rounds = (*self.rounds, done)

    def trim(self, now_ms: int, changelog_retention_ms: int) -> int | None:
        """Return the offset before which all is older than the history, and forget it; the commit there stays."""
        due = [start.offset for start in self.rounds if start.append_time_ms + changelog_retention_ms <= now_ms]
        self.rounds = self.rounds[len(due) :]
        return due[-1] if due else None
