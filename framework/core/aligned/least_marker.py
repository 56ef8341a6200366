"""Up to which checkpoint all channels of an alignment are complete (A6), kept as markers come."""

from collections.abc import Mapping

from framework.core.aligned.channel import Channel
from protocol.ids import TopicPartition


class LeastMarker:
    """The least marker of all channels. It is asked for with each message, and there is a channel for each producer.

    It counts the channels whose marker is the least one, and looks at all of them when none is left. Ids are multiples
    of the interval, so that is once a checkpoint, not once a marker.
    """

    def __init__(self, channels: Mapping[tuple[int, TopicPartition], Channel]) -> None:
        """``channels`` may change; after anything but ``proves`` has changed a marker, ``forget`` must be called."""
        self._channels = channels
        self._value = self._count = 0  # the least marker, and how many channels have it; 0: look at all of them

    def forget(self) -> None:
        """Look at all channels with the next question."""
        self._count = 0

    def proves(self, channel: Channel, checkpoint_id: int, offset: int, frozen: int) -> None:
        """Note that all records of a channel up to ``checkpoint_id`` are before ``offset``."""
        before = channel.marker
        channel.proves(checkpoint_id, offset, frozen)
        if self._count and before == self._value < channel.marker:
            self._count -= 1

    def value(self) -> int:
        """Return the least marker."""
        if not self._count:
            markers = [channel.marker for channel in self._channels.values()]
            self._value = min(markers)
            self._count = markers.count(self._value)
        return self._value

    def check_invariants(self) -> None:
        """Raise AssertionError unless this holds between any two steps of a task."""
        markers = [channel.marker for channel in self._channels.values()]
        assert not self._count or (self._value, self._count) == (min(markers), markers.count(self._value)), markers
