"""The mover: the next assignment on the way to the one that the assignor wants. Only the leader asks it.

Partitions of a dead member move at once, those of one that is to leave as soon as it has stopped them. All others move
one at a time, each behind a standby that has caught up where members can host one.
"""

from collections.abc import Mapping

from framework.core.members.assignor import Candidate, assign, caught_up
from framework.core.members.view import MembersView, MemberView
from protocol.members import PartitionPlace

SETTLE_BEATS = 60  # own heartbeats that a partition gets to start before the next one moves: 30 s
WARM_BEATS = 1_200  # own heartbeats that a standby gets to catch up before the partition moves all the same: 10 min


class PartitionMover:
    """Reads the view of the leader; ``standby_replicas`` for each partition."""

    def __init__(self, view: MembersView, partitions: int, standby_replicas: int) -> None:
        """Keep nothing but these: another member may lead at any time."""
        self._view = view
        self._partitions = partitions
        self._standby_replicas = standby_replicas

    def places(self) -> tuple[PartitionPlace, ...]:
        """Return the next assignment, which may be the one there is."""
        candidates = self._candidates()
        current = {partition: self._view.place(partition) for partition in range(self._partitions)}
        runnable = [partition for partition in current if partition not in self._view.halted]
        wanted = assign(runnable, candidates, current, self._standby_replicas)
        places = {p: self._next(p, place, wanted.get(p)) for p, place in current.items()}
        if places == current and not self._unsettled(current):
            self._move_one(places, wanted)
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
            before = view.sessions.get(place.after)  # it may not have stopped the partition yet
            waits = before is not None and before.alive and before.runs(partition) and place.after != wanted.owner
            return PartitionPlace(wanted.owner, place.after if waits else "", wanted.standbys)
        if owner.heartbeat.leaving:
            return PartitionPlace(wanted.owner, place.owner, wanted.standbys)
        if wanted.owner == place.owner:
            return PartitionPlace(place.owner, place.after, wanted.standbys)
        standbys = tuple(each for each in place.standbys if view.is_live(each))
        return PartitionPlace(place.owner, place.after, standbys)

    def _unsettled(self, places: Mapping[int, PartitionPlace]) -> bool:
        """Tell whether a partition is still on its way to its owner, and may have more time for it."""
        view = self._view
        return view.beats - view.changed_beats < SETTLE_BEATS and any(
            (held := view.sessions[place.owner].holding(partition)) is None or held.state != "running"
            for partition, place in places.items()
            if view.is_live(place.owner)
        )

    def _move_one(self, places: dict[int, PartitionPlace], wanted: Mapping[int, PartitionPlace]) -> None:
        """Move one partition to the owner that the assignor wants, or make that a standby first."""
        view = self._view
        moves = [(p, view.sessions[wanted[p].owner]) for p in wanted if wanted[p].owner != places[p].owner]
        if not moves:
            return
        partition, new = min(moves, key=lambda move: (not self._ready(*move), not self._warming(*move), move[0]))
        place = places[partition]
        if self._ready(partition, new):
            places[partition] = PartitionPlace(wanted[partition].owner, place.owner, wanted[partition].standbys)
        elif not self._warming(partition, new):
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
