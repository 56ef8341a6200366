"""The moves of partitions from one machine to another, as the rows of the members' topic tell them."""

from collections import deque
from enum import StrEnum

import msgspec

from grete.core.members.view import MembersView
from grete.protocol.members import JobAssignment, PartitionPlace

MOVES_MAX = 200  # the last ones


class MoveCause(StrEnum):
    """The reason of a move. ``BALANCE``: both machines go on; ``DEATH``: the first one was silent for too long."""

    START = "start"
    JOIN = "join"
    LEAVE = "leave"
    DEATH = "death"
    BALANCE = "balance"
    HALT = "halt"


class PartitionMove(msgspec.Struct, frozen=True):
    """A partition got another owner. ``at_ms``: by the log's clock. "" as a machine: none."""

    at_ms: int
    partition: int
    source: str
    target: str
    cause: MoveCause


class PartitionMoves:
    """The last moves, oldest first. Each member reads the same rows, so that all tell the same."""

    def __init__(self) -> None:
        self.last: deque[PartitionMove] = deque(maxlen=MOVES_MAX)

    def take(self, view: MembersView, new: JobAssignment, at_ms: int) -> None:
        """Take the next assignment, which ``view`` does not have yet. Before the first one nothing can have moved."""
        if view.assignment is None:
            return
        for partition, place in enumerate(new.places):
            owner = view.place(partition).owner
            if place.owner != owner:
                cause = _cause(view, owner, place)
                move = PartitionMove(at_ms, partition, _machine(view, owner), _machine(view, place.owner), cause)
                self.last.append(move)


def _cause(view: MembersView, before: str, place: PartitionPlace) -> MoveCause:
    owner = view.sessions.get(before)
    if not place.owner:
        return MoveCause.HALT
    if not before:
        return MoveCause.START
    if owner is None or place.after != before:  # no start waits for one that is gone
        return MoveCause.LEAVE if owner is not None and owner.left else MoveCause.DEATH
    if owner.heartbeat.leaving:
        return MoveCause.LEAVE
    youngest = [member.session for member in view.live()[-1:]]  # it gets its share from the others
    return MoveCause.JOIN if place.owner in youngest else MoveCause.BALANCE


def _machine(view: MembersView, session: str) -> str:
    found = view.sessions.get(session)
    return session if found is None else found.heartbeat.machine
