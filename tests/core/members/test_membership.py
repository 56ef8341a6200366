"""One member: what it makes of single rows, which the tests of the whole world do not reach."""

import pytest

from grete.core.members.assignor import CAUGHT_UP
from grete.core.members.membership import REPEAT_BEATS, Duties, Membership
from grete.core.members.mover import WARM_BEATS
from grete.core.members.view import FORGOTTEN_AFTER, TIMEOUT_MS_MAX, MemberId
from grete.protocol.members import (
    HaltedPartition,
    Heartbeat,
    HeldPartition,
    JobAssignment,
    Leave,
    MembersMessage,
    PartitionPlace,
)


class Topic:
    """The rows that one member reads, written by the test."""

    def __init__(self, *, warms: bool = False, partitions: int = 2) -> None:
        self.member = Membership(
            MemberId("me", "me-1", "here"), partitions, dead_beats=4, release_beats=10, leave_beats=8, warms=warms
        )
        self.offset = 0
        self.held: list[HeldPartition] = []

    def add(self, message: MembersMessage) -> int:
        """Let the member read a row; return its offset."""
        self.member.row(self.offset, message)
        self.offset += 1
        return self.offset - 1

    def beat(self, times: int = 1) -> None:
        """Let the member write heartbeats, and read them."""
        for _ in range(times):
            self.add(self.member.heartbeat(self.held))

    def other(self, beat: int, *held: HeldPartition, follows: int = -1, warms: bool = False) -> None:
        """Let another member write a heartbeat."""
        self.add(
            Heartbeat(member="o", session="o-1", machine="there", beat=beat, held=held, follows=follows, warms=warms)
        )

    def news(self) -> bool:
        """Return whether its duties may be others."""
        return self.member.has_news

    def lead(self) -> JobAssignment:
        """Let the member write an assignment, and read it."""
        made = self.member.decide()
        assert made is not None
        self.add(made)
        return made


def test_one_that_joins_does_not_lead_before_it_has_seen_the_others() -> None:
    """An earlier member that was not seen since is waited for, and counts as dead after the time-out."""
    topic = Topic()
    topic.other(1)
    topic.beat()
    assert topic.member.decide() is None
    topic.beat(3)
    assert topic.member.decide() is None
    topic.beat()
    assert topic.member.decide() is not None


def test_heartbeats_in_its_name_that_it_has_not_written_count_for_nothing() -> None:
    """Their number would be its time: no other member would ever be silent for long enough to be replaced."""
    topic = Topic()
    topic.beat()
    topic.other(1)
    topic.add(Heartbeat(member="me", session="me-1", machine="here", beat=2**63 - 1))
    assert topic.member.view.beats == 0
    topic.beat(4)
    assert [member.session for member in topic.member.view.live()] == ["me-1"]


def test_the_time_out_of_another_member_is_bounded() -> None:
    """One that was never there, and asks for a million years, is waited for as long as a member may ask for."""
    topic = Topic()
    topic.beat()
    topic.add(Heartbeat(member="o", session="o-1", beat=0, timeout_ms=2**63 - 1))
    topic.add(topic.member.heartbeat(()))
    assert topic.member.view.is_live("o-1")
    topic.member._beat += TIMEOUT_MS_MAX  # as many heartbeats, a millisecond each
    topic.beat()
    assert not topic.member.view.is_live("o-1")


def test_partitions_that_the_job_has_not_are_not_halted() -> None:
    """All that a message can name would make each assignment larger than a broker takes."""
    topic = Topic()
    topic.beat()
    topic.add(Leave(member="o", session="o-1", halted=tuple(range(65_536))))
    assert [halted.partition for halted in topic.lead().halted] == [0, 1]


def test_an_assignment_to_members_that_are_not_there_is_replaced_at_once() -> None:
    """Also one in the name of the leader, of more partitions than there are."""
    topic = Topic()
    topic.beat()
    for writer in ("me-1", "nobody"):
        topic.add(JobAssignment(session=writer, places=tuple(PartitionPlace("ghost", "ghost") for _ in range(9))))
        assert [place.owner for place in topic.lead().places] == ["me-1", "me-1"]


def test_one_that_left_is_not_waited_for() -> None:
    """The next member leads at once after each other member has announced its leave."""
    topic = Topic()
    topic.other(1)
    topic.add(Leave(member="o", session="o-1"))
    topic.add(Leave(member="x", session="unknown"))
    topic.beat()
    assert topic.member.decide() is not None


def test_a_leader_that_has_not_read_all_writes_nothing() -> None:
    """Its own newest heartbeat is not in the rows yet: others may have said something before it."""
    topic = Topic()
    topic.beat()
    late = topic.member.heartbeat([])
    assert topic.member.decide() is None
    topic.add(late)
    assert topic.member.decide() is not None


def test_an_assignment_that_got_lost_is_written_again() -> None:
    """One that was written and never came is not waited for longer than the time-out."""
    topic = Topic()
    topic.beat()
    assert topic.member.decide() is not None
    topic.beat(3)
    assert topic.member.decide() is None
    topic.beat()
    assert topic.member.decide() is not None


def test_the_same_assignment_comes_again_now_and_then() -> None:
    """One that joins reads the last rows only: it must find the assignment there."""
    topic = Topic()
    topic.beat()
    first = topic.lead()
    topic.beat(REPEAT_BEATS - 1)
    assert topic.member.decide() is None
    topic.beat()
    assert topic.lead().places == first.places


def test_a_leader_lets_another_one_read_first() -> None:
    """Behind an assignment of another live member it waits for two heartbeats: that one may just not know it yet."""
    topic = Topic()
    topic.beat()
    topic.lead()
    topic.other(1)
    topic.add(JobAssignment(session="o-1", places=()))
    assert topic.member.decide() is None
    topic.beat()
    assert topic.member.decide() is None
    topic.beat()
    assert topic.lead().places[0].owner == "me-1"


def test_no_member_takes_partitions_while_all_leave() -> None:
    """A member that is to leave gives itself nothing, and others nothing."""
    topic = Topic()
    topic.beat()
    topic.member.leaving = True
    topic.beat()
    assert topic.member.decide() is None
    assert topic.member.alone


def test_a_partition_waits_until_its_former_owner_has_stopped_it() -> None:
    """It is a standby meanwhile; the word of a former owner that has not read the assignment does not count."""
    topic = Topic(warms=True)
    topic.beat()
    topic.other(1)
    assert not topic.news()
    at = topic.add(JobAssignment(session="o-1", places=(PartitionPlace("me-1", "o-1"),)))
    assert topic.news()
    assert topic.member.duties() == Duties(frozenset(), frozenset({0}), coming=frozenset({0}))
    assert not topic.news()
    topic.other(2, follows=at - 1)
    assert topic.member.duties().active == frozenset()
    topic.other(3, HeldPartition(0, "stopping"), follows=at)
    assert topic.member.duties().active == frozenset()
    assert not topic.news()
    topic.other(4, HeldPartition(0, "stored"), follows=at)
    assert topic.news()
    assert topic.member.duties() == Duties(frozenset({0}))
    topic.other(5, HeldPartition(0, "running"), follows=at)
    assert topic.member.duties() == Duties(frozenset({0}))  # what has started goes on


def test_a_former_owner_has_its_time() -> None:
    """One that never says that it has stopped is waited for no longer than its bound."""
    topic = Topic()
    topic.beat()
    topic.other(1)
    topic.add(JobAssignment(session="o-1", places=(PartitionPlace("me-1", "o-1"),)))
    for beat in range(9):
        topic.beat()
        topic.other(beat + 2, HeldPartition(0, "running"))
    assert topic.member.duties().active == frozenset()
    topic.beat()
    assert topic.member.duties().active == {0}


def test_one_that_was_fenced_waits_for_an_assignment_behind() -> None:
    """The assignment that it had is no reason to start again, the next one that names it is."""
    topic = Topic()
    topic.beat()
    topic.lead()
    assert topic.member.duties().active == {0, 1}
    topic.member.fenced(0)
    topic.member.fenced(0)
    topic.held = [HeldPartition(0, "fenced"), HeldPartition(1, "running")]
    topic.beat()
    assert topic.member.duties().again == frozenset()
    topic.beat(3)
    topic.lead()
    assert topic.member.duties().again == {0}
    assert topic.member.duties().again == frozenset()


def test_one_that_was_dead_for_long_is_forgotten() -> None:
    """The view is as large as the job's members, not as all that ever were."""
    topic = Topic()
    topic.other(1)
    topic.beat(4 * FORGOTTEN_AFTER)
    assert "o-1" in topic.member.view.sessions
    topic.beat()
    assert "o-1" not in topic.member.view.sessions


def test_a_machine_without_a_name_is_told_apart() -> None:
    """A member with the same id and no machine is one more member."""
    topic = Topic()
    topic.beat()
    topic.add(Heartbeat(member="me", session="me-2"))
    assert topic.member.view.shared_with == "another one"


def test_a_standby_that_never_catches_up_has_its_time() -> None:
    """The partition moves all the same after the bound: its new owner restores the rest."""
    topic = Topic(warms=True)
    topic.beat()
    topic.lead()
    topic.held = [HeldPartition(0, "running"), HeldPartition(1, "running")]
    behind = HeldPartition(1, "standby", 0, CAUGHT_UP + 1)
    for beat in range(WARM_BEATS + 20):
        topic.other(beat, *([behind] if beat > 5 else []), warms=True)
        topic.beat()
        made = topic.member.decide()
        if made is not None:
            topic.add(made)
            if made.places[1].owner == "o-1":
                break
    assert WARM_BEATS <= beat
    assert topic.member.view.place(1) == PartitionPlace("o-1", "me-1")


def test_what_moves_on_still_waits_for_who_runs_it() -> None:
    """The new owner died before it began: the next one waits for the member that has the partition still."""
    topic = Topic(partitions=1)
    topic.beat()
    topic.other(1)
    topic.add(Heartbeat(member="n", session="n-1"))
    topic.add(JobAssignment(session="o-1", places=(PartitionPlace("n-1", "o-1"),)))
    topic.other(2, HeldPartition(0, "stopping"))
    topic.add(Leave(member="n", session="n-1"))
    topic.beat(2)
    topic.other(3, HeldPartition(0, "stopping"))
    topic.beat(1)
    assert topic.lead().places == (PartitionPlace("me-1", "o-1"),)


def test_a_row_that_cannot_be_read_is_left_out() -> None:
    """A row by a newer build changes nothing but the reader's position."""
    topic = Topic()
    topic.member.row(7, None)
    assert topic.member.view.position == 8
    assert topic.member.view.sessions == {}


def test_at_the_bound_of_a_leave_the_standby_that_has_caught_up_is_the_heir() -> None:
    """The leader writes late: by then the leaving owner has had its time."""
    topic = Topic(partitions=1)
    topic.held = [HeldPartition(0, "standby", 7, 0)]
    topic.beat()
    topic.add(JobAssignment(session="o-1", places=(PartitionPlace("o-1", "", ("me-1",)),)))
    leaves = Heartbeat(member="o", session="o-1", machine="there", beat=1, leaving=True)
    for _ in range(9):
        topic.add(leaves)
        topic.beat()
    topic.add(leaves)
    assert topic.lead().places == (PartitionPlace("me-1", "o-1"),)


def test_an_assignment_of_an_unknown_member_holds() -> None:
    """The newest assignment holds, no matter which member wrote it; the leader writes another one behind it."""
    topic = Topic()
    topic.beat()
    topic.add(JobAssignment(session="none", places=(PartitionPlace("none"),)))
    assert topic.member.duties().active == frozenset()
    assert topic.lead().places[0].owner == "me-1"


def test_a_halt_that_is_over_is_not_told_again() -> None:
    """An assignment of a leader that does not know yet that the member was started again brings no halt back."""
    topic = Topic()
    topic.beat()
    topic.other(1)
    topic.add(
        JobAssignment(
            session="me-1",
            places=(),
            halted=(HaltedPartition(0, "o", "o-0"), HaltedPartition(1, "gone", "gone-1")),
        )
    )
    assert list(topic.member.view.halted) == [1]


@pytest.mark.parametrize("first", [0, 1])
def test_members_with_different_timeouts_share_and_keep_what_they_have(first: int) -> None:
    """One beats every 5 s and the other twice a second: neither looks dead to the other, and nothing moves twice."""
    rows: list[MembersMessage] = []
    moves, active = 0, [frozenset[int](), frozenset[int]()]
    ids = [MemberId(f"m{n}", f"s{n}", f"x{n}", "", ms, 4 * ms) for n, ms in enumerate((5_000, 500))]
    members = [Membership(me, 4, dead_beats=4, release_beats=24, leave_beats=8) for me in ids]
    due_ms, read = [0 if n == first else 3_000 for n in range(2)], [0, 0]
    for at_ms in range(0, 300_000, 100):
        for n, member in enumerate(members):
            if at_ms >= due_ms[n]:
                due_ms[n] += ids[n].beat_ms
                rows.append(member.heartbeat([HeldPartition(p, "running", 1) for p in active[n]]))
            for offset in range(read[n], len(rows)):
                member.row(offset, rows[offset])
            read[n] = len(rows)
            if (made := member.decide()) is not None:
                rows.append(made)
            now = member.duties().active
            moves, active[n] = moves + (now != active[n]), now
    assert sorted(map(len, active)) == [2, 2]
    assert active[0] | active[1] == set(range(4))
    assert moves <= 8
