"""The history of moves: which partition went from which machine to which, when and why."""

from collections import Counter

from grete.core.members.view import MemberId, MembersView
from grete.protocol.members import (
    Heartbeat,
    HeldPartition,
    JobAssignment,
    MembersMessage,
    PartitionPlace,
    decode_members_message,
    encode_members_message,
)
from grete.worker.members.partition_moves import MOVES_MAX, MoveCause, PartitionMove, PartitionMoves
from tests.core.members.test_members_world import DEAD
from tests.core.members.world import DEAD_BEATS, World


def moves(log: list[tuple[int, bytes]], session: str = "") -> list[PartitionMove]:
    """Return the moves as a reader of all rows tells them; ``session``: whose eyes it has."""
    view, found = MembersView(MemberId("", session), DEAD_BEATS), PartitionMoves()
    for offset, (at_ms, data) in enumerate(log):
        message = decode_members_message(data)
        if isinstance(message, JobAssignment):
            found.take(view, message, at_ms)
        view.row(offset, message)
    return list(found.last)


def test_each_move_has_its_machines_its_time_and_its_cause() -> None:
    """A machine joins, dies without a word, and another one joins and leaves; each member tells the same."""
    world = World(4)
    first = world.join(machine="a")
    world.run(40)
    assert moves(world.log) == []
    second = world.join(machine="b")
    world.run(400)
    killed_at = world.now
    world.kill(second)
    world.run(DEAD + 40)
    third = world.join(machine="c")
    world.run(400)
    asked_at = world.now
    third.core.leaving = True
    world.run(400)
    found = moves(world.log, first.session)
    assert Counter((each.source, each.target, each.cause) for each in found) == {
        ("a", "b", MoveCause.JOIN): 2,
        ("b", "a", MoveCause.DEATH): 2,
        ("a", "c", MoveCause.JOIN): 2,
        ("c", "a", MoveCause.LEAVE): 2,
    }
    assert [each.at_ms for each in found] == sorted(each.at_ms for each in found)
    assert {killed_at < each.at_ms for each in found if each.cause is MoveCause.DEATH} == {True}
    assert {asked_at < each.at_ms for each in found if each.cause is MoveCause.LEAVE} == {True}
    assert {each.partition for each in found if each.source == "b"} == {
        each.partition for each in found if each.target == "b"
    }
    assert moves(world.log) == found


def test_a_halt_a_start_and_a_balance_are_told_apart() -> None:
    """The older machine gets one back; a partition that has halted has no machine until it is started again."""

    def beat(session: str) -> Heartbeat:
        return Heartbeat(
            member=session, session=session, machine=session, beat=1, held=(HeldPartition(0, "stored", 1),)
        )

    def given(*owners: PartitionPlace) -> JobAssignment:
        return JobAssignment(session="a", places=owners)

    a, b, none = PartitionPlace("a"), PartitionPlace("b"), PartitionPlace()
    rows: list[MembersMessage] = [
        beat("a"),
        beat("b"),
        given(a, b),
        given(PartitionPlace("a"), PartitionPlace("a", "b")),
        given(none, a),
    ]
    rows.append(given(b, a))
    found = moves([(number, encode_members_message(row)) for number, row in enumerate(rows)])
    assert found == [
        PartitionMove(3, 1, "b", "a", MoveCause.BALANCE),
        PartitionMove(4, 0, "a", "", MoveCause.HALT),
        PartitionMove(5, 0, "", "b", MoveCause.START),
    ]
    back_and_forth = [given(none if number % 2 else a, b) for number in range(3 * MOVES_MAX)]
    again: list[MembersMessage] = [beat("a"), *back_and_forth]
    many = moves([(number, encode_members_message(row)) for number, row in enumerate(again)])
    assert len(many) == MOVES_MAX
    assert many[-1].at_ms == 3 * MOVES_MAX
