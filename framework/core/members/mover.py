"""The mover: makes the next assignment, one step nearer to the one that the assignor wants. Only the leader has one.

Partitions of a dead member move at once. All others move one at a time, each behind a standby that has caught up where
members can host one; those of a member that is to leave come first, and move all together when its time is over. Other
standbys are asked for only while no partition moves: their starts would take the cores from what all wait for.
"""

from collections.abc import Mapping

from grete.core.members.assignor import Candidate, assign, caught_up
from grete.core.members.view import MembersView, MemberView
from grete.protocol.members import PartitionPlace

SETTLE_BEATS = 60  # own heartbeats that a partition gets to start before the next one moves: 30 s
WARM_AT_ONCE = 4  # standbys that catch up for the moves of a member that leaves: it has no time for one by one
WARM_BEATS = 1_200  # own heartbeats that a standby gets to catch up before the partition moves all the same: 10 min


class PartitionMover:
    """Reads the view of the leader; ``standby_replicas`` for each partition.

    ``leave_beats``: own heartbeats that a member which is to stop gets to hand over one partition at a time.
    """

    def __init__(self, view: MembersView, partitions: int, standby_replicas: int, leave_beats: int) -> None:
        """Keep nothing but these: another member may lead at any time."""
        self._view = view
        self._partitions = partitions
        self._standby_replicas = standby_replicas
        self._leave_beats = leave_beats

    def places(self) -> tuple[PartitionPlace, ...]:
        """Return the next assignment, which may be the one there is."""
        candidates = self._candidates()
        current = {partition: self._view.place(partition) for partition in range(self._partitions)}
        runnable = [partition for partition in current if partition not in self._view.halted]
        wanted = assign(runnable, candidates, current, self._standby_replicas)
        places = {p: self._next(p, place, wanted.get(p)) for p, place in current.items()}
        if not self._unsettled(places) and not self._move_one(places, wanted):
            kept = {p: self._with_standbys(place, wanted.get(p)) for p, place in places.items()}
            if kept == current:
                self._warm(kept, wanted)
            places = kept
        return tuple(places[partition] for partition in range(self._partitions))

    def _candidates(self) -> list[Candidate]:
        """Return the members that may have partitions: not one that was seen of only just now (a storm)."""
        view = self._view
        owners = {view.place(partition).owner for partition in range(self._partitions)}
        takers = [member for member in view.live() if member.takes]
        proven = [m for m in takers if m.seen - m.since >= view.dead_beats or m.session in owners]
        return [_candidate(member) for member in proven or takers]

    def _next(self, partition: int, place: PartitionPlace, wanted: PartitionPlace | None) -> PartitionPlace:
        """Return the place of a partition, changed only if it must be now."""
        if wanted is None:
            return PartitionPlace()  # halted
        view = self._view
        owner = view.sessions.get(place.owner)
        if owner is None or not owner.alive:
            heir = self._heir(partition, place)
            new = wanted.owner if heir is None else heir.session
            before = view.sessions.get(place.after)  # it may not have stopped the partition yet
            waits = before is not None and before.alive and before.runs(partition) and place.after != new
            return PartitionPlace(new, place.after if waits else "", self._live_standbys(place, new))
        if owner.heartbeat.leaving and view.beats - owner.leaves_since >= self._leave_beats:
            heir = self._heir(partition, place)
            new = wanted.owner if heir is None else heir.session
            return PartitionPlace(new, place.owner, self._live_standbys(place, new))
        return PartitionPlace(place.owner, place.after, self._live_standbys(place))

    def _with_standbys(self, place: PartitionPlace, wanted: PartitionPlace | None) -> PartitionPlace:
        """Return a place with the standbys that the assignor wants; one that is to move keeps those that there are."""
        if wanted is None or wanted.owner != place.owner:
            return place
        return PartitionPlace(place.owner, place.after, wanted.standbys)

    def _heir(self, partition: int, place: PartitionPlace) -> MemberView | None:
        """Return the member whose standby can go on at once, if there is one: counts are made even later, warm."""
        found = (self._view.sessions.get(each) for each in place.standbys)
        return next((m for m in found if m is not None and m.takes and caught_up(m.holding(partition))), None)

    def _live_standbys(self, place: PartitionPlace, owner: str = "") -> tuple[str, ...]:
        return tuple(each for each in place.standbys if each != owner and self._view.is_live(each))

    def _unsettled(self, places: Mapping[int, PartitionPlace]) -> bool:
        """Tell whether a partition is still on its way to its owner, and may have more time for it."""
        view = self._view
        if any(place.owner != view.place(partition).owner for partition, place in places.items()):
            return True
        return view.beats - view.changed_beats < SETTLE_BEATS and any(
            (held := view.sessions[place.owner].holding(partition)) is None or held.state != "running"
            for partition, place in places.items()
            if view.is_live(place.owner)
        )

    def _moves(
        self, places: Mapping[int, PartitionPlace], wanted: Mapping[int, PartitionPlace]
    ) -> list[tuple[int, MemberView, bool]]:
        """Return the moves that are left, the next one first: (partition, its new owner, the old one leaves)."""
        sessions = self._view.sessions
        moves = []
        for partition, place in wanted.items():
            if place.owner != places[partition].owner:
                owner = sessions.get(places[partition].owner)
                moves.append((partition, sessions[place.owner], owner is not None and not owner.takes))
        return sorted(moves, key=lambda m: (not m[2], not self._ready(*m[:2]), not self._warming(*m[:2]), m[0]))

    def _move_one(self, places: dict[int, PartitionPlace], wanted: Mapping[int, PartitionPlace]) -> bool:
        """Move one partition to the owner that the assignor wants; return whether one could move."""
        for partition, new, _ in self._moves(places, wanted)[:1]:
            if self._ready(partition, new):
                place = places[partition]
                places[partition] = PartitionPlace(new.session, place.owner, self._live_standbys(place, new.session))
                return True
        return False

    def _warm(self, places: dict[int, PartitionPlace], wanted: Mapping[int, PartitionPlace]) -> None:
        """Make standbys for the next moves: none can move yet."""
        moves = self._moves(places, wanted)
        leaving = sum(leaves for _, _, leaves in moves)
        for partition, new, _ in moves[: min(WARM_AT_ONCE, leaving) or 1]:
            place = places[partition]
            if not self._warming(partition, new):
                places[partition] = PartitionPlace(place.owner, place.after, (*place.standbys, new.session))

    def _warming(self, partition: int, new: MemberView) -> bool:
        return new.session in self._view.place(partition).standbys

    def _ready(self, partition: int, new: MemberView) -> bool:
        """Tell whether a partition may move: its new owner has its state, cannot get it ahead, or had its time."""
        waited = self._warming(partition, new) and self._view.beats - self._view.changed_beats >= WARM_BEATS
        return waited or not new.heartbeat.warms or caught_up(new.holding(partition))


def _candidate(member: MemberView) -> Candidate:
    said = member.heartbeat
    held = {each.partition: each for each in said.held}
    return Candidate(said.session, said.machine, said.warms, held)
