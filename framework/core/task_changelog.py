"""A task's own changelog: one append at a time is in flight, and counts once it is verified (C3).

The first is the claim of the start (startup.py). Behind it come commits, claims of rollbacks, and, in deterministic
mode, input decisions, time leases and output releases.
"""

from collections import Counter

from grete.core.actions import Action, AppendChangelog, ReadChangelog
from grete.core.changelog.ownership import Ownership
from grete.core.commit_pipeline import CommitPipeline
from grete.core.events import ChangelogAppended, ChangelogEnd, ChangelogRow, OutcomeFound
from grete.core.lifecycle import CommitStep, TaskStatus
from grete.core.startup import StartUp
from grete.protocol.changelog import ChangelogType

Taken = tuple[list[Action], ChangelogType | None]  # what to do, and the kind of the own message that is valid now


class TaskChangelog:
    """Takes the log's answers; ``appending``: the kind of message that is on its way or about to be."""

    def __init__(self, start_up: StartUp, ownership: Ownership, commits: CommitPipeline, seen: Counter[str]) -> None:
        self.appending: ChangelogType | None = ChangelogType.CLAIM  # the start's
        self.ownership = ownership
        self.commits = commits
        self._start_up = start_up
        self._seen = seen

    def claim(self) -> AppendChangelog:
        """Claim the next generation, for a rollback (C6)."""
        self.appending, generation = ChangelogType.CLAIM, self.ownership.generation + 1
        return AppendChangelog(self.ownership.claim_message(generation), generation)

    def commit(self) -> list[Action]:
        """Begin to commit what is frozen, once its outputs are acknowledged; nothing else is appended before."""
        actions = self.commits.write_data()
        if actions:
            self.appending = ChangelogType.COMMIT
        return actions

    def append(self, messages: list[bytes], *, outputs: int, sync: bool) -> AppendChangelog:
        """Append messages of deterministic mode: the log answers the last one, and so covers those before it."""
        *before, value = messages
        self.appending, generation = ChangelogType(value[0] & 15), self.ownership.generation
        return AppendChangelog(value, generation, before=tuple(before), outputs=outputs, sync=sync)

    def appended(self, event: ChangelogAppended) -> Taken:
        """Take the answer to what was appended."""
        if not self._start_up.done:
            return self._start_up.appended(event), None
        ownership = self.ownership
        if ownership.in_doubt:
            return [], None  # the process ends: its successor finds what is valid (C4)
        # a rollback's claim is n + 1 after n: anything above n before it is another's (1.8 C1)
        highest_own = ownership.generation - (self.appending is ChangelogType.CLAIM)
        if event.fenced:
            return [ReadChangelog(ownership.refused(highest_own))], None
        gap = ownership.appended(event.offset, highest_own, event.trailing)
        if self.appending is ChangelogType.COMMIT:
            self.commits.appended(event)
        if gap is not None:
            self._seen["tails verified"] += 1
            return [ReadChangelog(gap)], None
        return self._valid()

    def read(self, event: ChangelogRow | ChangelogEnd | OutcomeFound) -> Taken:
        """Take what was read: for the start, or to verify what is before the own message. Raises Fenced, Halted."""
        if not self._start_up.done:
            actions = self._start_up.read(event)
            return self._valid(*actions) if self._start_up.done else (actions, None)
        if isinstance(event, ChangelogRow):
            self.ownership.verify_tail(event.offset, event.value)
            return [], None
        self.ownership.tail_verified()
        return self._valid()

    def check_invariants(self, status: TaskStatus, frozen: int) -> None:
        """Raise AssertionError unless this holds between any two steps of a task that has frozen ``frozen``."""
        self.ownership.check_invariants()
        self.commits.check_invariants()
        pending, committed, started = self.commits.pending, self.commits.committed, self._start_up.done
        assert (status is TaskStatus.STARTING) != started, (status, self._start_up.phase)
        assert committed is not None or status in (TaskStatus.STARTING, TaskStatus.GENESIS), status
        closed = committed if pending is None else pending
        assert closed is None or frozen == closed.checkpoint_id, (frozen, closed)
        committing = pending is not None and pending.step in (CommitStep.DATA, CommitStep.COMMIT, CommitStep.VERIFY)
        assert (self.appending is ChangelogType.COMMIT) == committing, (self.appending, pending)
        assert started or self.appending is ChangelogType.CLAIM, (self._start_up.phase, self.appending)

    def _valid(self, *actions: Action) -> Taken:
        """Nothing of a newer generation is before the own message (C2)."""
        kind, self.appending = self.appending, None
        return [*actions, *(self.commits.verified() if kind is ChangelogType.COMMIT else ())], kind
