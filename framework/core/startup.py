"""The start of a task: find the last commit, claim a generation, make the local store agree (C1, C2, R1)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from grete.core.actions import (
    Action,
    AppendChangelog,
    ApplySegment,
    FindOutcome,
    ReadChangelog,
    WipeStore,
    WriteChangelogPosition,
)
from grete.core.changelog.changelog_fold import ChangelogFold, Segment
from grete.core.changelog.damage import unreadable
from grete.core.changelog.ownership import Ownership
from grete.core.events import ChangelogAppended, ChangelogEnd, ChangelogRow, OutcomeFound, Start
from grete.core.external_inputs import Bounds
from grete.core.lifecycle import START, StartupPhase
from grete.core.limits import TAIL_MESSAGES
from grete.errors import Fenced, Halted
from grete.halts import HaltCode
from grete.protocol.changelog import ChangelogType, Claim, decode_changelog_header
from grete.protocol.changelog_position import ChangelogPosition
from grete.protocol.commit import Commit, decode_commit
from grete.protocol.errors import DecodeError
from grete.protocol.ids import TopicPartition


class OwnClaim(NamedTuple):
    """The place of this process's claim in the log."""

    offset: int
    trailing: int
    lost: bool = False  # an equal or higher one is before it


class StartUp:
    """The start of one process for one task. ``bounds``: of each partition that the task touches, as of Start."""

    def __init__(
        self, name: str, changelog: TopicPartition, ownership: Ownership, check: Callable[[Commit], None]
    ) -> None:
        """``check`` raises for a last commit that the task cannot go on from, before anything is written."""
        self.name = name
        self.ownership = ownership
        self.phase = START.first
        self.restored = False
        self.segments = 0
        self.fold = ChangelogFold(changelog, 0)
        self.bounds: Bounds = {}
        self._check = check
        self._changelog = changelog
        self._changelog_position: ChangelogPosition | None = None
        self._base = -1  # the last round start that a commit near the end names
        self._own = OwnClaim(-1, 0)

    @property
    def done(self) -> bool:
        """Whether the restore is complete: the changelog was read up to the own claim, and the store is as it says."""
        return self.phase is StartupPhase.DONE

    def begin(self, event: Start) -> list[Action]:
        """Return the first actions: redo from a changelog position that the log still holds, else restore.

        Raises Halted for a log that ends before what it has acknowledged: to go on would take committed checkpoints
        back. Before the genesis commit nothing is sent, so who has sent has a changelog (A2).
        """
        self.ownership.claim = Claim(event.nonce, event.host, event.pid, event.wall_ms)
        self.bounds = event.bounds
        log_start, log_end = event.bounds[self._changelog]
        changelog_position = self._changelog_position = event.changelog_position
        if changelog_position is not None and changelog_position.offset >= log_end:
            raise position_beyond_end(self.name, self._changelog, changelog_position, log_end)
        if event.sent is not None and log_end == 0:
            raise changelog_emptied(self.name, self._changelog, event.sent)
        if changelog_position is not None and log_start <= changelog_position.offset < log_end:
            self._become(StartupPhase.READING)
            self.fold = ChangelogFold(self._changelog, changelog_position.offset)
            return [ReadChangelog(changelog_position.offset)]
        return self._probe()

    def _probe(self) -> list[Action]:
        assert not self.restored, f"{self.name}: a second restore in one start"
        self.restored, (log_start, log_end) = True, self.bounds[self._changelog]
        wipe: list[Action] = [WipeStore()] if self._changelog_position is not None or log_end > 0 else []
        self._become(StartupPhase.PROBING)
        return [*wipe, ReadChangelog(max(log_start, log_end - TAIL_MESSAGES))]

    def read(self, event: ChangelogRow | ChangelogEnd | OutcomeFound) -> list[Action]:
        """Take what was asked for: a message of the changelog, its end, or the outcome of a bulk write."""
        if isinstance(event, OutcomeFound):
            return self.outcome(event)
        return self.row(event) if isinstance(event, ChangelogRow) else self.end(event)

    def row(self, event: ChangelogRow) -> list[Action]:
        """Take one message of the changelog."""
        if self.phase is StartupPhase.PROBING:
            self._base = max(self._base, base_in(self.name, self._changelog, event))
            return []
        if not self.restored and self._at_changelog_position:
            assert self._changelog_position is not None
            if not is_named_by(self._changelog_position, event):
                return self._probe()
        if self.phase is StartupPhase.VERIFYING:
            if event.offset > self._own.offset:
                return []  # of no concern here: C3 finds a later claim when it matters
            if event.offset == self._own.offset and self.fold.top >= self.ownership.generation:
                self._own = self._own._replace(lost=True)
        return self._applied(self.fold.feed(event.offset, event.value))

    def _applied(self, segment: Segment | None) -> list[Action]:
        if segment is None or not segment.messages:
            return []
        self.segments += 1
        return [ApplySegment(segment.messages, segment.offset)]

    def outcome(self, event: OutcomeFound) -> list[Action]:
        """Take what the changelog of task (0, 0) says of the bulk write whose commit is the last one here (1.8).

        Raises Halted if it says nothing: no task may build on that commit, nor pass it over.
        """
        if event.counts is None:
            raise Halted(
                f"{self.name}: the bulk write {event.bulk_write_id} has rewritten its state, and has not written "
                "its outcome. If it still runs, wait for it. If it has died, run the same command again, or settle it "
                "by grete backfill JOB --resume or --abort",
                task=self.name,
                code=HaltCode.BULK_WRITE_IN_DOUBT,
            )
        applied = self._applied(self.fold.settle(event.bulk_write_id, event.counts))
        assert self.fold.in_doubt is None, (
            f"{self.name}: the outcome is of another bulk write than {self.fold.in_doubt}"
        )
        return applied + self.end(ChangelogEnd(self.fold.next_offset))

    def end(self, event: ChangelogEnd) -> list[Action]:
        """The changelog was read to its end."""
        if not self.restored and self._at_changelog_position:
            return self._probe()  # what the changelog position names was never committed to this log
        if self.phase is StartupPhase.PROBING:
            begin = max(self.bounds[self._changelog][0], self._base)
            self._become(StartupPhase.READING)
            self.fold = ChangelogFold(self._changelog, begin)
            return [ReadChangelog(begin)]
        if self.fold.in_doubt is not None:
            return [FindOutcome(self.fold.in_doubt)]
        if self.phase is StartupPhase.VERIFYING:
            if self.fold.next_offset <= self._own.offset:
                raise Halted(
                    f"{self.name}: the claim that this worker wrote at offset {self._own.offset} is gone, the "
                    f"changelog ends at {event.offset}: the log has lost a message that it acknowledged. Start again; "
                    "if it halts again, restore the topic",
                    task=self.name,
                    code=HaltCode.LOG_LOST,
                )
            if not self._own.lost:
                return self._finish()
        if self.fold.last is not None:
            self._check(self.fold.last)
        self._become(StartupPhase.CLAIMING)
        generation = self.fold.top + 1
        return [AppendChangelog(self.ownership.claim_message(generation), generation)]

    def appended(self, event: ChangelogAppended) -> list[Action]:
        """The claim is in the log, or was refused because of a claim that was not seen yet."""
        if event.fenced:
            self._become(StartupPhase.READING)
        else:
            self._become(StartupPhase.VERIFYING)
            self._own = OwnClaim(event.offset, event.trailing)
        return [ReadChangelog(self.fold.next_offset)]

    def check_new(self, positions: Mapping[TopicPartition, int]) -> None:
        """Raise Halted unless a task without a commit can read its inputs from their first message on."""
        late = [f"{p} starts at {self.bounds[p][0]}" for p in positions if self.bounds[p][0] > 0]
        if late:
            raise Halted(
                f"{self.name} has no commit, but {', '.join(late)}: its changelog was deleted; restore it, or "
                "start the job under another name",
                task=self.name,
                code=HaltCode.CHANGELOG_GONE,
            )

    def check_resumed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Raise Halted if a partition begins behind the position at which the task resumes (K3).

        A position may be beyond the end: an instance that has committed since Start may have passed it. The driver
        looks when it seeks.
        """
        for partition, position in positions.items():
            if position < self.bounds[partition][0]:
                raise Halted(
                    f"{partition} no longer has offset {position}, at which {self.name} reads on: the log starts at "
                    f"{self.bounds[partition][0]}. The retention of the topic is too short: make it longer than any "
                    "pause of the job, and start the job under another name",
                    task=self.name,
                    partition=partition,
                    code=HaltCode.INPUT_GONE,
                )

    def _finish(self) -> list[Action]:
        if self.restored and not self.fold.complete:
            if self.fold.last is None:  # a trim of Grete's leaves a commit
                raise Halted(
                    f"{self.name}: {self._changelog} begins at offset {self.fold.start} and has no commit: something "
                    "else has trimmed it; restore it, or start the job under another name",
                    task=self.name,
                    partition=self._changelog,
                    code=HaltCode.CHANGELOG_GONE,
                )
            raise Fenced(
                f"{self.name}: the changelog was trimmed while it was read from offset {self.fold.start}: a newer "
                "generation is at work; if none is, grete changelog verify says whether something else has trimmed it",
                task=self.name,
            )
        self._become(StartupPhase.DONE)
        self.ownership.settle(self._own.offset, self._own.trailing)
        last = self.fold.last
        if last is None:
            return []
        self._check(last)  # it may be a later one than before the claim
        return [
            WriteChangelogPosition(
                ChangelogPosition(self.fold.last_offset, last.generation, last.checkpoint_id, last.nonce)
            )
        ]

    def _become(self, phase: StartupPhase) -> None:
        self.phase = START.change(self.name, self.phase, phase)

    @property
    def _at_changelog_position(self) -> bool:
        """Whether the next message is the first: that must be what the changelog position names."""
        return self.fold.next_offset == self.fold.start


def is_named_by(changelog_position: ChangelogPosition, event: ChangelogRow) -> bool:
    """Tell whether a message of the changelog is the commit that a store's changelog position names (R1)."""
    try:
        if event.offset != changelog_position.offset:
            return False  # in a log with transactions there may be no message at an offset
        if decode_changelog_header(event.value).type is not ChangelogType.COMMIT:
            return False
        commit = decode_commit(event.value)
    except DecodeError:
        return False
    return (commit.generation, commit.checkpoint_id, commit.nonce) == changelog_position[1:]


def base_in(task: str, changelog: TopicPartition, event: ChangelogRow) -> int:
    """Return the round start that a message names, if it is a commit, else -1 (K2). Raises Halted: it is damaged."""
    try:
        if decode_changelog_header(event.value).type is not ChangelogType.COMMIT:
            return -1
        return decode_commit(event.value).base
    except DecodeError as error:
        raise Halted(
            f"{changelog}, offset {event.offset}: {unreadable(error)}",
            task=task,
            partition=changelog,
            offset=event.offset,
            code=HaltCode.CHANGELOG_DAMAGED,
        ) from error


def position_beyond_end(
    task: str, changelog: TopicPartition, changelog_position: ChangelogPosition, log_end: int
) -> Halted:
    """Return the error for a store that holds a commit which the log does not reach (any more)."""
    return Halted(
        f"{task}: its store holds the commit at offset {changelog_position.offset}, but {changelog} ends at {log_end}: "
        "the log has lost messages, or is not this job's. Restore the log; or, if this log is the right one, delete "
        f"the state directory of {task}",
        task=task,
        code=HaltCode.LOG_LOST,
    )


def changelog_emptied(task: str, changelog: TopicPartition, sent: TopicPartition) -> Halted:
    """Return the error for a task that has sent, and whose changelog has nothing: it would begin again."""
    return Halted(
        f"{task}: {changelog} is empty, but {sent} has messages that the task has sent: its changelog was cut, or put "
        "back from a backup of before. To begin again would lose records, since consumers drop what they know by its "
        "number. Restore the changelog; or start the task where its store still is; or start the job under another "
        "name",
        task=task,
        partition=changelog,
        code=HaltCode.CHANGELOG_GONE,
    )
