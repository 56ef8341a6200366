"""The contract of a log that compares and appends: it refuses a lower generation (C3)."""

from grete.ports import Log
from grete.testing.contracts.log_world import A0, A1, OUT, LogWorld, OnLogWorld, record, values


class FencedLogContract(OnLogWorld):
    """The contract of ``fence``, for a log that does not ignore it. Subclass it as LogContract is subclassed."""

    def test_a_lower_generation_is_fenced_with_its_outputs(self, world: LogWorld, log: Log) -> None:
        """C3: after a send of generation 2, one of generation 1 is refused on any connection, and its outputs too."""
        log.send(0, 0, A0, b"two", fence=2)
        log.poll()
        zombie = world.open()
        zombie.send(0, 1, A0, b"one", fence=1, outputs=[record(b"stale")])
        (delivery,) = zombie.poll()
        assert (delivery.token, delivery.fenced) == (1, True)
        assert (values(log, A0), values(log, OUT)) == ([b"two"], [])

    def test_a_fence_counts_within_one_batch(self, log: Log) -> None:
        """C3: the order of the sends decides, also inside of one poll; the own and higher generations pass."""
        for token, generation in enumerate([1, 1, 3, 2, 3, 4]):
            log.send(0, token, A0, b"%d" % generation, fence=generation)
        assert [delivery.fenced for delivery in log.poll()] == [False, False, False, True, False, False]
        assert values(log, A0) == [b"1", b"1", b"3", b"3", b"4"]

    def test_a_fence_holds_for_its_partition_only(self, log: Log) -> None:
        """A fence on one partition lets lower generations pass on another, and sends without a fence everywhere."""
        log.send(0, 0, A0, b"x", fence=9)
        log.send(0, 1, A1, b"y", fence=1)
        log.send(0, 2, A0, b"z")
        assert not any(delivery.fenced for delivery in log.poll())
        assert (values(log, A0), values(log, A1)) == ([b"x", b"z"], [b"y"])

    def test_a_fenced_send_leaves_the_others(self, log: Log) -> None:
        """Other sends of the same poll are appended without a gap when one of them is fenced."""
        log.send(0, 0, A0, b"claim", fence=2)
        log.send(0, 1, A0, b"stale", fence=1)
        log.send(0, 2, A1, b"frame")
        log.send(0, 3, A0, b"data", fence=2)
        assert [(each.offset, each.fenced) for each in log.poll() if not each.fenced] == [
            (0, False),
            (0, False),
            (1, False),
        ]
        assert (values(log, A0), values(log, A1)) == ([b"claim", b"data"], [b"frame"])

    def test_a_trim_to_the_end_keeps_the_fence(self, world: LogWorld, log: Log) -> None:
        """C3: an emptied partition still refuses a lower generation."""
        log.send(0, 0, A0, b"x", fence=3)
        log.poll()
        log.trim(A0, 1)
        again = world.open()
        again.send(0, 1, A0, b"stale", fence=2)
        (stale,) = again.poll()
        assert stale.fenced
