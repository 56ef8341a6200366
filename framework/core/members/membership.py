"""One member: what it writes to the members' topic, and which partitions it is to host now."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from grete.core.members.mover import PartitionMover
from grete.core.members.view import MemberId, MembersView
from grete.protocol.members import EndedTask, Heartbeat, HeldPartition, JobAssignment, Leave, MembersMessage

REPEAT_BEATS = 20  # own heartbeats between two equal assignments: one that joins reads the last rows only
YIELD_BEATS = 2  # own heartbeats before a leader writes against another's assignment: that one reads, too


class Duties(NamedTuple):
    """The partitions that a member is to run, and those that it is to keep ready.

    ``again``: those of the active ones that were fenced here and may start again now. ``coming``: those that are to be
    active once the member that has them has stopped them.
    """

    active: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    again: frozenset[int] = frozenset()
    coming: frozenset[int] = frozenset()


class Membership:
    """The core of a member. Rows of the topic go in, in their order; messages and duties come out.

    ``release_beats``: own heartbeats that a former owner gets to stop a partition; ``leave_beats``: that a member which
    is to stop gets to hand over one partition at a time.
    """

    def __init__(
        self,
        me: MemberId,
        partitions: int,
        *,
        dead_beats: int,
        release_beats: int,
        leave_beats: int,
        standby_replicas: int = 0,
        warms: bool = False,
    ) -> None:
        """Begin a session: nothing is read, nothing is written."""
        self.view = MembersView(me, dead_beats)
        self.leaving = False
        self._partitions = partitions
        self._release_beats = release_beats
        self._warms = warms
        self._mover = PartitionMover(self.view, partitions, standby_replicas, leave_beats)
        self._beat = -1
        self._follows = -1
        self._written_beat: int | None = None  # when an assignment was written that is not read yet
        self._since: dict[int, tuple[int, int]] = {}  # own partition → (offset of its assignment, beats when read)
        self._started: set[int] = set()  # own partitions that were released
        self._fenced: dict[int, int] = {}  # partition → where the topic ended when it was fenced here

    @property
    def beat(self) -> int:
        """The number of its last heartbeat; -1: it has written none."""
        return self._beat

    @property
    def alone(self) -> bool:
        """Whether no other member lives that takes partitions."""
        return not any(m.takes for m in self.view.live() if m.session != self.view.me.session)

    def heartbeat(self, held: Sequence[HeldPartition]) -> Heartbeat:
        """Return the next heartbeat: one for each interval of time."""
        self._beat += 1
        return self.report(held)

    def report(self, held: Sequence[HeldPartition]) -> Heartbeat:
        """Return the last heartbeat with other content: news, and no new time."""
        me = self.view.me
        return Heartbeat(
            member=me.member,
            session=me.session,
            machine=me.machine,
            began=self.view.began,
            beat=self._beat,
            follows=self._follows,
            leaving=self.leaving,
            warms=self._warms,
            held=tuple(held),
            code=me.code or UNSET,
            timeout_ms=me.timeout_ms or UNSET,
            since_ms=me.since_ms or UNSET,
        )

    def leave(self, halted: Sequence[int] = (), ended: Sequence[EndedTask] = ()) -> Leave:
        """Return the last message of this session."""
        me = self.view.me
        return Leave(member=me.member, session=me.session, halted=tuple(halted), ended=tuple(ended) or UNSET)

    def fenced(self, partition: int) -> None:
        """Note that another process has taken a partition: it is run here only by an assignment behind this."""
        self._fenced.setdefault(partition, self.view.position)

    def row(self, offset: int, message: MembersMessage | None) -> None:
        """Take the next row of the topic; None: one that this build cannot read."""
        view = self.view
        if isinstance(message, Heartbeat) and message.session == view.me.session and message.beat > self._beat:
            message = None  # it was not written here: by its number, others would never be silent for long
        if offset < view.position:  # of a topic that was made again: what was known of offsets is of the one before
            self._follows, self._fenced = -1, dict.fromkeys(self._fenced, 0)
        view.row(offset, message)
        view.halted = {partition: at for partition, at in view.halted.items() if partition < self._partitions}
        if view.assigned_at == offset:
            if view.assignment is not None and view.assignment.session == view.me.session:
                self._written_beat = None
            mine = {p for p in range(self._partitions) if view.place(p).owner == view.me.session}
            self._since = {p: self._since.get(p, (offset, view.beats)) for p in mine}
            self._started &= mine

    def duties(self) -> Duties:
        """Return the partitions to host now. From here on the heartbeats say that this assignment is followed."""
        view, me = self.view, self.view.me.session
        self._started |= {p for p in self._since if self._released(p)}
        again = {p for p, at in self._fenced.items() if p in self._started and view.assigned_at >= at}
        self._fenced = {p: at for p, at in self._fenced.items() if p not in again}  # also of those that others have now
        self._follows = view.assigned_at
        coming = self._since.keys() - self._started
        standby = {p for p in range(self._partitions) if me in view.place(p).standbys} - self._started | coming
        ready = frozenset(standby if self._warms else ())
        return Duties(frozenset(self._started), ready, frozenset(again), frozenset(coming))

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds; for the simulator: offsets go back where a topic loses its end."""
        view = self.view
        assert self._started <= self._since.keys(), f"not its own: {self._started - self._since.keys()}"
        assert self._follows <= view.assigned_at, f"it follows {self._follows}, and has read {view.assigned_at}"
        assert view.beats <= max(0, self._beat), f"{view.beats} own heartbeats were read of {self._beat}"
        assert self._written_beat is None or self._written_beat <= view.beats, (self._written_beat, view.beats)
        view.check_invariants()

    @property
    def has_news(self) -> bool:
        """Whether ``duties`` may have changed since somebody last asked for them."""
        coming = self._since.keys() - self._started
        return self.view.assigned_at != self._follows or any(self._released(partition) for partition in coming)

    def _released(self, partition: int) -> bool:
        """Tell whether the member that had a partition before has stopped it, is gone, or has had its time."""
        view, (at, beats) = self.view, self._since[partition]
        before = view.sessions.get(view.place(partition).after)
        if before is None or not before.alive or view.beats - beats >= self._release_beats:
            return True
        follows = before.heartbeat.follows  # beyond the end: of the topic that was there before this one
        return at <= follows < view.position and not before.runs(partition)

    def decide(self) -> JobAssignment | None:
        """Return the assignment that the leader is to write now, if this member leads and there is cause."""
        view = self.view
        leader = view.leader()
        if leader is None or leader.session != view.me.session or not view.settled or view.beats < self.beat:
            return None  # the last case: not all is read
        if self._written_beat is not None and view.beats - self._written_beat < view.dead_beats:
            return None
        before = view.assignment
        since = view.beats - view.assigned_beats
        writer = None if before is None else view.sessions.get(before.session)
        if writer not in (None, leader) and writer.takes and since < YIELD_BEATS:
            return None
        places = self._mover.places()
        halted = tuple(view.halted[partition] for partition in sorted(view.halted))
        made = JobAssignment(session=view.me.session, places=places, halted=halted)
        same = before is not None and (before.places, before.halted) == (places, halted)
        if same and since < (view.dead_beats if self._owner_is_fenced() else REPEAT_BEATS):
            return None
        self._written_beat = view.beats
        return made

    def _owner_is_fenced(self) -> bool:
        """Tell whether an owner waits for an assignment that says that the partition is still its own."""
        view = self.view
        return any(
            (held := member.holding(partition)) is not None and held.state == "fenced"
            for partition in range(self._partitions)
            if (member := view.sessions.get(view.place(partition).owner)) is not None
        )
