"""The members of a job as one of them sees them: what the rows of the members' topic say, in their order."""

from dataclasses import dataclass
from typing import NamedTuple

from grete.protocol.members import (
    HaltedPartition,
    Heartbeat,
    HeldPartition,
    JobAssignment,
    Leave,
    MembersMessage,
    PartitionPlace,
)

TIMEOUT_MS_MAX = 3_600_000  # that a member may ask for: one that was never there would be waited for without an end
FORGOTTEN_AFTER = 50  # times the beats of a dead member: until then its last words are shown


class MemberId(NamedTuple):
    """The names of a member: its job directory keeps ``member``, each of its starts draws a ``session``.

    ``code``: a digest of the job's code there, "" if it is not known. ``beat_ms``: its time between two heartbeats,
    ``timeout_ms``: the silence after which it is to be taken for dead, 0: that of the reader.
    ``since_ms``: when the session began, in ms since 1970, 0: not known.
    """

    member: str
    session: str
    machine: str = ""
    code: str = ""
    beat_ms: int = 1
    timeout_ms: int = 0
    since_ms: int = 0


@dataclass(slots=True)
class MemberView:
    """One session of a member. ``seen``, ``since`` and ``leaves_since`` are heartbeats of the reader's."""

    heartbeat: Heartbeat
    began: int  # offset of its first heartbeat
    seen: int  # when a message of it was last read
    seen_at: int  # offset of that message
    since: int  # from when on it has been seen without a pause
    alive: bool = True
    left: bool = False  # it said so, or was started again
    leaves_since: int = -1  # when it first said that it is to stop, -1: it has not

    @property
    def session(self) -> str:
        """The session."""
        return self.heartbeat.session

    @property
    def takes(self) -> bool:
        """Whether it may be given something."""
        return self.alive and not self.heartbeat.leaving

    def holding(self, partition: int) -> HeldPartition | None:
        """Return its last row about a partition, or None."""
        return next((held for held in self.heartbeat.held if held.partition == partition), None)

    def runs(self, partition: int) -> bool:
        """Whether it has not said that it runs nothing of a partition."""
        held = self.holding(partition)
        return held is not None and held.state in ("starting", "running", "stopping")


class MembersView:
    """A fold of the rows. Another member is dead when ``dead_beats`` own heartbeats are behind its last message.

    One that has a longer time-out gets that: members whose settings differ would take one another for dead for ever.
    """

    def __init__(self, me: MemberId, dead_beats: int) -> None:
        """Know no member."""
        self.me = me
        self.dead_beats = dead_beats
        self.beats = 0  # own heartbeats that are in the topic
        self.began = -1  # offset of the first of them
        self.position = 0  # offset of the next row
        self.sessions: dict[str, MemberView] = {}
        self.assignment: JobAssignment | None = None  # the newest
        self.assigned_at = -1  # its offset
        self.assigned_beats = 0  # own heartbeats when it was read
        self.changed_beats = 0  # the same, when it last was another one than that before it
        self.halted: dict[int, HaltedPartition] = {}
        self.shared_with = ""  # the machine of a live member with the same id: the job directory was copied

    def row(self, offset: int, message: MembersMessage | None) -> None:
        """Take the next row of the topic; None: one that this build cannot read."""
        if offset < self.position:
            self._begin_again()
        self.position = offset + 1
        match message:
            case Heartbeat():
                self._heartbeat(offset, message)
            case Leave():
                self._leave(message)
            case JobAssignment():
                self._assign(offset, message)
            case _:
                pass

    def live(self) -> list[MemberView]:
        """Return the members that live, the one whose session began first coming first."""
        return sorted((m for m in self.sessions.values() if m.alive), key=lambda m: (m.began, m.session))

    def is_live(self, session: str) -> bool:
        """Tell whether a session is that of a member that lives."""
        found = self.sessions.get(session)
        return found is not None and found.alive

    def leader(self) -> MemberView | None:
        """Return the member that assigns partitions: the first that lives and is not to leave."""
        return next((member for member in self.live() if member.takes), None)

    @property
    def settled(self) -> bool:
        """Whether all others have been seen since this session began, or are gone."""
        others = (member for session, member in self.sessions.items() if session != self.me.session)
        return self.began >= 0 and all(not other.alive or other.seen_at > self.began for other in others)

    def place(self, partition: int) -> PartitionPlace:
        """Return the newest assignment of a partition."""
        places = () if self.assignment is None else self.assignment.places
        return places[partition] if partition < len(places) else PartitionPlace()

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two rows."""
        assert max(self.assigned_at, self.began) < self.position, (self.assigned_at, self.began, self.position)
        assert self.changed_beats <= self.assigned_beats <= self.beats, (self.changed_beats, self.assigned_beats)
        for session, member in self.sessions.items():
            assert member.session == session, f"{session} is known by a heartbeat of {member.session}"
            assert member.since <= member.seen <= self.beats, f"{session} was seen at {member.seen} of {self.beats}"
            assert member.seen_at < self.position, f"{session} was seen at {member.seen_at} before {self.position}"
            assert not (member.alive and member.left), f"{session} has left, and lives"

    def forgive(self) -> None:
        """Begin to count silence again: the topic was away, and no member could be seen."""
        for member in self.sessions.values():
            member.seen = self.beats

    def _begin_again(self) -> None:
        """The topic was made again, or has lost its end: the offsets that were known are none of it.

        Members live on. Until each of them has been seen there, or is dead, none assigns partitions.
        """
        self.began = self.assigned_at = -1
        for member in self.sessions.values():
            member.seen_at = -1

    def _heartbeat(self, offset: int, heartbeat: Heartbeat) -> None:
        session = heartbeat.session
        known = self.sessions.get(session)
        if known is None:
            began = offset if heartbeat.began < 0 else heartbeat.began
            known = self.sessions[session] = MemberView(heartbeat, began, self.beats, offset, self.beats)
            self._supersede(known)
            if session == self.me.session and self.live() == [known]:
                self.halted = {}  # a person has started the job again
        if session == self.me.session and self.began < 0:
            self.began = offset
        known.began = min(known.began, offset) if heartbeat.began < 0 else heartbeat.began
        known.heartbeat = heartbeat
        if heartbeat.leaving and known.leaves_since < 0:
            known.leaves_since = self.beats
        self._see(known, offset)
        if session == self.me.session:
            self.beats = max(self.beats, heartbeat.beat)
            known.seen = self.beats
            self._bury()
        elif heartbeat.member == self.me.member and self.began >= 0:
            self.shared_with = heartbeat.machine or "another one"

    def _supersede(self, newer: MemberView) -> None:
        """Take the earlier sessions of a member for ended: one process has a job directory, on one machine."""
        who = newer.heartbeat
        for other in self.sessions.values():
            same = (other.heartbeat.member, other.heartbeat.machine) == (who.member, who.machine)
            if same and other.began < newer.began:
                other.alive, other.left = False, True
        self.halted = {p: halted for p, halted in self.halted.items() if halted.member != who.member}

    def _see(self, member: MemberView, offset: int) -> None:
        if not member.alive:
            member.alive, member.left, member.since = True, False, self.beats
        member.seen, member.seen_at = self.beats, offset

    def _bury(self) -> None:
        """Take those for dead that were silent for too long, and forget those that were dead for long."""
        for session, member in list(self.sessions.items()):
            silent, dead_beats = self.beats - member.seen, self._dead_beats_of(member)
            if silent >= dead_beats:
                member.alive = False
            if silent >= dead_beats * FORGOTTEN_AFTER:
                del self.sessions[session]

    def _dead_beats_of(self, member: MemberView) -> int:
        asked_ms = min(member.heartbeat.timeout_ms or 0, TIMEOUT_MS_MAX)
        return max(self.dead_beats, -(-asked_ms // self.me.beat_ms))

    def _leave(self, leave: Leave) -> None:
        member = self.sessions.get(leave.session)
        if member is not None:
            member.alive, member.left = False, True
        for partition in leave.halted:
            self.halted[partition] = HaltedPartition(partition, leave.member, leave.session)

    def _assign(self, offset: int, assignment: JobAssignment) -> None:
        writer = self.sessions.get(assignment.session)
        if writer is not None:
            self._see(writer, offset)
        before = self.assignment
        self.assignment, self.assigned_at, self.assigned_beats = assignment, offset, self.beats
        if before is None or before.places != assignment.places:
            self.changed_beats = self.beats
        ids = {member.heartbeat.member: session for session, member in self.sessions.items() if member.alive}
        for halted in assignment.halted:
            if ids.get(halted.member, halted.session) == halted.session:  # else it was started again since
                self.halted[halted.partition] = halted
