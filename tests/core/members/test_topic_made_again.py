"""The members' topic is deleted under its members, and made again: offsets begin at 0, and the members go on."""

from tests.core.members.test_members_world import DEAD, QUIET, require_settled
from tests.core.members.world import INTERVAL, START_STEPS, World


def test_members_assign_in_a_topic_that_was_made_again() -> None:
    """Somebody has deleted it under them: nothing moves, and what a dead one had is elsewhere after the time-out."""
    world = World(6)
    first, _, _ = world.join(), world.join(), world.join()
    world.run(300)
    claims = sum(world.claims.values())
    world.make_again()
    world.run(20 * INTERVAL)
    require_settled(world)
    assert sum(world.claims.values()) == claims
    world.kill(first)  # which led, too
    world.run(DEAD + START_STEPS + 2)
    require_settled(world)
    assert sum(world.claims.values()) == claims + 2
    world.join()
    world.run(QUIET)
    require_settled(world)


def test_a_halted_partition_stays_so_in_a_topic_that_was_made_again() -> None:
    """No person has looked: the member that is left does not take it."""
    world = World(2)
    halts, _ = world.join(), world.join()
    world.run(300)
    (partition,) = (p for p, of in world.owners().items() if of == [halts.session])
    world.halt(halts, partition)
    world.run(2 * DEAD)
    world.make_again()
    world.run(QUIET)
    assert world.owners()[partition] == []
