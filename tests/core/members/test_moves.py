"""Moves of partitions over one log: which are warm, one at a time or at once, and where standbys are."""

from collections import Counter

from tests.core.members.test_members_world import DEAD, QUIET, require_settled
from tests.core.members.world import INTERVAL, LEAVE_BEATS, START_STEPS, STOP_STEPS, World


def test_a_standby_is_ready_before_a_partition_moves() -> None:
    """With standbys no partition rests longer than a stop, a heartbeat and a warm start."""
    world = World(4, warms=True)
    world.join()
    world.run(40)
    world.join()
    world.run(400)
    require_settled(world)
    cold = World(4)
    cold.join()
    cold.run(40)
    cold.join()
    cold.run(400)
    assert sum(world.idle_steps.values()) < sum(cold.idle_steps.values())


def test_standbys_are_kept_on_another_machine() -> None:
    """With standby_replicas = 1 each partition has one, not on the machine of its owner; they take over."""
    world = World(6, warms=True, standby_replicas=1)
    for machine in ("a", "a", "b"):
        world.join(machine=machine)
    world.run(600)
    require_settled(world)
    view = world.members[0].core.view
    for partition in range(6):
        place = view.place(partition)
        (standby,) = place.standbys
        assert {view.sessions[standby].heartbeat.machine, view.sessions[place.owner].heartbeat.machine} == {"a", "b"}
    owned = [p for p in range(6) if view.place(p).owner == world.members[0].session]
    standbys = {p: view.place(p).standbys[0] for p in owned}
    world.kill(world.members[0])
    world.run(DEAD + 10)
    assert {p: of[0] for p, of in world.owners().items() if p in owned} == standbys
    world.run(QUIET)
    require_settled(world)  # one of them has moved on: counts are even again


def test_a_leaving_member_hands_over_one_at_a_time() -> None:
    """Each partition moves when its new owner has caught up, and the next one when that runs: none rests for long."""
    world = World(6, warms=True)
    first, _ = world.join(), world.join()
    world.run(600)
    require_settled(world)
    idle, claims = Counter(world.idle_steps), sum(world.claims.values())
    first.core.leaving = True
    at_once = 0
    while not first.done:
        world.run(1)
        at_once = max(at_once, sum(not of for of in world.owners().values()))
        assert world.now < 2_000
    world.run(START_STEPS + INTERVAL)
    require_settled(world)
    assert at_once == 1
    assert sum(world.claims.values()) == claims + 3
    assert max((world.idle_steps - idle).values()) < STOP_STEPS + 2 * INTERVAL


def test_a_leave_is_over_in_time() -> None:
    """A leave at its bound gives away all remaining partitions together, even if no standby has caught up."""
    world = World(6, warms=True)
    first, second = world.join(), world.join()
    world.run(600)
    first.core.leaving = True
    for _ in range((LEAVE_BEATS + 2) * INTERVAL + STOP_STEPS):
        for worker in second.workers.values():
            worker.due = world.now + 100 if worker.state == "standby" else worker.due
        world.run(1)
    assert first.done
    world.run(START_STEPS)
    require_settled(world)


def test_at_its_bound_a_leave_hands_over_to_a_standby_that_is_ready() -> None:
    """A standby with the state gets the partition, whatever the counts; they are evened out later."""
    world = World(6, warms=True, standby_replicas=1)
    first, _, _ = world.join(), world.join(), world.join()
    world.run(900)
    require_settled(world)
    view = first.core.view
    owned = [p for p in range(6) if view.place(p).owner == first.session]
    ready = {p: view.place(p).standbys[0] for p in owned}
    first.core.leaving = True
    for _ in range((LEAVE_BEATS + 2) * INTERVAL + STOP_STEPS):
        for member in world.members[1:]:
            for partition, worker in member.workers.items():
                if worker.state == "standby" and ready.get(partition) != member.session:
                    worker.due = world.now + 100
        world.run(1)
    world.run(START_STEPS + INTERVAL)
    assert first.done
    owners = world.owners()
    assert {p: owners[p] for p in owned} == {p: [session] for p, session in ready.items()}


def test_other_standbys_wait_until_no_partition_moves() -> None:
    """No member gets a new standby before the last partition has moved: a restore would take cores from the move."""
    world = World(6, warms=True, standby_replicas=1)
    first, other, _ = world.join(), world.join(), world.join()
    world.run(900)
    require_settled(world)
    view = other.core.view
    before = {p: set(view.place(p).standbys) for p in range(6)}
    first.core.leaving = True
    moving = 0
    while first.session in {view.place(p).owner for p in range(6)}:
        assert all(before[p].issuperset(view.place(p).standbys) for p in range(6))
        world.run(1)
        moving += 1
    assert moving > STOP_STEPS
    world.run(QUIET)
    require_settled(world)
    assert all(len(view.place(p).standbys) == 1 for p in range(6))
