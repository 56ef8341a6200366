"""The core of a standby: it applies each commit of a task's changelog to its own store, and writes nothing (R7).

It judges a store as the start of a task does (``startup``), and reads by the same fold. It claims nothing and asks for
nothing to be written to the log: a task never notices how many standbys it has.
"""

from grete.core.actions import Action, ApplySegment, ReadChangelog, WipeStore, WriteChangelogPosition
from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.core.events import ChangelogRow
from grete.core.lifecycle import STANDBY, StandbyPhase
from grete.core.limits import TAIL_MESSAGES
from grete.core.startup import base_in, is_named_by, position_beyond_end
from grete.errors import Halted
from grete.halts import HaltCode
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.ids import TopicPartition


class StandbyCore:
    """The standby of one task. It gets each message of the changelog, and answers with what to do about the store."""

    def __init__(self, task: str, changelog: TopicPartition) -> None:
        """Know nothing yet: ``begin``."""
        self.phase = STANDBY.first
        self.fold = ChangelogFold(changelog, 0)
        self._task, self._changelog = task, changelog
        self._log_start = self._log_end = 0
        self._changelog_position: ChangelogPosition | None = None  # of the store, until the log has confirmed it
        self._base = -1

    @property
    def whole(self) -> bool:
        """Whether a store with all that was read is the whole state as of the last commit."""
        return self.phase is StandbyPhase.FOLLOWING or (self.phase is StandbyPhase.RESTORING and self.fold.complete)

    def begin(self, changelog_position: ChangelogPosition | None, bounds: tuple[int, int]) -> list[Action]:
        """Go on from a store's changelog position if the log may hold it, else restore (R1).

        ``bounds``: of the changelog, as of now. Raises Halted for a log that ends before what the store holds.
        """
        self._log_start, self._log_end = bounds
        self._changelog_position = changelog_position
        if changelog_position is not None and changelog_position.offset >= self._log_end:
            raise position_beyond_end(self._task, self._changelog, changelog_position, self._log_end)
        if changelog_position is None or changelog_position.offset < self._log_start:
            return self._probe()
        self._become(StandbyPhase.FOLLOWING)
        self.fold = ChangelogFold(self._changelog, changelog_position.offset)
        return [ReadChangelog(changelog_position.offset)]

    def trimmed(self, bounds: tuple[int, int]) -> list[Action]:
        """Restore: what comes next in the changelog is gone (K2)."""
        self._log_start, self._log_end = bounds
        return self._probe()

    def row(self, event: ChangelogRow) -> list[Action]:
        """Take the next message. Raises Halted: it is damaged, or the log has lost what was read before it."""
        if self.phase is StandbyPhase.PROBING:
            self._base = max(self._base, base_in(self._task, self._changelog, event))
            return []
        assert self.phase in (StandbyPhase.RESTORING, StandbyPhase.FOLLOWING), f"{self._task}: read in {self.phase}"
        assert self._changelog_position is None or self.phase is StandbyPhase.FOLLOWING, self.phase
        if self._changelog_position is not None:
            if not is_named_by(self._changelog_position, event):
                return self._probe()
            self._changelog_position = None
        before = self._last_ids
        segment = self.fold.feed(event.offset, event.value)
        if segment is None:
            return []
        is_base = segment.offset == self.fold.start > 0  # what is before it was not read
        if not is_base and segment.commit.previous not in before:
            raise self._lost(segment, max(before))
        if self.phase is StandbyPhase.RESTORING and self.fold.complete:
            self._become(StandbyPhase.FOLLOWING)
        return self._applied(segment)

    def end(self) -> list[Action]:
        """All that was there at ``begin`` or ``trimmed`` was read; what comes later is read as it comes."""
        if self.phase is StandbyPhase.PROBING:
            begin = max(self._log_start, self._base)
            self._become(StandbyPhase.RESTORING)
            self.fold = ChangelogFold(self._changelog, begin)
            return [ReadChangelog(begin)]
        # what the store names was never committed to this log
        return [] if self._changelog_position is None else self._probe()

    def stop(self) -> None:
        """End, because of what was raised."""
        self._become(StandbyPhase.STOPPED)

    def _applied(self, segment: Segment) -> list[Action]:
        actions: list[Action] = [ApplySegment(segment.messages, segment.offset)] if segment.messages else []
        if self.phase is StandbyPhase.FOLLOWING and segment.offset > self.fold.start:
            commit = segment.commit
            at = ChangelogPosition(segment.offset, commit.generation, commit.checkpoint_id, commit.nonce)
            actions.append(WriteChangelogPosition(at))
        return actions

    def _probe(self) -> list[Action]:
        if self.phase is not StandbyPhase.PROBING:
            self._become(StandbyPhase.PROBING)
        self._changelog_position, self._base = None, -1
        return [WipeStore(), ReadChangelog(max(self._log_start, self._log_end - TAIL_MESSAGES))]

    @property
    def _last_ids(self) -> tuple[int, ...]:
        """The checkpoints that the next commit may name as the one before it."""
        last, in_doubt = self.fold.last, self.fold.in_doubt_commit
        last_id = -1 if last is None else last.checkpoint_id
        return (last_id,) if in_doubt is None else (last_id, in_doubt.checkpoint_id)

    def _lost(self, segment: Segment, last: int) -> Halted:
        commit = segment.commit
        return Halted(
            f"{self._changelog}, offset {segment.offset}: the commit of checkpoint {commit.checkpoint_id} follows "
            f"checkpoint {commit.previous}, and the last one that was read is {last}: the log has lost messages that "
            "it had shown. Start again: the store is restored if the log no longer holds what it has",
            task=self._task,
            partition=self._changelog,
            offset=segment.offset,
            checkpoint_id=commit.checkpoint_id,
            code=HaltCode.LOG_LOST,
        )

    def _become(self, phase: StandbyPhase) -> None:
        self.phase = STANDBY.change(self._task, self.phase, phase)
