"""Members over one log, with faults: whatever happens, at the end each partition has one owner that runs it."""

from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grete.protocol.members import HaltedPartition, JobAssignment, PartitionPlace
from tests.core.members.world import DEAD_BEATS, INTERVAL, START_STEPS, SimMember, World

QUIET = 900  # steps after the last fault: every bound of waiting is over, one after another
DEAD = (DEAD_BEATS + 2) * INTERVAL  # steps until a death is known and acted upon


def sessions(world: World) -> list[str]:
    """Return the sessions that live."""
    return [member.session for member in world.live()]


def require_settled(world: World) -> None:
    """Each partition has one owner, which runs it; counts differ by one at most; all agree on the assignment."""
    for _ in range(INTERVAL):
        if len({member.core.view.assigned_at for member in world.live()}) > 1:
            world.run(1)  # one has just been written
    owners = world.owners()
    assert all(len(of) == 1 for of in owners.values()), owners
    counts = Counter(dict.fromkeys(sessions(world), 0))
    counts.update(of[0] for of in owners.values())
    assert set(counts) == set(sessions(world))
    assert max(counts.values()) - min(counts.values()) <= 1, counts
    assert len({member.core.view.assigned_at for member in world.live()}) == 1
    for partition, of in owners.items():
        for member in world.live():
            assert member.core.view.place(partition).owner == of[0]


def test_one_member_runs_all_at_once() -> None:
    """A job on one machine starts as soon as its member has read its own first heartbeat."""
    world = World()
    world.join()
    world.run(START_STEPS + 3)
    require_settled(world)
    assert world.claims == dict.fromkeys(range(4), 1)


def test_a_member_that_is_started_again_leads_at_once() -> None:
    """A job on one machine, killed and started again, waits for no time-out: only its own earlier session is there."""
    world = World()
    world.kill(world.join())
    world.run(20)
    world.kill(world.join("again"))
    first = world.join("a")
    world.run(50)
    world.kill(first)
    world.join("a")
    world.run(START_STEPS + 3)
    require_settled(world)


def test_a_join_moves_as_few_as_can_be() -> None:
    """A second member gets half, a third one a third: no partition moves between those that were there."""
    world = World(6)
    world.join()
    world.run(40)
    for moves, _ in ((3, 2), (2, 3)):
        before = {partition: of[0] for partition, of in world.owners().items()}
        world.join()
        world.run(300)
        require_settled(world)
        moved = [p for p, of in world.owners().items() if of[0] != before[p]]
        assert len(moved) == moves
        assert all(world.owners()[p] == [world.members[-1].session] for p in moved)
    assert sum(world.claims.values()) == 6 + 3 + 2


def test_what_does_not_move_is_not_disturbed() -> None:
    """Partitions that stay are claimed once, while others move around them."""
    world = World(6)
    world.join()
    world.run(40)
    world.join()
    world.run(300)
    assert sorted(world.claims.values()) == [1, 1, 1, 2, 2, 2]


def test_a_newcomer_waits_until_it_has_proved_itself() -> None:
    """A member that joins and dies again and again costs the others nothing: nothing moves to it."""
    world = World()
    world.join()
    world.run(40)
    for _ in range(30):
        world.kill(world.join("restless"))
        joined = world.join("restless")
        world.run(2 * INTERVAL)
        world.kill(joined)
    world.run(100)
    assert sum(world.claims.values()) == 4


def test_partitions_of_the_dead_are_elsewhere_after_the_time_out() -> None:
    """A kill is known within the time-out and a heartbeat; all that it had moves at once."""
    world = World(6)
    first, _, _ = world.join(), world.join(), world.join()
    world.run(300)
    require_settled(world)
    claims = sum(world.claims.values())
    world.kill(first)  # which led, too
    world.run(DEAD + START_STEPS + 2)
    require_settled(world)
    assert sum(world.claims.values()) == claims + 2


def test_a_member_that_leaves_waits_for_no_time_out() -> None:
    """Its partitions are elsewhere when it has stopped them, long before it would count as dead."""
    world = World(4)
    first, _ = world.join(), world.join()
    world.run(300)
    first.core.leaving = True
    idle = Counter(world.idle_steps)
    world.run(60)
    assert first.done
    require_settled(world)
    assert max((world.idle_steps - idle).values()) < DEAD_BEATS * INTERVAL


def test_all_leave_together() -> None:
    """Members that are all stopped at once end, and no one waits for another."""
    world = World(4)
    members = [world.join() for _ in range(3)]
    world.run(300)
    for member in members:
        member.core.leaving = True
    world.run(40)
    assert world.live() == []


def test_a_false_alarm_costs_a_claim_each() -> None:
    """A member that sleeps and wakes up lets go of what others have, and then takes its share again."""
    world = World(4)
    first, _ = world.join(), world.join()
    world.run(300)
    claims = sum(world.claims.values())
    first.frozen_until = world.now + 2 * DEAD
    world.run(2 * DEAD)
    assert sum(world.claims.values()) == claims + 2
    world.run(QUIET)
    require_settled(world)
    assert sum(world.claims.values()) == claims + 4


def test_a_log_that_is_away_kills_no_member() -> None:
    """While no member can write none looks dead, and when the log is back nothing moves."""
    world = World(4)
    members = [world.join() for _ in range(3)]
    world.run(300)
    claims = sum(world.claims.values())
    for number, member in enumerate(members):
        member.cut_until = world.now + 500 + number * DEAD_BEATS  # and they come back one after another
    world.run(500 + QUIET)
    require_settled(world)
    assert sum(world.claims.values()) == claims


def test_a_halted_partition_stays_without_owner_until_its_member_is_back() -> None:
    """All others go on; a member that joins changes nothing; the one that halted, started again, does."""
    world = World(4)
    world.join("a")
    world.join("b")
    world.run(300)
    world.halt(world.members[1], next(p for p, of in world.owners().items() if of == ["b-1"]))
    world.run(200)
    world.join("c")
    world.run(QUIET)
    ownerless = [p for p, of in world.owners().items() if not of]
    assert len(ownerless) == 1
    late = world.join("late")
    world.run(QUIET)
    assert set(late.core.view.halted) == set(ownerless)  # told by assignments, for those that were not there
    world.join("b")
    world.run(QUIET)
    require_settled(world)


def test_a_halt_of_the_only_member_is_over_when_it_starts_again() -> None:
    """A person who starts a job that no member runs has looked: all partitions start."""
    world = World(2)
    world.halt(world.join("a"), 0)
    world.run(20)
    world.log.append((world.now, world.log[-1][1]))
    world.join("b")
    world.run(60)
    require_settled(world)


def test_a_partition_taken_from_outside_comes_back_by_an_assignment() -> None:
    """A worker started by hand fences the owner: it starts again after the next assignment, not by itself."""
    world = World(2)
    member = world.join()
    world.run(40)
    world.claims[0] += 1  # by hand
    world.run(2)
    assert member.workers[0].state == "fenced"
    at = member.core.view.assigned_at
    world.run(DEAD_BEATS * INTERVAL + START_STEPS + INTERVAL)
    assert member.core.view.assigned_at > at
    require_settled(world)


def test_a_member_of_the_same_directory_elsewhere_is_another_one() -> None:
    """A copied directory has the id of the first: both live, and the second knows that it shares the id."""
    world = World(4)
    world.join("a", machine="x")
    world.run(40)
    copied = world.join("a", machine="y")
    world.run(QUIET)
    require_settled(world)
    assert copied.core.view.shared_with == "x"
    assert world.members[0].core.view.shared_with == "y"


FAULTS = (
    *("freeze", "kill", "leave", "join", "restart", "cut", "lose", "double", "junk", "delay", "outside", "stale"),
    "made again",
)


def apply(world: World, kind: str, which: int, size: int) -> None:
    """Let something go wrong."""
    live = world.live()
    member: SimMember | None = live[which % len(live)] if live else None
    if kind == "join" or member is None:
        if len(live) < 5:
            world.join()
        return
    alone = all(each is member or each.core.leaving for each in live)
    if kind == "freeze":
        member.frozen_until = world.now + size
    elif kind == "kill" and not alone:
        world.kill(member)
    elif kind == "leave" and not alone:
        member.core.leaving = True
    elif kind == "restart":
        world.kill(member)
        world.join(member.core.view.me.member, stored=frozenset(member.stored))
    elif kind == "cut":
        member.cut_until = world.now + size
    elif kind == "lose":
        member.loses += size % 3
    elif kind == "double":
        member.doubles += size % 5
    elif kind == "delay":
        member.delay = size % 9
    elif kind == "made again":
        world.make_again()
    elif kind == "outside":
        world.claims[which % world.partitions] += 1
    elif kind == "stale" and world.log:
        world.log.append((world.now, world.log[-1 - which % len(world.log)][1]))  # another leader's, or an old one
    elif kind == "junk":
        names = [each.session for each in world.members] + ["none", ""]
        places = tuple(
            PartitionPlace(names[(which + n * size) % len(names)], names[(size + n) % len(names)])
            for n in range(size % (world.partitions + 3))
        )
        halted = (HaltedPartition(0, "none", "none"),) if size % 7 == 0 else ()
        world.write(JobAssignment(session=names[which % len(names)] or "none", places=places, halted=halted))


FENCED_IN_PASSING = [("join", 0, 1, 1), ("freeze", 0, 1, 1), ("kill", 0, 1, 34), ("junk", 3, 1, 2), ("leave", 0, 1, 1)]
FENCED_THEN_STANDBY = [("stale", 0, 1, 37), ("freeze", 0, 30, 10), ("freeze", 2, 29, 1)]
HALTED_AGAIN = [("freeze", 0, 1, 52), ("freeze", 0, 38, 37), ("junk", 0, 35, 2), ("freeze", 0, 1, 1)]
NAMED_UNSEEN = [("cut", 0, 7, 1), ("junk", 0, 1, 1)]  # an assignment names a session that has said nothing yet
FAULT = st.tuples(st.sampled_from(FAULTS), st.integers(0, 9), st.integers(1, 80), st.integers(1, 40))


troubles = given(
    faults=st.lists(FAULT, max_size=12),
    partitions=st.integers(1, 7),
    first=st.integers(1, 4),
    standbys=st.sampled_from((None, 0, 1, 2)),
)


@example(faults=FENCED_IN_PASSING, partitions=2, first=2, standbys=1)
@example(faults=NAMED_UNSEEN, partitions=1, first=1, standbys=None)
@example(faults=FENCED_THEN_STANDBY, partitions=7, first=3, standbys=0)
@example(faults=HALTED_AGAIN, partitions=1, first=1, standbys=None)
@settings(max_examples=3, deadline=None)
@troubles
def test_it_converges_when_the_faults_end(
    faults: list[tuple[str, int, int, int]], partitions: int, first: int, standbys: int | None
) -> None:
    """Kills, frozen members, lost and doubled heartbeats, two leaders, assignments that no member should write."""
    require_it_converges(faults, partitions, first, standbys)


@pytest.mark.prove
@pytest.mark.timeout(3600)  # fifty times the other
@settings(max_examples=600, deadline=None, derandomize=False, database=None)
@troubles
def test_it_converges_whatever_the_faults_are(
    faults: list[tuple[str, int, int, int]], partitions: int, first: int, standbys: int | None
) -> None:
    """The same, with fresh faults each time."""
    require_it_converges(faults, partitions, first, standbys)


def require_it_converges(
    faults: list[tuple[str, int, int, int]], partitions: int, first: int, standbys: int | None
) -> None:
    """Let the faults happen and end: then each partition has one owner, and nothing moves any more."""
    world = World(partitions, warms=standbys is not None, standby_replicas=standbys or 0)
    for _ in range(first):
        world.join()
    for kind, which, size, pause in faults:
        apply(world, kind, which, size)
        world.run(pause)
    for member in world.members:
        member.delay = member.loses = 0
    world.run(QUIET)
    for _ in range(2 * INTERVAL):  # an assignment on its way may say it once more
        for member in world.live():
            member.core.view.halted.clear()  # of junk: a person has looked
        world.run(1)
    world.run(QUIET)
    require_settled(world)
    claims, assignments = sum(world.claims.values()), world.assignments
    world.run(QUIET)
    assert sum(world.claims.values()) == claims  # nothing moves without cause
    assert world.assignments - assignments <= QUIET // (20 * INTERVAL) + 1  # each of them repeats the one before


@pytest.mark.parametrize("members", [2, 5])
def test_moves_of_a_leave_are_its_partitions(members: int) -> None:
    """The death of one of several members moves its partitions, and no others."""
    world = World(10)
    for _ in range(members):
        world.join()
    world.run(600)
    require_settled(world)
    dead = world.members[-1]
    had = [p for p, of in world.owners().items() if of == [dead.session]]
    claims = Counter(world.claims)
    world.kill(dead)
    world.run(QUIET)
    require_settled(world)
    assert world.claims - claims == dict.fromkeys(had, 1)
